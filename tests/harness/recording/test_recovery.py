"""Journals are written by the real writer and cut at every place; what must come of them is worked out from the entries."""

from __future__ import annotations

import heapq
import struct
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tritonclient.grpc import service_pb2

from bench_records.manifest import Recovered
from bench_records.record import Outcome
from bench_records.run_folder import RunFolder
from harness.clients.triton.grpc import TritonGrpcClient, TritonModel
from harness.errors import JournalError
from harness.journal.worker_journal import Began, Ended, Exchange, JournalWriter
from harness.recording.recorder import Recorder
from harness.recording.recovery import RecoveredRun, recover
from harness.recording.schedule_file import RecordingBasis
from harness.recording.schedule_summary import ClosedTimes, summarise_schedule
from workloads.elements.request import Request
from workloads.schedule.schedule import ClosedPart, ClosedSchedule, Schedule

_REQUESTS = 12
_RUN_ID = "0123456789abcdef" * 2
_STARTED_NS = 1_700_000_000_123_456_789


def _basis(workers: int) -> RecordingBasis:
    requests = tuple(Request(output_tokens=2, input_ids=(index,), input_tokens=1) for index in range(_REQUESTS))
    schedule = Schedule(requests, tuple(1_000 * index for index in range(_REQUESTS)), seed=0)
    model = TritonModel("m", True, frozenset({"input_ids"}), frozenset({"output_ids"}), ())
    return RecordingBasis(_RUN_ID, summarise_schedule(schedule), TritonGrpcClient("h:1", model, streaming=True), workers, None)


def _exchange(index: int, failure: Outcome | None = None) -> Exchange:
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.id = str(index)
    message.infer_response.outputs.add(name="output_ids", datatype="INT32", shape=[1, 1, 2])
    message.infer_response.raw_output_contents.append(struct.pack("<2i", 7, 8))
    sent_ns = 1_000 * index + 10
    return Exchange(
        index,
        1_000 * index,
        1_000 * index,
        sent_ns,
        sent_ns + 500,
        [sent_ns + 300],
        [message.SerializeToString()],
        failure,
        failure,
    )


@dataclass(frozen=True)
class _Journal:
    """The entries of one worker's journal, and at which byte each ends."""

    entries: tuple[Began | Exchange | Ended, ...]
    ends: tuple[int, ...]


def _write(folder: RunFolder, basis: RecordingBasis, worker: int, *entries: Exchange | Ended) -> _Journal:
    began = Began(basis.run_id, basis.schedule.digest, worker, _STARTED_NS, (f"warm-up of {worker}",))
    path, ends = folder.journal(worker), []
    with JournalWriter(path) as journal:
        for entry in (began, *entries):
            journal.append(entry)
            ends.append(path.stat().st_size)
    return _Journal((began, *entries), tuple(ends))


def _outcomes(recovered: RecoveredRun) -> list[Outcome]:
    return [record.outcome for record in recovered.result.records]


@st.composite
def _workers_entries(draw: st.DrawFn) -> list[list[Exchange | Ended]]:
    """For each worker: exchanges of its own requests, some missing, in the order of their ends; perhaps its end."""
    workers = draw(st.integers(1, 4))
    result: list[list[Exchange | Ended]] = []
    for worker in range(workers):
        own = list(range(worker, _REQUESTS, workers))
        kept = draw(st.permutations(draw(st.lists(st.sampled_from(own), unique=True)) if own else []))
        failures = st.sampled_from([None, Outcome.TIMEOUT, Outcome.STREAM_CUT])
        entries: list[Exchange | Ended] = [_exchange(index, draw(failures)) for index in kept]
        if draw(st.booleans()):
            unwritten = draw(st.lists(st.sampled_from(sorted({*own} - {*kept})), unique=True)) if {*own} - {*kept} else []
            entries.append(Ended(len(kept) + len(unwritten), "it was stopped", tuple(unwritten)))
        result.append(entries)
    return result


