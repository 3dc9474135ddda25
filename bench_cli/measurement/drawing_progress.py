"""How far the drawing of prompts is: a text of an exact length takes a millisecond or more, and there may be many thousands."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import click

_FIRST_AFTER_S, _EACH_S = 3.0, 10.0


class DrawingProgress:
    """Is called with the number of prompts drawn so far, and says on stderr how many of ``count`` are drawn and how long the
    rest takes: after 3 s, then every 10 s. ``now_s`` is the clock, in s.
    """

    def __init__(self, count: int, now_s: Callable[[], float] = monotonic) -> None:
        self._count = count
        self._now_s = now_s
        self._started_s = now_s()
        self._due_s = self._started_s + _FIRST_AFTER_S

    def __call__(self, drawn: int) -> None:
        now_s = self._now_s()
        if now_s < self._due_s or drawn == self._count:
            return
        from reports.capacity.words import time_text  # 0.2 s of CPU, which a short drawing need not spend

        self._due_s = now_s + _EACH_S
        left_s = (now_s - self._started_s) / drawn * (self._count - drawn)
        click.echo(f"Drawing prompts: {drawn:,} of {self._count:,}, about {time_text(left_s)} left.", err=True)
