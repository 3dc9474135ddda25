"""The rule of --stop_if: a run ends when it can no longer meet a requirement, whatever the rest of its requests do.

``p99_ttft>500ms`` is true of a run of 1,000 requests once 11 of them are known to be beyond 500 ms. Known are answers that took
longer, requests that the target failed, and requests older than the limit without a token.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from bench_records.record import FAILURES, TIMEOUTS, Outcome, Record
from harness.run.end_rule import RunMoment
from reports.criteria import Requirement
from reports.metrics.catalogue import E2E, FAILED_SHARE, TPOT, TTFT
from reports.statistics.quantile_curve import nearest_rank_of

_NS_PER_MS = 1e6
_OF_THE_CLIENT = (Outcome.CANCELLED, Outcome.LOST)  # no failures of the target
_CUT_OFF = (Outcome.WITHDRAWN, *TIMEOUTS)
_RECORDED_WITHIN_NS = 1_000_000_000  # of the end of an exchange, where records are not behind


class StopIf:
    """An EndRule: ends a run of ``planned`` requests, the first ones by index, when more than ``requirement`` allows are beyond
    its limit.

    ``due_ns`` are the due times of those that are known before the run, in order; empty where answers decide them.
    """

    def __init__(self, requirement: Requirement, planned: int, due_ns: Sequence[int]) -> None:
        self._requirement = requirement
        self._planned = planned
        self._due_ns = due_ns
        self._allowed = _allowed(requirement, planned)
        self._beyond = 0
        self._ended = 0
        self._without_token = 0

    def add(self, record: Record) -> None:
        if record.index >= self._planned:  # a probe beside the load
            return
        self._ended += 1
        self._without_token += not record.token_times_ns
        self._beyond += is_beyond(record, self._requirement)

    def reason(self, moment: RunMoment) -> str | None:
        known = self._beyond + self._waiting_too_long(moment)
        if known <= self._allowed:
            return None
        what = "failed" if self._requirement.metric is FAILED_SHARE else "are beyond the limit"
        return f"{known:,} of {self._planned:,} planned requests {what} already, and {self._allowed:,} may be"

    def _waiting_too_long(self, moment: RunMoment) -> int:
        """At least this many requests without a record are beyond the limit: those due before the limit's time, less all that
        have had a response, or have ended, so that none is counted twice.
        """
        metric, limit_ns = self._requirement.metric, self._requirement.limit * _NS_PER_MS
        if metric not in (TTFT, E2E):
            return 0
        old = bisect_right(self._due_ns, moment.elapsed_ns - limit_ns - _RECORDED_WITHIN_NS)
        if metric is TTFT and moment.answered is not None:
            return max(0, old - moment.answered - self._without_token)
        return 0 if metric is TTFT or moment.behind else max(0, old - self._ended)


def is_beyond(record: Record, requirement: Requirement) -> bool:
    """Whether a request is surely beyond the limit: the target failed it, its latency is longer, or was when it was cut off."""
    metric, limit = requirement.metric, requirement.limit
    if record.outcome in _OF_THE_CLIENT or record.sent_ns is None:
        return False
    if metric is FAILED_SHARE:
        return record.outcome in FAILURES
    if record.outcome in FAILURES and record.outcome not in _CUT_OFF:
        return True
    times_ns, is_cut = record.token_times_ns, record.outcome in _CUT_OFF
    if metric is TPOT:
        if is_cut or len(times_ns) < 2 or record.sent_tokens < 2:
            return False
        return (times_ns[-1] - times_ns[0]) / _NS_PER_MS / (record.sent_tokens - 1) > limit
    reached = times_ns[:1] if metric is TTFT else () if is_cut else times_ns[-1:]
    end_ns = reached[0] if reached else record.done_ns if is_cut else None
    return end_ns is not None and (end_ns - record.scheduled_ns) / _NS_PER_MS > limit


def _allowed(requirement: Requirement, planned: int) -> int:
    """The requests that may be beyond the limit where the requirement is met."""
    if requirement.q is None:
        return int(round(requirement.limit * planned, 9))
    return planned - nearest_rank_of(requirement.q, planned)