@settings(max_examples=200)
@given(_workers_entries(), st.data())
def test_every_request_has_one_record_wherever_journals_are_cut_and_whichever_are_missing(
    entries: list[list[Exchange | Ended]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder, basis = RunFolder(Path(temporary)), _basis(len(entries))
        recorder = Recorder(basis.schedule, basis.client)
        expected: dict[int, object] = {}
        torn = 0
        for worker, own in enumerate(entries):
            journal = _write(folder, basis, worker, *own)
            path = folder.journal(worker)
            cut = data.draw(st.none() | st.integers(0, journal.ends[-1]))
            if cut is None and (worker or folder.journals() != [path]):
                path.unlink()
                continue
            cut = journal.ends[-1] if cut is None else cut
            path.write_bytes(path.read_bytes()[:cut])
            whole = [entry for entry, end in zip(journal.entries, journal.ends, strict=True) if end <= cut]
            torn += cut - max([0, *(end for end in (25, *journal.ends) if end <= cut)])
            for entry in whole:
                if isinstance(entry, Exchange):
                    expected[entry.index] = recorder.record(entry, worker)
                if isinstance(entry, Ended):
                    for index in {*range(worker, _REQUESTS, len(entries))} - {*expected}:
                        expected[index] = Outcome.LOST if index in entry.unwritten else Outcome.NOT_SENT
        recovered = recover(folder, basis, None)
    records = recovered.result.records
    assert [record.index for record in records] == list(range(_REQUESTS))
    assert [record.scheduled_ns for record in records] == [1_000 * index for index in range(_REQUESTS)]
    for record in records:
        known = expected.get(record.index, Outcome.LOST)
        assert (record.outcome if isinstance(known, Outcome) else record) == known
        assert record.outcome is Outcome.DONE or record.error
    evidence = recovered.evidence
    assert evidence.written_down + evidence.lost + evidence.not_sent == evidence.scheduled == _REQUESTS
    assert evidence.torn_bytes == torn


def _closed_basis(workers: int, users: int, end_ns: int | None) -> RecordingBasis:
    requests = tuple(Request(output_tokens=2, input_ids=(index,), input_tokens=1) for index in range(_REQUESTS))
    schedule = ClosedSchedule(requests, tuple(10 * user for user in range(users)), 0, end_ns)
    return replace(_basis(workers), schedule=summarise_schedule(schedule))


def _as_users(part: ClosedPart, lengths_ns: list[int]) -> list[Exchange]:
    """The exchanges of a worker whose users each take the next request when free, in the order of their ends."""
    free = [(start_ns, user) for user, start_ns in enumerate(part.user_starts_ns)]
    exchanges = []
    for index, length_ns in zip(part.indices, lengths_ns, strict=False):
        due_ns, user = heapq.heappop(free) if free else (part.end_ns or 0, -1)
        if user < 0 or (part.end_ns is not None and due_ns >= part.end_ns):
            break
        exchanges.append(
            replace(_exchange(index), due_ns=due_ns, released_ns=due_ns, sent_ns=due_ns, done_ns=due_ns + length_ns)
        )
        heapq.heappush(free, (due_ns + length_ns, user))
    return sorted(exchanges, key=lambda exchange: exchange.done_ns)


@settings(max_examples=200)
@given(
    st.integers(1, 3),
    st.integers(1, 5),
    st.none() | st.integers(1, 2_000),
    st.lists(st.integers(1, 999), min_size=_REQUESTS, max_size=_REQUESTS),
    st.data(),
)
def test_in_a_closed_loop_every_user_that_was_free_has_one_record_wherever_journals_are_cut(
    workers: int, users: int, end_ns: int | None, lengths_ns: list[int], data: st.DataObject
) -> None:
    basis = _closed_basis(workers, users, end_ns)
    assert isinstance(basis.schedule.times, ClosedTimes)
    known: set[int] = set()
    due: list[int] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = RunFolder(Path(temporary))
        for worker in range(workers):
            part = basis.schedule.part_of_users(basis.schedule.times, worker, workers)
            exchanges = _as_users(part, lengths_ns)
            journal = _write(folder, basis, worker, *exchanges, Ended(len(exchanges)))
            cut = data.draw(st.integers(0, journal.ends[-1]))
            folder.journal(worker).write_bytes(folder.journal(worker).read_bytes()[:cut])
            kept = [exchange for exchange, end in zip(exchanges, journal.ends[1:], strict=False) if end <= cut]
            known |= {exchange.index for exchange in kept}
            if cut < journal.ends[-1]:
                free_ns = [*part.user_starts_ns, *(exchange.done_ns for exchange in kept)]
                due_ns = sorted(ns for ns in free_ns if end_ns is None or ns < end_ns)
                for exchange in kept:
                    due_ns.remove(exchange.due_ns)
                due += due_ns[: len(part.indices) - len(kept)]
        recovered = recover(folder, basis, None)
    records = recovered.result.records
    assert len({record.index for record in records}) == len(records)
    assert {record.index for record in records if record.outcome is Outcome.DONE} == known
    assert sorted(record.scheduled_ns for record in records if record.outcome is Outcome.LOST) == sorted(due)
    assert recovered.result.ran_out is False or all(record.outcome is Outcome.DONE for record in records)


def test_every_request_that_a_user_took_has_a_record_however_many_entries_are_damaged(tmp_path: Path) -> None:
    """When the user was free is known before the damaged entries alone; the last request was due when its exchange says so."""
    folder, basis = RunFolder(tmp_path), _closed_basis(1, 1, None)
    assert isinstance(basis.schedule.times, ClosedTimes)
    exchanges = _as_users(basis.schedule.part_of_users(basis.schedule.times, 0, 1), [100] * 6)
    journal = _write(folder, basis, 0, *exchanges, Ended(6))
    path, (begin, end) = folder.journal(0), (journal.ends[2], journal.ends[5])
    whole = path.read_bytes()
    path.write_bytes(whole[:begin] + bytes(end - begin) + whole[end:])
    recovered = recover(folder, basis, None)
    found = [(record.index, record.outcome.value, record.scheduled_ns) for record in recovered.result.records]
    lost = [(2, "lost", 200), (3, "lost", 200), (4, "lost", 200)]
    assert found == [(0, "done", 0), (1, "done", 100), *lost, (5, "done", 500)]
    assert recovered.evidence == Recovered(scheduled=6, written_down=3, lost=3, not_sent=0, journals=1, torn_bytes=end - begin)


def test_times_and_warm_up_come_from_the_journals(tmp_path: Path) -> None:
    folder, basis = RunFolder(tmp_path), _basis(2)
    for worker in range(2):
        _write(folder, basis, worker, _exchange(worker))
    result = recover(folder, basis, None).result
    assert result.started_at == datetime.fromtimestamp(_STARTED_NS / 1e9, UTC)
    assert result.duration_s == (1_010 + 500) / 1e9
    assert result.warm_up_failures == ("warm-up of 0", "warm-up of 1")
    assert (result.interrupted, result.problem) == (False, None)


def test_a_request_without_an_exchange_has_a_reason(tmp_path: Path) -> None:
    folder, basis = RunFolder(tmp_path), _basis(3)
    _write(folder, basis, 0, _exchange(0), Ended(2, "the run was stopped before its time", (6,)))
    _write(folder, basis, 1, _exchange(1))
    errors = {record.index: (record.outcome, record.error) for record in recover(folder, basis, None).result.records}
    assert errors[3] == (Outcome.NOT_SENT, "the run was stopped before its time")
    assert errors[6] == (Outcome.LOST, "it was sent, but its exchange could not be written to disk")
    cut = (Outcome.LOST, "the run was cut before the exchange was recorded; whether the request was sent is unknown")
    assert errors[4] == errors[2] == cut  # of a worker that was killed, of one whose journal is not there


def test_whether_a_request_of_a_damaged_journal_was_sent_is_unknown_though_its_worker_ended(tmp_path: Path) -> None:
    """The worker was stopped after two requests of three; the record of one is damaged, and which is not known."""
    folder, basis = RunFolder(tmp_path), _basis(4)
    journal = _write(folder, basis, 0, _exchange(0), _exchange(4), Ended(2, "the run was stopped before its time"))
    content = folder.journal(0).read_bytes()
    folder.journal(0).write_bytes(content[: journal.ends[2] - 1] + b"?" + content[journal.ends[2] :])
    recovered = recover(folder, basis, None)
    records = {record.index: (record.outcome, record.error) for record in recovered.result.records}
    unknown = (Outcome.LOST, "a part of its worker's journal is damaged; whether the request was sent is unknown")
    assert (records[0], records[4], records[8]) == ((Outcome.DONE, None), unknown, unknown)
    assert recovered.torn_bytes == journal.ends[2] - journal.ends[1]


def test_folder_without_journals_is_refused_since_nothing_was_sent(tmp_path: Path) -> None:
    with pytest.raises(
        JournalError, match=f"^{tmp_path} holds no journals: the run was cut before its first request was sent$"
    ):
        recover(RunFolder(tmp_path), _basis(2), None)


def test_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    folder, basis = RunFolder(tmp_path), _basis(1)
    with JournalWriter(folder.journal(0)) as journal:
        journal.append(Began(_RUN_ID, "another digest", 0, _STARTED_NS))
        journal.append(_exchange(0))
    with pytest.raises(JournalError, match=r"journal-0\.bin does not belong to the run of the schedule\.bin beside it$"):
        recover(folder, basis, None)


def test_journal_of_a_repeated_command_is_refused(tmp_path: Path) -> None:
    """Its schedule is the same, digest for digest; also one without an exchange counts nothing."""
    folder, basis = RunFolder(tmp_path), _basis(2)
    _write(folder, basis, 0, _exchange(0))
    _write(folder, replace(basis, run_id="f" * 32), 1, Ended(0, "stopped"))
    with pytest.raises(JournalError, match=rf"belongs to another run \(f{{32}}\), not to this one \({_RUN_ID}\)"):
        recover(folder, basis, None)


@pytest.mark.parametrize("index", [1, _REQUESTS])
def test_journal_with_a_request_that_is_not_its_workers_is_refused(tmp_path: Path, index: int) -> None:
    folder, basis = RunFolder(tmp_path), _basis(2)
    _write(folder, basis, 0, _exchange(index))
    with pytest.raises(
        JournalError, match=rf"journal-0\.bin contains request {index}, which is another worker's or a duplicate$"
    ):
        recover(folder, basis, None)


def test_journal_with_a_request_twice_is_refused(tmp_path: Path) -> None:
    folder, basis = RunFolder(tmp_path), _basis(1)
    _write(folder, basis, 0, _exchange(4), _exchange(4))
    with pytest.raises(JournalError, match=r"journal-0\.bin contains request 4, which is another worker's or a duplicate$"):
        recover(folder, basis, None)


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        (replace(_exchange(3), target=2), r"journal-0\.bin contains an exchange with target 2, of 2$"),
        (replace(_exchange(3), response_ns=[]), r"journal-0\.bin, entry at byte \d+, has 0 times of 1 responses$"),
        (Ended(13), r"journal-0\.bin counts 13 requests as sent, of 12 that its worker had$"),
    ],
)
def test_journal_that_no_worker_of_the_run_writes_is_refused(tmp_path: Path, entry: Exchange | Ended, refused: str) -> None:
    folder, basis = RunFolder(tmp_path), replace(_basis(1), further=(None,))
    _write(folder, basis, 0, entry)
    with pytest.raises(JournalError, match=refused):
        recover(folder, basis, None)


