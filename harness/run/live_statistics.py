"""Statistics of a run in progress."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass

from bench_records.record import Outcome, Record
from harness.recording.completeness import FinishReasonWatch

_RATE_WINDOW_S = 5.0
_LATEST = 2_000  # requests, whose latencies are shown


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of a run; rates are over the last few seconds, the ``latency`` (from the schedule) over the latest requests.

    ``scheduled`` is the number of requests of the run; None where its duration determines it.
    """

    elapsed_s: float
    scheduled: int | None
    sent: int
    done: int
    failed: int
    requests_per_s: float
    tokens_per_s: float
    latency: str
    latency_p99_ms: float | None
    stopping: bool = False

    @property
    def in_flight(self) -> int:
        return max(0, self.sent - self.done - self.failed)


class LiveStatistics:
    """Accumulates records as they are made. The latency of a ``streamed`` run is TTFT, of another E2E latency."""

    def __init__(self, scheduled: int | None, streamed: bool) -> None:
        self._scheduled = scheduled
        self._latency = "TTFT" if streamed else "E2E"
        self._done = self._failed = self._tokens = 0
        self._watch = FinishReasonWatch()
        self._latencies_ms: deque[float] = deque()  # the latest, in order of arrival
        self._ordered_ms: list[float] = []  # the same, sorted
        self._history: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)])

    def add(self, record: Record) -> None:
        if self._watch.judged(record).outcome not in (Outcome.DONE, Outcome.WITHDRAWN):
            self._failed += 1
            return
        self._done += 1
        self._tokens += record.output_tokens or 0
        if record.token_times_ns:
            self._add_latency((record.token_times_ns[0] - record.scheduled_ns) / 1e6)  # unstreamed tokens come at once

    def snapshot(self, elapsed_s: float, sent: int, stopping: bool = False) -> Snapshot:
        self._history.append((elapsed_s, self._done, self._tokens))
        while len(self._history) > 2 and elapsed_s - self._history[0][0] > _RATE_WINDOW_S:
            self._history.popleft()
        then_s, done, tokens = self._history[0]
        span_s = max(elapsed_s - then_s, 1e-9)
        return Snapshot(
            elapsed_s=elapsed_s,
            scheduled=self._scheduled,
            sent=sent,
            done=self._done,
            failed=self._failed,
            requests_per_s=(self._done - done) / span_s,
            tokens_per_s=(self._tokens - tokens) / span_s,
            latency=self._latency,
            latency_p99_ms=_nearest_rank(self._ordered_ms, 99),
            stopping=stopping,
        )

    def _add_latency(self, latency_ms: float) -> None:
        self._latencies_ms.append(latency_ms)
        insort(self._ordered_ms, latency_ms)
        if len(self._latencies_ms) > _LATEST:
            del self._ordered_ms[bisect_left(self._ordered_ms, self._latencies_ms.popleft())]


def _nearest_rank(ordered: list[float], percent: int) -> float | None:
    return ordered[-(-percent * len(ordered) // 100) - 1] if ordered else None
