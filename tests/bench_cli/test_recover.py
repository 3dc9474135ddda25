"""``bench recover`` on the folder of a cut run: a copy of a real run's folder, made before its records were written."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_cli.measurement.measure import measure  # noqa: F401  loads what a measurement needs before any is timed
from bench_errors import ExitStatus
from bench_records.folder_lock import shared_lock
from bench_records.run_folder import RunFolder
from harness.journal.frames import framed
from harness.recording import run_lifecycle
from tests.harness.scripted_server import ScriptedServer

_NORMAL = ["--input_mean", "4", "--input_stdev", "1", "--output_mean", "5", "--output_stdev", "0", "--vocab_size", "100"]
_TARGET = ["--model", "scripted", "--warmup_requests", "1", "--num_requests", "12", "--workers", "2"]


_NEEDED = {"run.json", "schedule.bin", "journal-0.bin", "journal-1.bin"}


@pytest.fixture(scope="module")
def whole_and_cut(server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One run's folder twice: complete, and as it was before its records were written."""
    parent = tmp_path_factory.mktemp("runs")
    whole, cut = parent / "whole", parent / "cut"
    write_table = run_lifecycle.write_table

    def copy_first(records: Any, path: Path) -> None:
        shutil.copytree(whole, cut)
        write_table(records, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_lifecycle, "write_table", copy_first)
        run(["token_norm_dist", "--url", server.address, "--run_dir", str(whole), *_NORMAL, *_TARGET])
    return whole, cut


@pytest.fixture
def cut(whole_and_cut: tuple[Path, Path], tmp_path: Path) -> Iterator[Path]:
    """The folder of a run that was killed after its last response: no request is lost."""
    return shutil.copytree(whole_and_cut[1], tmp_path / "run")


def _rows(folder: Path) -> list[dict[str, Any]]:
    return RunFolder(folder).read_requests().to_pylist()


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_folder_of_a_running_run_contains_all_that_recovery_needs(cut: Path) -> None:
    assert _names(cut) >= _NEEDED
    assert json.loads((cut / "run.json").read_text())["state"] == "running"


def test_recovered_run_is_the_run(whole_and_cut: tuple[Path, Path], cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = whole_and_cut[0]
    assert run(["recover", str(cut)]) in (ExitStatus.VALID, ExitStatus.INVALID)
    assert _rows(cut) == _rows(whole)
    assert _names(cut) == _names(whole)
    assert not [path for path in (cut, *cut.iterdir()) if path.stat().st_mode & 0o077]  # the user's alone, as the run was
    manifests = [RunFolder(folder).read_document()[0] for folder in (whole, cut)]
    assert manifests[0].pop("recovered") is None
    evidence = {"scheduled": 12, "written_down": 12, "lost": 0, "not_sent": 0, "journals": 2, "torn_bytes": 0}
    assert manifests[1].pop("recovered") == evidence
    for manifest in manifests:
        assert manifest.pop("duration_s") > 0
        manifest["workload"].pop("repeated_prefix", None)
        manifest.pop("times", None)  # of the command that was cut
        for only_known_at_its_end in (
            "connections",
            "clock",
            "machine_use",
            "server_statistics",
            "telemetry",
            "server_began_at",
        ):
            manifest.pop(only_known_at_its_end)
    started = [datetime.fromisoformat(manifest.pop("started_at")) for manifest in manifests]
    assert abs(started[0] - started[1]) < timedelta(milliseconds=100)  # one is computed by a worker, one by the parent
    assert manifests[0] == manifests[1]
    shown = capsys.readouterr()
    assert "Written down in 2 journals: 12 of 12 requests; lost: 0; not sent: 0." in shown.err
    assert "Recovered after a crash: measure again before you compare" in shown.out
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (whole, cut)]
    assert summaries[0]["requests"] == summaries[1]["requests"]
    assert summaries[0]["requests"]["done"] == 12


