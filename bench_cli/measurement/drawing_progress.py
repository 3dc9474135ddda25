"""How far the drawing of prompts is: a text of an exact length takes a millisecond or more, and there may be many thousands."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import click

_FIRST_AFTER_S, _EACH_S = 3.0, 10.0


class DrawingProgress:
    """Is called with the number of prompts drawn so far, and says on stderr how many of ``count`` are drawn and how long the
    rest takes: 3 s after the first, then every 10 s. What comes before the first, as loading a tokenizer, is not done again for
    the rest. The first line ends with ``remedy``. ``now_s`` is the clock, in s.
    """

    def __init__(self, count: int, now_s: Callable[[], float] = monotonic, remedy: str = "") -> None:
        self._count = count
        self._now_s = now_s
        self._remedy = remedy
        self._first: tuple[float, int] | None = None
        self._due_s = 0.0

    def __call__(self, drawn: int) -> None:
        now_s = self._now_s()
        if self._first is None:
            self._first, self._due_s = (now_s, drawn), now_s + _FIRST_AFTER_S
        first_s, first = self._first
        if now_s < self._due_s or drawn in (first, self._count):
            return
        from reports.capacity.words import time_text  # 0.2 s of CPU, which a short drawing need not spend

        self._due_s = now_s + _EACH_S
        left_s = (now_s - first_s) / (drawn - first) * (self._count - drawn)
        progress = f"Drawing prompts: {drawn:,} of {self._count:,}, about {time_text(left_s)} left."
        click.echo(f"{progress} {self._remedy}".rstrip(), err=True)
        self._remedy = ""
