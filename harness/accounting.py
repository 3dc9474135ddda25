"""Every request of a run ends as exactly one record, whatever became of its worker.

In an open loop each request of the schedule has a time, so each has a record. In a closed loop a request exists once a
user has taken it: what was prepared and never taken has no time, and no record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.recording import Recorder
from harness.records.record import Outcome, Record
from workloads.schedule import AnySchedule, ClosedPart, ClosedSchedule, Schedule


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker ended, and how many requests it had begun to send."""

    exit_code: int | None
    sent: int


def account_for_all(
    recorder: Recorder, records: Mapping[int, Record], workers: Sequence[WorkerEnd], interrupted: bool
) -> tuple[Record, ...]:
    """``records`` (by index) and those of requests that have none, sorted by when they were due.

    ``interrupted`` says that the run was stopped before its end: what an orderly worker did not send is then NOT_SENT.
    """
    schedule = recorder.schedule
    if isinstance(schedule, Schedule):
        return _of_open_loop(schedule, recorder, records, workers, interrupted)
    return _of_closed_loop(schedule, recorder, records, workers)


def ran_out(schedule: AnySchedule, records: Sequence[Record]) -> bool:
    """Whether users of a closed loop that was not interrupted were free before its end, and nothing was left to send."""
    if not isinstance(schedule, ClosedSchedule) or schedule.end_ns is None:
        return False
    if any(record.outcome is Outcome.LOST for record in records):  # users of a dead worker are not free
        return False
    free_ns = [*schedule.user_starts_ns, *(record.done_ns for record in records if record.done_ns is not None)]
    return sum(ns < schedule.end_ns for ns in free_ns) > len(records)


def _of_open_loop(
    schedule: Schedule, recorder: Recorder, records: Mapping[int, Record], workers: Sequence[WorkerEnd], interrupted: bool
) -> tuple[Record, ...]:
    def missing(index: int) -> Record:
        exit_code = workers[index % len(workers)].exit_code
        due_ns = schedule.offsets_ns[index]
        if exit_code or not interrupted:
            return recorder.unsent(index, due_ns, Outcome.LOST, f"its worker ended with status {exit_code}")
        return recorder.unsent(index, due_ns, Outcome.NOT_SENT, "the run was stopped before its time")

    return tuple(records.get(index) or missing(index) for index in range(len(schedule)))


def _of_closed_loop(
    schedule: ClosedSchedule, recorder: Recorder, records: Mapping[int, Record], workers: Sequence[WorkerEnd]
) -> tuple[Record, ...]:
    everything = list(records.values())
    for number, worker in enumerate(workers):
        part = schedule.part(number, len(workers))
        taken = part.indices[: worker.sent]
        lost = [index for index in taken if index not in records]
        due_ns = unanswered_due_ns(part, [records[index] for index in taken if index in records])
        everything += [
            recorder.unsent(index, due, Outcome.LOST, f"its worker ended with status {worker.exit_code}")
            for index, due in zip(lost, due_ns, strict=False)
        ]
    return tuple(sorted(everything, key=lambda record: (record.scheduled_ns, record.index)))


def unanswered_due_ns(part: ClosedPart, records: Sequence[Record]) -> list[int]:
    """When the requests were due that a worker took and has no record of, sorted; perhaps more than there were.

    A user is free when it comes, and whenever a request has ended: each such moment made one request due, but for the
    last ones, when the worker had died or was to stop.
    """
    free_ns = Counter(part.user_starts_ns)
    free_ns.update(record.done_ns for record in records if record.done_ns is not None)
    free_ns.subtract(record.scheduled_ns for record in records)
    return sorted(ns for ns, count in free_ns.items() for _ in range(count))
