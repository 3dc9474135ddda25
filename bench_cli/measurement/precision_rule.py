"""The rule of --until: a run ends when a number of it is as precise as requested."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import click
from msgspec.structs import replace

from bench_records.record import Record
from bench_records.table import table_of
from harness.run.end_rule import RunMoment
from reports.metrics.configuration import ConfiguredLoad
from reports.metrics.metric import MeasuredRun
from reports.metrics.precision import LooksInTurn, PrecisionGoal, half_width, looks
from reports.metrics.requests import from_columns
from reports.statistics.estimate import Estimate


class Until:
    """An EndRule: ends a run of ``planned`` requests, the first ones by index, when ``goal`` is met.

    ``in_order``: requests are due by their index, as in an open loop; else a look takes all that have ended. The looks are made
    by a thread of their own, so that records do not wait. ``ended`` are those that the next look takes, ``looked_at`` is how
    many the last one took.
    """

    def __init__(self, goal: PrecisionGoal, planned: int, load: ConfiguredLoad, *, streaming: bool, in_order: bool) -> None:
        self._goal = goal
        self._planned = planned
        self._load = load
        self._streaming = streaming
        self._in_order = in_order
        self._early: dict[int, Record] = {}  # those that ended before one that was due earlier
        self.ended: list[Record] = []
        self._looks = looks()
        self._next = next(self._looks)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bench-until")
        self._look: Future[Estimate] | None = None
        self.looked_at = 0
        self._in_turn = LooksInTurn(goal)

    @property
    def is_looking(self) -> bool:
        return self._look is not None

    def add(self, record: Record) -> None:
        if record.index >= self._planned:  # a probe beside the load
            return
        small = _small(record)
        if not self._in_order:
            self.ended.append(small)
            return
        self._early[small.index] = small
        while (following := self._early.pop(len(self.ended), None)) is not None:
            self.ended.append(following)

    def reason(self, moment: RunMoment) -> str | None:
        if self._look is None:
            self._begin_look()
            return None
        if not self._look.done():
            return None
        look, self._look = self._look, None
        try:
            estimate = look.result()
        except Exception as error:  # a look that fails must not cost the run; it goes on to its bound
            click.echo(f"--until {self._goal}: a look at {self.looked_at:,} requests failed: {error!r}", err=True)
            return None
        if not self._in_turn.may_end(self.looked_at, estimate):
            return None
        precise = f"{estimate.value:.4g} ms ± {half_width(estimate):.1%}".replace("%", " %")
        return f"{self._goal.name} is {precise} by the first {self.looked_at:,} requests"

    def _begin_look(self) -> None:
        count = len(self.ended)
        if count < self._next:
            return
        while count >= self._next:
            self.looked_at, self._next = self._next, next(self._looks)
        self._look = self._thread.submit(self.estimate, self.ended[: self.looked_at])

    def estimate(self, records: Sequence[Record]) -> Estimate:
        """The number and its interval by ``records``, as a report of these requests shows them."""
        table = table_of(sorted(records, key=lambda record: (record.scheduled_ns, record.index)))
        requests = from_columns(table.select)
        return self._goal.estimate(self._goal.metric.latency_of(MeasuredRun(requests, self._streaming, self._load)))


def _small(record: Record) -> Record:
    """The record with the first and the last of its tokens alone, which are all that latencies of requests need."""
    times_ns = record.token_times_ns
    return replace(record, token_times_ns=times_ns if len(times_ns) < 3 else (times_ns[0], times_ns[-1]), token_counts=None)
