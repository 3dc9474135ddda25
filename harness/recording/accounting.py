"""Every request of a run ends as exactly one record, whatever became of its worker.

In an open loop each request of the schedule has a time, so each has a record. In a closed loop a request exists once a
user has taken it: what was prepared and never taken has no time, and no record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.journal.worker_journal import Ended
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import AskedSchedule, ClosedTimes, OpenTimes, free_again_ns
from harness.records.record import Outcome, Record
from workloads.schedule import ClosedPart


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker ended: the last entry of its journal or, where it came to none, ``why``.

    ``sent`` is how many requests it had begun to send; None where nobody knows.
    """

    ended: Ended | None
    sent: int | None
    why: str


def account_for_all(recorder: Recorder, records: Mapping[int, Record], workers: Sequence[WorkerEnd]) -> tuple[Record, ...]:
    """``records`` (by index) and those of requests that have none, sorted by when they were due."""
    schedule = recorder.schedule
    match schedule.times:
        case OpenTimes(offsets_ns):
            return _of_open_loop(offsets_ns, recorder, records, workers)
        case ClosedTimes() as times:
            return _of_closed_loop(schedule, times, recorder, records, workers)


def ran_out(schedule: AskedSchedule, records: Sequence[Record]) -> bool:
    """Whether users of a closed loop that was not interrupted were free before its end, and nothing was left to send."""
    times = schedule.times
    if not isinstance(times, ClosedTimes) or times.end_ns is None:
        return False
    if any(record.outcome is Outcome.LOST for record in records):  # users of a dead worker are not free
        return False
    free_ns = [*times.user_starts_ns, *_free_again_ns(records)]
    return sum(ns < times.end_ns for ns in free_ns) > len(records)


def _of_open_loop(
    offsets_ns: Sequence[int], recorder: Recorder, records: Mapping[int, Record], workers: Sequence[WorkerEnd]
) -> tuple[Record, ...]:
    tell = [_teller(worker) for worker in workers]

    def missing(index: int) -> Record:
        return recorder.unsent(index, offsets_ns[index], *tell[index % len(workers)](index))

    return tuple(records.get(index) or missing(index) for index in range(len(offsets_ns)))


def _of_closed_loop(
    schedule: AskedSchedule,
    times: ClosedTimes,
    recorder: Recorder,
    records: Mapping[int, Record],
    workers: Sequence[WorkerEnd],
) -> tuple[Record, ...]:
    everything = list(records.values())
    for number, worker in enumerate(workers):
        part = schedule.part_of_users(times, number, len(workers))
        taken = part.indices if worker.sent is None else part.indices[: worker.sent]
        lost = [index for index in taken if index not in records]
        due_ns = unanswered_due_ns(part, [records[index] for index in taken if index in records])
        tell = _teller(worker)
        everything += [recorder.unsent(index, due, *tell(index)) for index, due in zip(lost, due_ns, strict=False)]
    return tuple(sorted(everything, key=lambda record: (record.scheduled_ns, record.index)))


def _teller(worker: WorkerEnd) -> Callable[[int], tuple[Outcome, str]]:
    """Says what became of a request of ``worker``'s that has no exchange."""
    ended = worker.ended
    if ended is None:
        return lambda index: (Outcome.LOST, worker.why)
    unwritten = frozenset(ended.unwritten)

    def tell(index: int) -> tuple[Outcome, str]:
        if index in unwritten:
            return Outcome.LOST, "it was sent, but the disk did not take what came of it"
        if ended.reason is None:
            return Outcome.LOST, "its worker ended without having sent it"
        return Outcome.NOT_SENT, ended.reason

    return tell


def unanswered_due_ns(part: ClosedPart, records: Sequence[Record]) -> list[int]:
    """When the requests were due that a worker took and has no record of, sorted; perhaps more than it took.

    A user is free when it comes, and whenever a request has ended: each such moment made one request due, but for the
    last ones, when the worker had died or was to stop.
    """
    free_ns = Counter(part.user_starts_ns)
    free_ns.update(_free_again_ns(records))
    free_ns.subtract(record.scheduled_ns for record in records)
    return sorted(ns for ns, count in free_ns.items() for _ in range(count) if part.end_ns is None or ns < part.end_ns)


def _free_again_ns(records: Sequence[Record]) -> Iterator[int]:
    return (free_again_ns(record.done_ns, record.outcome) for record in records if record.done_ns is not None)
