"""Accounting: exactly one record for every request of a run, however its worker ended.

In an open loop each request of the schedule has a due time, so each has a record. In a closed loop a request has a due time
once a user has taken it: prepared requests that were never taken have no record. Each turn of a session that began has a
record, too; one that was not sent since its parent failed has the due time that an answer at the parent's own due time would
have given it. Where a rule ended the run, what would have been due later has no record, as in a shorter run.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from bench_records.record import Outcome, Record
from harness.journal.worker_journal import Ended
from harness.recording.chunk_counts import count_by_chunks
from harness.recording.completeness import judge_completeness
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import ClosedTimes, OpenTimes, ScheduleSummary, SessionTimes, user_free_ns
from workloads.schedule.schedule import ClosedPart, turn_due_ns


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker ended: the last entry of its journal or, where there is none, ``reason``.

    ``sent`` is the number of requests whose sending had started; None where unknown.
    """

    ended: Ended | None
    sent: int | None
    reason: str


def account_for_all(recorder: Recorder, records: Mapping[int, Record], workers: Sequence[WorkerEnd]) -> tuple[Record, ...]:
    """``records`` (by index), and new ones for the requests without, sorted by due time.

    They are INCOMPLETE where an answer was cut, and have tokens by chunks where the server sends one token in each.
    """
    schedule, end_ns = recorder.schedule, _end_ns(workers)
    judged = judge_completeness(tuple(records.values()), recorder.expect_finish_reason)
    records = {record.index: record for record in judged}  # a turn after an answer that was cut was not sent
    match schedule.times:
        case OpenTimes(offsets_ns):
            accounted = _of_open_loop(offsets_ns, recorder, records, workers, end_ns)
        case ClosedTimes() as times:
            ended = ClosedTimes(times.user_starts_ns, _earlier(times.end_ns, end_ns))
            accounted = _of_closed_loop(schedule, ended, recorder, records, workers)
        case SessionTimes() as times:
            accounted = _of_sessions(schedule, times, recorder, records, workers, end_ns)
    return count_by_chunks(accounted)


def _end_ns(workers: Sequence[WorkerEnd]) -> int | None:
    """The time from which on nothing was due, where a rule ended the run."""
    ends = (worker.ended for worker in workers if worker.ended is not None)
    return min((ended.end_ns for ended in ends if ended.end_ns is not None), default=None)


def _earlier(planned_ns: int | None, end_ns: int | None) -> int | None:
    return min((ns for ns in (planned_ns, end_ns) if ns is not None), default=None)


def ran_out(schedule: ScheduleSummary, records: Sequence[Record]) -> bool:
    """Whether users of a closed loop that was not interrupted were free before its end, with no request left to send."""
    times = schedule.times
    if not isinstance(times, ClosedTimes) or times.end_ns is None:
        return False
    if any(record.outcome is Outcome.LOST for record in records):  # users of a dead worker are not free
        return False
    free_ns = [*times.user_starts_ns, *_times_users_became_free(records)]
    return sum(ns < times.end_ns for ns in free_ns) > len(records)


def _of_open_loop(
    offsets_ns: Sequence[int],
    recorder: Recorder,
    records: Mapping[int, Record],
    workers: Sequence[WorkerEnd],
    end_ns: int | None,
) -> tuple[Record, ...]:
    fates = [_fate_of_unrecorded(worker) for worker in workers]

    def missing(index: int) -> Record:
        return recorder.unsent(index, offsets_ns[index], *fates[index % len(workers)](index))

    due = (index for index, ns in enumerate(offsets_ns) if end_ns is None or ns < end_ns or index in records)
    accounted = (records.get(index) or missing(index) for index in due)
    return tuple(sorted(accounted, key=lambda record: record.scheduled_ns))


def _of_closed_loop(
    schedule: ScheduleSummary,
    times: ClosedTimes,
    recorder: Recorder,
    records: Mapping[int, Record],
    workers: Sequence[WorkerEnd],
) -> tuple[Record, ...]:
    accounted = list(records.values())
    for number, worker in enumerate(workers):
        part = schedule.part_of_users(times, number, len(workers))
        taken = part.indices[: worker.sent]  # all of them where that is unknown
        due_ns = unanswered_due_ns(part, [records[index] for index in taken if index in records])
        if worker.sent is None:
            lost = list(zip((index for index in taken if index not in records), due_ns, strict=False))
        else:
            lost = _due_of_lost(part, taken, records, due_ns)
        fate = _fate_of_unrecorded(worker)
        accounted += [recorder.unsent(index, due, *fate(index)) for index, due in lost]
    return tuple(sorted(accounted, key=lambda record: (record.scheduled_ns, record.index)))


