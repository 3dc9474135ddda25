"""Counts of things in sentences."""

from __future__ import annotations

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

    def hides(shown: float) -> bool:
        is_none_or_all = 0.0 < share < 1.0 and shown in (0.0, 100.0)
        return is_none_or_all or (limit is not None and (shown > 100.0 * limit) != (share > limit))

    while decimals < _MOST_DECIMALS and hides(float(f"{100.0 * share:.{decimals}f}")):
        decimals += 1
    return f"{share:.{decimals}%}"
