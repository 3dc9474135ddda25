"""Search for the highest rate that a client holds: rates double until one fails, then the interval is narrowed.

Pure: the attempt is a parameter. Machines have transient disturbances, so a rate has failed only after two attempts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

_NARROWINGS = 2  # each halves, on a logarithmic scale, the factor between held and not held
_LOWEST_SHARE = 1 / 16  # of the first rate; the search ends below it

Attempt = Callable[[float], str | None]
"""Tries a rate; returns the reason why it was not held, or None where it was."""


@dataclass(frozen=True, slots=True)
class Limit:
    """``held_per_s`` is the highest rate that was held, None where none was. ``failed_per_s`` is the lowest above it that was
    not, twice, and ``why`` the reason; without one, ``why`` is the reason why the search ended."""

    held_per_s: float | None
    failed_per_s: float | None
    why: str


def climb(attempt: Attempt, first: float, top: float, has_time: Callable[[], bool]) -> Limit:
    """Search from ``first`` to ``top`` while ``has_time`` returns True."""
    held: float | None = None
    failed: float | None = None
    why = "there was no time for more"
    rate: float | None = first
    while rate is not None and has_time():
        problem = attempt(rate)
        if problem is not None:
            if not has_time():
                why = why if failed is not None else f"there was no time for a second try ({problem})"
                break
            problem = attempt(rate)
        if problem is None:
            held = rate
        else:
            failed, why = rate, problem
        rate = _next_rate(first, top, held, failed)
    if held is not None and held >= top:
        why = "nothing higher was tried"
    return Limit(held, failed, why)


def _next_rate(first: float, top: float, held: float | None, failed: float | None) -> float | None:
    """The next rate, from the highest ``held`` and the lowest ``failed`` one; None ends the search."""
    if failed is None:
        assert held is not None
        return min(2 * held, top) if held < top else None
    if held is None:
        return failed / 2 if failed / 2 >= first * _LOWEST_SHARE else None
    narrow_enough = 2 ** (1 / 2**_NARROWINGS) * 1.001
    return sqrt(held * failed) if failed / held > narrow_enough else None
