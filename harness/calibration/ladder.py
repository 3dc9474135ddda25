"""The highest rate that a client holds: doubled until it does not, then narrowed. Pure; what is tried is handed in.

A machine has hiccups, so a rate is not held when it was not held twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

_NARROWINGS = 2  # each halves, on a logarithmic scale, the factor between held and not held
_LOWEST_SHARE = 1 / 16  # of the first rate; what does not hold that much is not calibrated

Attempt = Callable[[float], str | None]
"""Tries a rate; returns why it was not held, or None where it was."""


@dataclass(frozen=True, slots=True)
class Limit:
    """``held_per_s`` is the highest rate that was held, None where none was. ``failed_per_s`` is the lowest above it that was
    not, and ``why`` says why not; without one, ``why`` says what ended the search."""

    held_per_s: float | None
    failed_per_s: float | None
    why: str


def climb(attempt: Attempt, first: float, top: float, has_time: Callable[[], bool]) -> Limit:
    """Search from ``first`` to ``top`` for as long as ``has_time`` says so."""
    held: float | None = None
    failed: float | None = None
    why = "there was no time for more"
    rate: float | None = first
    while rate is not None and has_time():
        problem = _tried(attempt, rate, has_time)
        if problem is None:
            held = rate
        else:
            failed, why = rate, problem
        rate = _next_rate(first, top, held, failed)
    if held is not None and held >= top:
        why = "nothing higher was tried"
    return Limit(held, failed, why)


def _tried(attempt: Attempt, rate: float, has_time: Callable[[], bool]) -> str | None:
    problem = attempt(rate)
    return attempt(rate) if problem is not None and has_time() else problem


def _next_rate(first: float, top: float, held: float | None, failed: float | None) -> float | None:
    """What to try when ``held`` is the highest that was held and ``failed`` the lowest that was not; None ends the search."""
    if failed is None:
        assert held is not None
        return min(2 * held, top) if held < top else None
    if held is None:
        return failed / 2 if failed / 2 >= first * _LOWEST_SHARE else None
    narrow_enough = 2 ** (1 / 2**_NARROWINGS) * 1.001
    return sqrt(held * failed) if failed / held > narrow_enough else None
