"""Counts of things in sentences."""

from __future__ import annotations

from collections.abc import Callable

_MOST_DECIMALS = 6


def counted(number: float, one: str, many: str | None = None) -> str:
    """``number`` before ``one``, the words for a single thing, or ``many``: that with an s where it is left out."""
    if number == 1:
        return f"1 {one}"
    return f"{number:,.0f} {f'{one}s' if many is None else many}"


def percent(share: float, decimals: int = 0, limit: float | None = None) -> str:
    """``share`` in per cent, with further decimals where these would say 0 or 100 of a share that is neither, or would not show
    that it is above a ``limit``.
    """

    def shows(shown: float) -> bool:
        is_none_or_all = 0.0 < share < 1.0 and shown in (0.0, 100.0)
        return not is_none_or_all and (limit is None or (shown > 100.0 * limit) == (share > limit))

    found = decimals_that_show(100.0 * share, decimals, _MOST_DECIMALS, shows)
    return f"{share:.{max(decimals, _MOST_DECIMALS) if found is None else found}%}"


def decimals_that_show(value: float, fewest: int, most: int, shows: Callable[[float], bool]) -> int | None:
    """The fewest decimals, from ``fewest`` to ``most``, with which ``value`` as it is printed ``shows`` what it has to, for
    example the side of a limit; None where none do.
    """
    return next((decimals for decimals in range(fewest, most + 1) if shows(float(f"{value:.{decimals}f}"))), None)
