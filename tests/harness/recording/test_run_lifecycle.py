"""The files of a run, from before its first request to after its last record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench_records.manifest import LoadFacts, Manifest, RunState, WarmUp
from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolder
from harness.clients.triton.grpc import TritonGrpcClient, TritonModel
from harness.errors import RunError
from harness.recording import run_lifecycle
from harness.recording.run_lifecycle import delete_journals, finish_run, open_run
from harness.recording.run_result import RuleEnd, RunResult
from harness.recording.schedule_file import RecordingBasis, read_basis
from harness.recording.schedule_summary import summarise_schedule
from workloads.elements.request import Request
from workloads.schedule.schedule import Schedule

_MANIFEST = Manifest(
    options={"num_requests": None, "seed": 7},
    load=LoadFacts(mode="closed", prepared=9, ran_out=False),
    warm_up=WarmUp(requests=4),
)
_RECORD = Record(0, Outcome.DONE, 0, requested_output_tokens=4, sent_ns=0, done_ns=5)


def _basis() -> RecordingBasis:
    model = TritonModel("m", True, frozenset(), frozenset(), ())
    schedule = Schedule((Request(output_tokens=4),), (0,), seed=0)
    return RecordingBasis("1" * 32, summarise_schedule(schedule), TritonGrpcClient("h:1", model, streaming=True), 1, None)


def _result(**changes: Any) -> RunResult:
    known: dict[str, Any] = {
        "records": (_RECORD,), "started_at": None, "duration_s": 2.5, "interrupted": True, "warm_up_failures": ("slow",),
    }  # fmt: skip
    return RunResult(**(known | changes))


def _state(folder: RunFolder) -> RunState:
    return folder.read_manifest().state


def _names(folder: RunFolder) -> set[str]:
    return {path.name for path in folder.path.iterdir()}


def _interrupted_after(_done: object) -> None:
    raise KeyboardInterrupt


# ---- before the first request


def test_a_run_that_was_opened_is_running_and_can_be_recovered(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with open_run(folder, _MANIFEST, _basis()):
        assert folder.read_manifest() == replace(_MANIFEST, state=RunState.RUNNING)
        assert read_basis(folder.schedule).schedule == _basis().schedule
    assert _names(folder) == {"run.json", "schedule.bin"}
    assert _state(folder) is RunState.RUNNING


def test_a_run_that_failed_before_any_journal_was_not_started(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(KeyboardInterrupt), open_run(folder, _MANIFEST, _basis()):
        raise KeyboardInterrupt
    assert folder.read_manifest() == replace(_MANIFEST, state=RunState.NOT_STARTED)
    assert _names(folder) == {"run.json"}


def test_a_run_that_failed_without_its_schedule_was_not_started_either(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(KeyboardInterrupt), open_run(folder, _MANIFEST, _basis()):
        _interrupted_after(folder.schedule.unlink())
    assert _state(folder) is RunState.NOT_STARTED


@pytest.mark.parametrize("written", ["journal-0.bin", "requests.parquet"])
def test_a_run_that_failed_after_it_wrote_something_keeps_it(tmp_path: Path, written: str) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(KeyboardInterrupt), open_run(folder, _MANIFEST, _basis()):
        _interrupted_after((tmp_path / written).write_bytes(b"1"))
    assert _state(folder) is RunState.RUNNING
    assert _names(folder) == {"run.json", "schedule.bin", written}


def test_a_folder_that_cannot_be_written_to_is_named_and_nothing_was_sent(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.manifest.mkdir()  # run.json cannot replace it
    with pytest.raises(RunError) as raised, open_run(folder, _MANIFEST, _basis()):
        pytest.fail("the run began")
    assert str(raised.value) == f"{tmp_path} cannot be written to (Is a directory); nothing was sent"
    assert not folder.schedule.exists()


def test_a_folder_that_does_not_exist_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="No such file"), open_run(RunFolder(tmp_path / "none"), _MANIFEST, _basis()):
        pytest.fail("the run began")


# ---- after the last record


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_tokyo")
def test_a_finished_run_has_records_and_no_journals(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    started_at = datetime(2026, 11, 22, 3, 0, tzinfo=timezone(timedelta(hours=2)))
    with open_run(folder, _MANIFEST, _basis()):
        folder.journal(0).write_bytes(b"1")
        folder.journal(1).write_bytes(b"2")
        finish_run(folder, _MANIFEST, _result(started_at=started_at, problem="the disk is full"))
    assert _names(folder) == {"run.json", "requests.parquet"}
    assert folder.read_requests()["index"].to_pylist() == [0]
    assert folder.read_manifest() == replace(
        _MANIFEST,
        state=RunState.DONE,
        started_at=datetime(2026, 11, 22, 1, 0, tzinfo=UTC).isoformat(),
        duration_s=2.5,
        interrupted=True,
        problem="the disk is full",
        warm_up=WarmUp(requests=4, failures=("slow",)),
    )


def test_when_a_recovered_run_started_may_be_unknown(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    finish_run(folder, _MANIFEST, _result())
    assert folder.read_manifest().started_at is None


@pytest.mark.parametrize(
    ("known", "found", "requested", "ran_out"),
    [
        (False, False, None, False),
        (False, True, None, True),
        (True, False, 9, True),
        (False, True, 9, False),  # as many were prepared as were requested
        (False, True, 10, True),  # fewer were
        (False, False, 10, False),
    ],
)
def test_requests_ran_out_unless_no_more_were_asked_for(
    tmp_path: Path, known: bool, found: bool, requested: int | None, ran_out: bool
) -> None:
    folder = RunFolder(tmp_path)
    manifest = replace(_MANIFEST, options={"num_requests": requested}, load=LoadFacts(mode="closed", prepared=9, ran_out=known))
    finish_run(folder, manifest, _result(ran_out=found))
    assert folder.read_manifest().load == LoadFacts(mode="closed", prepared=9, ran_out=ran_out)
    finish_run(folder, manifest, _result(ran_out=found, rule_end=RuleEnd(1, "it was precise")))
    assert folder.read_manifest().load == LoadFacts(mode="closed", prepared=9, ran_out=False)


def test_a_run_that_was_read_as_running_is_done_with_its_records(tmp_path: Path) -> None:
    """As ``bench recover`` finds it."""
    folder = RunFolder(tmp_path)
    finish_run(folder, replace(_MANIFEST, state=RunState.RUNNING), _result())
    assert folder.read_manifest().state is RunState.DONE


def test_records_that_cannot_be_written_leave_the_journals_and_a_way_to_recover_them(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.journal(0).write_bytes(b"1")
    folder.requests.mkdir()
    with pytest.raises(RunError) as raised:
        finish_run(folder, _MANIFEST, _result())
    assert str(raised.value) == (
        f"the run took place, but its records cannot be written to {tmp_path} (Is a directory). Its journals are kept there: "
        f"make room, then run: bench recover {tmp_path}"
    )
    assert folder.journal(0).exists()


def test_an_error_without_a_number_is_told_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("the writer gave up")

    monkeypatch.setattr(run_lifecycle, "write_table", broken)
    with pytest.raises(RunError, match=r"\(the writer gave up\)"):
        finish_run(RunFolder(tmp_path), _MANIFEST, _result())


def test_deleting_journals_leaves_all_else_and_needs_none(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_manifest(_MANIFEST)
    delete_journals(folder)
    folder.journal(3).write_bytes(b"1")
    folder.schedule.write_bytes(b"1")
    delete_journals(folder)
    assert _names(folder) == {"run.json"}