def test_records_name_their_worker_and_are_judged_by_what_their_target_sends(tmp_path: Path) -> None:
    """The second target was seen to send a finish_reason, which no answer here has."""
    folder, basis = RunFolder(tmp_path), replace(_basis(2), further=(True,))
    _write(folder, basis, 0, _exchange(0))
    _write(folder, basis, 1, replace(_exchange(1), target=1))
    records = recover(folder, basis, None).result.records[:2]
    assert [(record.worker, record.outcome) for record in records] == [(0, Outcome.DONE), (1, Outcome.INCOMPLETE)]


def test_journal_of_more_workers_than_there_were_is_refused(tmp_path: Path) -> None:
    folder, basis = RunFolder(tmp_path), _basis(1)
    _write(folder, basis, 0, _exchange(0))
    _write(folder, basis, 1)
    with pytest.raises(
        JournalError, match=r"journal-1\.bin belongs to no worker of this run, which has 1 according to .*schedule\.bin$"
    ):
        recover(folder, basis, None)


def test_file_that_is_no_journal_is_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.journal(0).write_bytes(b"inflight-bench journal 1\n")
    with pytest.raises(JournalError, match=r"journal-0\.bin is not a journal of this version"):
        recover(folder, _basis(1), None)


def _of_text(index: int, text: str) -> Exchange:
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.outputs.add(name="text_output", datatype="BYTES", shape=[1])
    message.infer_response.raw_output_contents.append(struct.pack("<I", len(text)) + text.encode())
    return replace(_exchange(index), bodies=[message.SerializeToString()])


