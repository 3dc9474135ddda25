"""Recovery: a run's records, made from its journals after any of its processes was killed, or the disk was full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench_records.manifest import Recovered
from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolder
from harness.errors import JournalError
from harness.journal.worker_journal import Began, Exchange, JournalReader
from harness.recording.accounting import WorkerEnd, account_for_all, ran_out
from harness.recording.recorder import CountTokens, Recorder
from harness.recording.run_result import RunResult
from harness.recording.schedule_file import RecordingBasis

_CUT = "the run was cut before the exchange was recorded; whether the request was sent is unknown"
_DAMAGED = "a part of its worker's journal is damaged; whether the request was sent is unknown"


@dataclass(frozen=True)
class RecoveredRun:
    """One record for each scheduled request, the number of journals, and the bytes of theirs that could not be read: those of
    damaged records, and of a torn last one.
    """

    result: RunResult
    journals: int
    torn_bytes: int

    @property
    def evidence(self) -> Recovered:
        """For the manifest: the numbers of requests that were scheduled, recorded, lost and not sent."""
        records = self.result.records
        lost = sum(record.outcome is Outcome.LOST and record.sent_ns is None for record in records)
        not_sent = sum(record.outcome is Outcome.NOT_SENT for record in records)
        return Recovered(
            scheduled=len(records),
            written_down=len(records) - lost - not_sent,
            lost=lost,
            not_sent=not_sent,
            journals=self.journals,
            torn_bytes=self.torn_bytes,
        )


def recover(folder: RunFolder, basis: RecordingBasis, count_tokens: CountTokens | None) -> RecoveredRun:
    """Read every journal in ``folder`` and account for every request. The folder is not changed.

    Raises JournalError where there is no journal, or one does not belong to the run of ``basis``.
    """
    readers = [JournalReader(folder.journal(worker), basis.run_id) for worker in range(basis.workers)]
    journals = set(folder.journals())
    if not journals:
        raise JournalError(f"{folder.path} holds no journals: the run was cut before its first request was sent")
    for path in journals - {folder.journal(worker) for worker in range(basis.workers)}:
        raise JournalError(f"{path} belongs to no worker of this run, which has {basis.workers} according to {folder.schedule}")
    recorder = Recorder(basis.schedule, basis.client, count_tokens, basis.further)
    records: dict[int, Record] = {}
    for worker, reader in enumerate(readers):
        for exchange in _checked_exchanges(reader, folder.journal(worker), worker, basis):
            records[exchange.index] = recorder.record(exchange, worker)
    began = [reader.began for reader in readers if reader.began is not None]
    ends = [reader.ended for reader in readers]
    accounted = account_for_all(recorder, records, list(map(_end, readers)))
    is_complete = all(ended is not None and ended.reason is None for ended in ends)
    result = RunResult(
        records=accounted,
        started_at=_started_at(began),
        duration_s=max((record.done_ns for record in records.values() if record.done_ns is not None), default=0) / 1e9,
        interrupted=False,
        warm_up_failures=tuple(failure for journal in began for failure in journal.warm_up_failures),
        ran_out=is_complete and ran_out(basis.schedule, accounted),
    )
    return RecoveredRun(
        result, journals=len(journals), torn_bytes=sum(reader.unread_bytes + reader.damaged_bytes for reader in readers)
    )


def _checked_exchanges(reader: JournalReader, path: Path, worker: int, basis: RecordingBasis) -> Iterator[Exchange]:
    """The journal's exchanges, each checked against the schedule: checksums do not identify the run."""
    expected = set(basis.schedule.indices(worker, basis.workers))
    most_sent = len(expected)
    for exchange in reader.read_rest():
        if reader.began is None or reader.began.schedule != basis.schedule.digest or reader.began.worker != worker:
            raise JournalError(f"{path} does not belong to the run of the schedule.bin beside it")
        if exchange.index not in expected:
            raise JournalError(f"{path} contains request {exchange.index}, which is another worker's or a duplicate")
        if exchange.target > len(basis.further):
            raise JournalError(f"{path} contains an exchange with target {exchange.target}, of {1 + len(basis.further)}")
        expected.remove(exchange.index)
        yield exchange
    if reader.ended is not None and reader.ended.sent > most_sent:
        raise JournalError(f"{path} counts {reader.ended.sent} requests as sent, of {most_sent} that its worker had")


def _end(reader: JournalReader) -> WorkerEnd:
    """A request that is in no record of a damaged journal was sent or not, whatever the last entry says."""
    ended = reader.ended
    sent = None if ended is None else ended.sent
    return WorkerEnd(None, sent, _DAMAGED) if reader.damaged_bytes else WorkerEnd(ended, sent, _CUT)


def _started_at(began: Sequence[Began]) -> datetime | None:
    return datetime.fromtimestamp(min(journal.started_unix_ns for journal in began) / 1e9, UTC) if began else None
