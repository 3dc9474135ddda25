"""Counts of things in sentences."""

from __future__ import annotations


def counted(number: float, one: str, many: str | None = None) -> str:
    """``number`` before ``one``, the words for a single thing, or ``many``: that with an s where it is left out."""
    if number == 1:
        return f"1 {one}"
    return f"{number:,.0f} {f'{one}s' if many is None else many}"