def test_a_recovered_text_is_counted_by_the_client_s_tokenizer(tmp_path: Path) -> None:
    folder, basis = RunFolder(tmp_path), _basis(1)
    _write(folder, basis, 0, _of_text(0, "The sea"))
    counted, unknown = (recover(folder, basis, count).result.records[0] for count in (len, None))
    assert (counted.output_tokens, unknown.output_tokens) == (7, None)


@pytest.mark.parametrize(
    ("ended", "ran_out"),
    [((Ended(_REQUESTS),), True), ((Ended(_REQUESTS, "it was stopped"),), False), ((), False)],
)
def test_only_of_workers_that_ended_by_themselves_it_is_known_that_users_had_nothing_to_send(
    tmp_path: Path, ended: tuple[Ended, ...], ran_out: bool
) -> None:
    folder, basis = RunFolder(tmp_path), _closed_basis(1, 1, 100_000)
    assert isinstance(basis.schedule.times, ClosedTimes)
    exchanges = _as_users(basis.schedule.part_of_users(basis.schedule.times, 0, 1), [100] * _REQUESTS)
    _write(folder, basis, 0, *exchanges, *ended)
    assert recover(folder, basis, None).result.ran_out is ran_out


def test_users_of_a_worker_that_was_stopped_took_no_more_than_it_sent(tmp_path: Path) -> None:
    folder, basis = RunFolder(tmp_path), _closed_basis(1, 2, None)
    assert isinstance(basis.schedule.times, ClosedTimes)
    exchanges = _as_users(basis.schedule.part_of_users(basis.schedule.times, 0, 1), [100] * 4)
    _write(folder, basis, 0, *exchanges, Ended(5, "it was stopped"))
    assert _outcomes(recover(folder, basis, None)) == [Outcome.DONE] * 4 + [Outcome.NOT_SENT]


def test_a_run_that_was_cut_before_any_exchange_ended_has_journals_and_no_duration(tmp_path: Path) -> None:
    folder, basis = RunFolder(tmp_path), _basis(3)
    for worker in range(2):
        _write(folder, basis, worker)
    recovered = recover(folder, basis, None)
    assert recovered.result.duration_s == 0.0
    assert recovered.evidence == Recovered(scheduled=12, written_down=0, lost=12, not_sent=0, journals=2, torn_bytes=0)
