"""Counts of things in sentences."""

from __future__ import annotations

_MOST_DECIMALS = 6


def counted(number: float, one: str, many: str | None = None) -> str:
    """``number`` before ``one``, the words for a single thing, or ``many``: that with an s where it is left out."""
    if number == 1:
        return f"1 {one}"
    return f"{number:,.0f} {f'{one}s' if many is None else many}"


def percent(share: float, decimals: int = 0) -> str:
    """``share`` in per cent, with further decimals where these would say 0 or 100 of a share that is neither."""
    while 0.0 < share < 1.0 and float(f"{100.0 * share:.{decimals}f}") in (0.0, 100.0) and decimals < _MOST_DECIMALS:
        decimals += 1
    return f"{share:.{decimals}%}"