def _due_of_lost(
    part: ClosedPart, taken: Sequence[int], records: Mapping[int, Record], due_ns: Sequence[int]
) -> list[tuple[int, int]]:
    """The requests that were ``taken`` and not recorded, each with when it was due: the times ``due_ns`` in their order.

    In the place of damaged entries of a journal there are more such requests than times, and some of these are later than
    requests that were taken later. One without a time counts as due with the request that was taken before it.
    """
    times_ns, latest_ns, until_ns = deque(due_ns), min(part.user_starts_ns, default=0), dict[int, float]()
    following_ns = math.inf
    for index in reversed(taken):
        until_ns[index] = following_ns
        following_ns = min(following_ns, records[index].scheduled_ns if index in records else math.inf)
    lost = []
    for index in taken:
        if index in records:
            latest_ns = max(latest_ns, records[index].scheduled_ns)
            continue
        own_ns = times_ns.popleft() if times_ns and times_ns[0] <= until_ns[index] else latest_ns
        latest_ns = max(latest_ns, own_ns)
        lost.append((index, own_ns))
    return lost


def _of_sessions(
    schedule: ScheduleSummary,
    times: SessionTimes,
    recorder: Recorder,
    records: Mapping[int, Record],
    workers: Sequence[WorkerEnd],
    end_ns: int | None,
) -> tuple[Record, ...]:
    fates: dict[int, Callable[[int], tuple[Outcome, str]]] = {}
    for number, worker in enumerate(workers):
        fates |= dict.fromkeys(schedule.indices(number, len(workers)), _fate_of_unrecorded(worker))
    accounted: dict[int, Record] = {}
    for index, (offset_ns, think_ns) in enumerate(zip(times.offsets_ns, times.think_times_ns, strict=True)):
        record = records.get(index)
        waited_for = times.waited_for(index)
        if record is None and _never_began(offset_ns, waited_for, accounted, end_ns):
            continue
        if record is None and not waited_for:
            record = recorder.unsent(index, offset_ns or 0, *fates[index](index))
        elif record is None:
            before = [accounted[other] for other in waited_for]
            answered_ns = max(other.scheduled_ns if other.done_ns is None else other.done_ns for other in before)
            behind = next(((other.index, fate) for other in before if (fate := _fate_behind(other))), None)
            waited_in_vain, fate = behind or (waited_for[0], fates[index](index))
            unsent = recorder.unsent(index, turn_due_ns(offset_ns, think_ns, answered_ns), *fate)
            record = replace(unsent, parent=waited_in_vain)
        assert record is not None
        accounted[index] = record
    return tuple(sorted(accounted.values(), key=lambda record: (record.scheduled_ns, record.index)))


def _never_began(offset_ns: int | None, waited_for: Sequence[int], accounted: Mapping[int, Record], end_ns: int | None) -> bool:
    """Whether a turn belongs to a session that would have begun after a rule ended the run, or waits for one of such."""
    if waited_for:
        return not accounted.keys() >= set(waited_for)
    return end_ns is not None and (offset_ns or 0) >= end_ns


def _fate_behind(parent: Record) -> tuple[Outcome, str] | None:
    """Outcome and reason of a turn that waited for ``parent``; None where that does not explain why it was not sent."""
    match parent.outcome:
        case Outcome.DONE | Outcome.WITHDRAWN | Outcome.LOST:
            return None
        case Outcome.NOT_SENT:
            return Outcome.NOT_SENT, parent.error or ""
        case _:
            return Outcome.NOT_SENT, f"request {parent.index}, whose answer it waited for, failed"


def _fate_of_unrecorded(worker: WorkerEnd) -> Callable[[int], tuple[Outcome, str]]:
    """A function that returns outcome and reason of a request of ``worker`` without an exchange in the journal."""
    ended = worker.ended
    if ended is None:
        return lambda index: (Outcome.LOST, worker.reason)
    unwritten = frozenset(ended.unwritten)

    def fate(index: int) -> tuple[Outcome, str]:
        if index in unwritten:
            return Outcome.LOST, "it was sent, but its exchange could not be written to disk"
        if ended.reason is None:
            return Outcome.LOST, "its worker ended without having sent it"
        return Outcome.NOT_SENT, ended.reason

    return fate


def unanswered_due_ns(part: ClosedPart, records: Sequence[Record]) -> list[int]:
    """The due times of the requests that a worker took and did not record, sorted; perhaps more than it took.

    A user is free at its start, and whenever its request has ended. Each such moment made one request due, except the last
    ones, when the worker had died or was to stop.
    """
    free_ns = Counter(part.user_starts_ns)
    free_ns.update(_times_users_became_free(records))
    free_ns.subtract(record.scheduled_ns for record in records)
    return sorted(ns for ns, count in free_ns.items() for _ in range(count) if part.end_ns is None or ns < part.end_ns)


def _times_users_became_free(records: Sequence[Record]) -> Iterator[int]:
    return (user_free_ns(record.done_ns, record.outcome) for record in records if record.done_ns is not None)