def test_torn_record_is_reported_and_its_request_is_lost(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = cut / "journal-1.bin"
    journal.write_bytes(journal.read_bytes()[:-100])
    assert run(["recover", str(cut)]) == ExitStatus.INVALID  # one of twelve is more than one in a hundred
    assert "bytes of the journals belong to records that are torn or damaged" in capsys.readouterr().err
    assert [row["outcome"] for row in _rows(cut)].count("lost") >= 1
    findings = {finding["code"]: finding for finding in json.loads((cut / "summary.json").read_text())["findings"]}
    assert findings["recovered"]["severity"] == "warning"
    assert findings["recovered"]["evidence"]["torn_bytes"] > 0
    gate = ["report", str(cut), "--fail_if", "p99_ttft>60s"]
    assert run(gate) == ExitStatus.INVALID
    printed = capsys.readouterr()
    assert "The run is not valid, so no --fail_if is decided" in printed.err
    assert "counts as passed" not in printed.err
    assert run([*gate, "--undecided", "fail"]) == ExitStatus.FAILED


def test_a_damaged_record_costs_its_request_and_those_after_it_are_read(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = cut / "journal-1.bin"
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 1
    journal.write_bytes(data)
    run(["recover", str(cut)])
    assert "Written down in 2 journals: 11 of 12 requests; lost: 1; not sent: 0." in capsys.readouterr().err
    (lost,) = [row for row in _rows(cut) if row["outcome"] == "lost"]
    assert lost["error"] == "a part of its worker's journal is damaged; whether the request was sent is unknown"


@pytest.mark.parametrize("name", ["samples-0.bin", "scrapes-0.bin"])
def test_damaged_observations_are_lost_and_the_records_are_not(
    cut: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (cut / name).write_bytes(framed(b"\xc0" * 40))
    assert run(["recover", str(cut)]) in (ExitStatus.VALID, ExitStatus.INVALID)
    assert (
        f"The observations of client and server cannot be written, and are lost: {cut / name} holds no"
        in capsys.readouterr().err
    )
    assert len(_rows(cut)) == 12


def test_report_of_a_cut_run_names_the_remedy(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _names(cut)
    assert run(["report", str(cut)]) == ExitStatus.USAGE
    assert f"'bench recover {cut}' makes its records from its journals" in capsys.readouterr().err
    assert _names(cut) == before


def _refused(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    before = {path: path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else {}
    assert run(["recover", str(folder), *options]) == ExitStatus.USAGE
    assert {path: path.read_bytes() for path in before} == before
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith("Error: ")
    return message


def test_whole_run_is_refused(whole_and_cut: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(whole_and_cut[0], tmp_path / "run")
    assert f"{folder} is whole already; 'bench report {folder}' renders it" in _refused(folder, capsys)


def test_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not a run folder" in _refused(tmp_path, capsys)
    assert "is not a run folder" in _refused(tmp_path / "nosuch", capsys)


def test_manifest_of_another_schema_is_refused(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cut / "run.json").write_text(json.dumps({"schema": 99, "state": "running"}))
    assert "is not a manifest of schema 1" in _refused(cut, capsys)


@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_damaged_schedule_is_refused_and_named(cut: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    schedule = cut / "schedule.bin"
    content = schedule.read_bytes()
    schedule.unlink()
    if damage == "cut":
        schedule.write_bytes(content[:-1])
    assert str(schedule) in _refused(cut, capsys)


def test_a_schedule_of_another_run_is_refused(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads((cut / "run.json").read_text())
    assert len(manifest["run_id"]) == 32
    (cut / "run.json").write_text(json.dumps(manifest | {"run_id": "f" * 32}))
    assert f"{cut / 'schedule.bin'} belongs to another run than {cut / 'run.json'}" in _refused(cut, capsys)


def test_run_without_journals_is_refused(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for journal in cut.glob("journal-*.bin"):
        journal.unlink()
    assert "holds no journals: the run was cut before its first request was sent" in _refused(cut, capsys)


def test_run_in_progress_is_refused(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with shared_lock(cut):  # as a worker holds it
        assert "a process of this run is still at work" in _refused(cut, capsys)


def test_recovery_that_is_interrupted_can_be_repeated(cut: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = set()
    for name, where in (("write_table", run_lifecycle), ("delete_journals", run_lifecycle)):
        original = getattr(where, name)

        def interrupted(*arguments: Any, original: Any = original) -> None:
            os.kill(os.getpid(), signal.SIGKILL)
            original(*arguments)

        child = os.fork()
        if not child:
            monkeypatch.setattr(where, name, interrupted)
            run(["recover", str(cut)])
            os._exit(0)  # never: the kill comes first
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        expected.add(len(list(cut.glob("journal-*.bin"))))
    assert expected == {2}  # no journal was deleted by then
    assert run(["recover", str(cut)]) in (ExitStatus.VALID, ExitStatus.INVALID)
    assert len(_rows(cut)) == 12
    assert "report.html" in _names(cut)
    assert not list(cut.glob("*.bin"))


def test_full_disk_while_recovering_leaves_everything(
    cut: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_lifecycle, "write_table", full)
    assert run(["recover", str(cut)]) == ExitStatus.FAILED
    message = capsys.readouterr().err.splitlines()[-1]
    assert "No space left on device" in message
    assert f"make room, then run: bench recover {cut}" in message
    assert _names(cut) >= _NEEDED
    assert "requests.parquet" not in _names(cut)


# ---- tokens counted by the client


@pytest.fixture
def cut_text(server: ScriptedServer, tmp_path: Path) -> Path:
    """A cut run of a model whose answers have text and no token counts."""
    dataset, whole, cut = tmp_path / "prompts.json", tmp_path / "whole", tmp_path / "cut"
    dataset.write_text(json.dumps([{"input": "one", "instruction": "two", "output": "three four"}] * 3))
    tokenizer = shutil.copytree(_demo_tokenizer(), tmp_path / "tokenizer")
    write_table = run_lifecycle.write_table

    def copy_first(records: Any, path: Path) -> None:
        shutil.copytree(whole, cut)
        write_table(records, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_lifecycle, "write_table", copy_first)
        options = ["--dataset", str(dataset), "--tokenizer_dir", str(tokenizer), "--warmup_requests", "0"]
        run(["dataset", "--url", server.address, "--model", "uncounted", "--run_dir", str(whole), *options])
    return cut


def _demo_tokenizer() -> Path:
    from serving.engines.openvino.folder import DEMO_ENGINE_DIR

    return DEMO_ENGINE_DIR


def test_text_is_counted_with_the_tokenizer_of_the_run(cut_text: Path) -> None:
    run(["recover", str(cut_text)])
    rows = _rows(cut_text)
    assert rows == _rows(cut_text.parent / "whole")
    assert {row["output_tokens_source"] for row in rows} == {"text"}


def test_missing_tokenizer_is_named_and_another_folder_can_be_given(cut_text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = (cut_text.parent / "tokenizer").rename(cut_text.parent / "moved")
    assert "name it with --tokenizer_dir" in _refused(cut_text, capsys)
    run(["recover", str(cut_text), "--tokenizer_dir", str(moved)])
    assert _rows(cut_text) == _rows(cut_text.parent / "whole")
