"""Numbers of a run in progress for Locust's web page: histograms of whole records, which add up.

A value is kept with three significant digits, where Locust's own has two, so that a percentile is within 0.5 %. They are for
the eye alone: every number of a report comes from the records.
"""

from __future__ import annotations

import math
from collections import Counter

import msgspec

from bench_records.record import Outcome, Record
from harness.recording.completeness import FinishReasonWatch

_DIGITS = 3


class LiveHistogram(msgspec.Struct, frozen=True):
    """Values in ms since the last update: their number, sum, extremes and rounded values. ``failed`` ones have no value."""

    name: str
    count: int
    failed: int
    sum_ms: float
    least_ms: float | None
    most_ms: float | None
    buckets: dict[float, int]


class LiveUpdate(msgspec.Struct, frozen=True):
    """The histograms since the last update, failures by their reason, and the requests in flight."""

    histograms: tuple[LiveHistogram, ...]
    failures: dict[str, int]
    in_flight: int


def bucket_ms(value_ms: float) -> float:
    """The value with three significant digits."""
    if value_ms <= 0:
        return 0.0
    return round(value_ms, _DIGITS - 1 - math.floor(math.log10(value_ms)))


class LiveHistograms:
    """Collects records between two updates. Records of a run that is not ``streamed`` have no time to a first token."""

    def __init__(self, streamed: bool) -> None:
        self._left_out: frozenset[str] = frozenset() if streamed else frozenset({TTFT, TPOT})
        self._values_ms: dict[str, list[float]] = {}
        self._failures: Counter[str] = Counter()
        self._watch = FinishReasonWatch()

    def add(self, record: Record) -> None:
        record = self._watch.judged(record)
        if record.outcome is Outcome.WITHDRAWN:
            return
        if record.outcome is not Outcome.DONE:
            self._failures[record.outcome.value] += 1
            return
        for name, value_ms in _latencies_ms(record):
            if name in self._left_out:
                continue
            self._values_ms.setdefault(name, []).append(value_ms)

    def take(self, in_flight: int) -> LiveUpdate:
        """The update since the previous call."""
        values, failures = self._values_ms, dict(self._failures)
        self._values_ms, self._failures = {}, Counter()
        failed = sum(failures.values())
        if failed:
            values.setdefault(E2E, [])
        histograms = tuple(
            LiveHistogram(
                name=name,
                count=len(of_name),
                failed=failed if name == E2E else 0,
                sum_ms=sum(of_name),
                least_ms=min(of_name, default=None),
                most_ms=max(of_name, default=None),
                buckets=dict(Counter(map(bucket_ms, of_name))),
            )
            for name, of_name in values.items()
        )
        return LiveUpdate(histograms, failures, in_flight)


E2E, TTFT, TPOT, SLIP = "E2E latency", "TTFT", "TPOT", "schedule slip"


def _latencies_ms(record: Record) -> list[tuple[str, float]]:
    """The latencies of a record from its scheduled time; without tokens E2E latency counts to the end of the answer."""
    found: list[tuple[str, float]] = []
    times_ns, sent_ns = record.token_times_ns, record.sent_ns
    last_ns = times_ns[-1] if times_ns else record.done_ns
    if last_ns is not None:
        found.append((E2E, (last_ns - record.scheduled_ns) / 1e6))
    if times_ns:
        found.append((TTFT, (times_ns[0] - record.scheduled_ns) / 1e6))
    if len(times_ns) > 1 and record.sent_tokens > 1:
        found.append((TPOT, (times_ns[-1] - times_ns[0]) / 1e6 / (record.sent_tokens - 1)))
    if sent_ns is not None:
        found.append((SLIP, (sent_ns - record.scheduled_ns) / 1e6))
    return found
