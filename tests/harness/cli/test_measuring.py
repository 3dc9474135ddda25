"""Whole measurements from the command line against a server that follows a script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.cli import run
from harness.cli.exit_status import ExitStatus
from harness.cli.measuring import measure  # noqa: F401  loads what a measurement needs before any is timed
from harness.journal import JournalReader
from harness.records.run_folder import RunFolder
from tests.harness.scripted_server import ScriptedServer, scripted_server

_NORMAL = ["--input_mean", "4", "--input_stdev", "1", "--output_mean", "5", "--output_stdev", "0", "--vocab_size", "100"]


def _measure(server: ScriptedServer, folder: Path, *options: str, verb: str = "token_norm_dist") -> int:
    own = _NORMAL if verb == "token_norm_dist" else []
    return run([verb, "--url", server.address, "--run_dir", str(folder), "--warmup_requests", "1", *own, *options])


def _summary(folder: Path) -> Any:
    return json.loads((folder / "summary.json").read_text())


def test_run_that_succeeds_writes_its_files_and_exits_by_its_validity(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = _measure(server, tmp_path, "--model", "scripted", "--num_requests", "20", "--request_rate", "200")
    summary = _summary(tmp_path)
    assert status == (ExitStatus.VALID if summary["validity"] == "valid" else ExitStatus.INVALID)
    assert summary["requests"] == {"scheduled": 20, "done": 20, "failed": 0, "by_kind": {}} | {
        key: summary["requests"][key] for key in summary["requests"] if key not in ("scheduled", "done", "failed")
    }
    manifest = RunFolder(tmp_path).read_manifest()
    assert manifest["schedule"]["digest"] == summary["schedule"]["digest"]
    assert (manifest["target"]["model"], manifest["target"]["streaming"], manifest["interrupted"]) == ("scripted", True, False)
    assert RunFolder(tmp_path).read_requests().column("output_tokens").to_pylist() == [5] * 20
    assert RunFolder(tmp_path).journals() == []  # only once the table is safe are they given up
    assert str(tmp_path) in capsys.readouterr().out


def test_report_renders_the_same_numbers_again(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = _measure(server, tmp_path, "--model", "scripted", "--num_requests", "10")
    shown, summary = capsys.readouterr().out, _summary(tmp_path)
    (tmp_path / "summary.json").unlink()
    assert run(["report", str(tmp_path)]) == status
    assert capsys.readouterr().out == shown
    assert _summary(tmp_path) == summary


def test_text_model_is_driven_with_a_datasets_prompts(server: ScriptedServer, tmp_path: Path) -> None:
    dataset = tmp_path / "prompts.json"
    dataset.write_text(json.dumps([{"input": "one", "instruction": "two", "output": "three four five six"}] * 3))
    folder = tmp_path / "run"
    _measure(server, folder, "--model", "text", "--dataset", str(dataset), verb="dataset")
    rows = RunFolder(folder).read_requests().to_pylist()
    assert [row["requested_output_tokens"] for row in rows] == [5, 5, 5]  # 4 words · 1.3
    assert [(row["outcome"], row["output_tokens"], row["output_tokens_source"]) for row in rows] == [("done", 5, "server")] * 3


def test_waits_for_the_servers_limit_of_streams_are_in_the_manifest(tmp_path: Path) -> None:
    traffic = ("--model", "scripted", "--num_requests", "30", "--workers", "1", "--warmup_requests", "12")
    with scripted_server(tmp_path / "log", 4) as limited:
        _measure(limited, tmp_path / "fixed", *traffic, "--connections", "2")
        _measure(limited, tmp_path / "grown", *traffic)
    fixed, grown = (RunFolder(tmp_path / name).read_manifest()["connections"] for name in ("fixed", "grown"))
    assert (fixed["per_worker"], fixed["opened"], fixed["workers_told"]) == (2, 2, 1)
    assert 0 < fixed["limit_reached"] <= 30 - 2 * 4
    assert 0 < fixed["longest_wait_ms"] <= fixed["total_wait_ms"] <= fixed["limit_reached"] * fixed["longest_wait_ms"]
    assert grown["per_worker"] == 1
    assert grown["opened"] > 1
    assert all(_summary(tmp_path / name)["requests"]["done"] == 30 for name in ("fixed", "grown"))


def test_failing_requests_make_the_run_fail_and_are_kept(server: ScriptedServer, tmp_path: Path) -> None:
    status = _measure(server, tmp_path, "--model", "failing", "--num_requests", "6", "--warmup_requests", "0")
    assert status == ExitStatus.FAILED
    requests = _summary(tmp_path)["requests"]
    assert (requests["scheduled"], requests["done"], requests["failed"]) == (6, 0, 6)
    assert requests["by_kind"]["server_error"] == 6


def test_warm_up_that_fails_altogether_fails_the_run(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _measure(server, tmp_path, "--model", "failing", "--num_requests", "6") == ExitStatus.FAILED
    assert "Error: every warm-up request failed; the first said: the script says so" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "nosuch"], "--model nosuch"),
        (["--model", "unary", "--streaming"], "--streaming: the model unary is not decoupled"),
        (["--model", "scripted", "--tokenizer_dir", "/nosuch"], "--tokenizer_dir: /nosuch is not a folder"),
    ],
)
def test_target_that_cannot_be_used_as_asked(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert _measure(server, tmp_path, *options) == ExitStatus.FAILED
    assert f"Error: {message}" in capsys.readouterr().err


def test_core_model_with_text_prompts_and_no_tokenizer_says_what_to_give(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _measure(server, tmp_path, "--model", "scripted", verb="dataset") == ExitStatus.USAGE
    assert "--tokenizer_dir" in capsys.readouterr().err


def test_text_model_with_random_tokens_and_no_tokenizer_says_what_to_give(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _measure(server, tmp_path, "--model", "text") == ExitStatus.USAGE
    assert "--tokenizer_dir" in capsys.readouterr().err


def test_vocabulary_beyond_int32_is_a_usage_error(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = _measure(server, tmp_path, "--model", "scripted", "--vocab_size", str(2**40), "--num_requests", "5")
    assert status == ExitStatus.USAGE
    assert "--vocab_size" in capsys.readouterr().err


def test_same_seed_gives_the_same_digest_whatever_the_workers(server: ScriptedServer, tmp_path: Path) -> None:
    options = ["--model", "scripted", "--num_requests", "8", "--seed", "5", "--request_rate", "500"]
    for workers in ("1", "2"):
        _measure(server, tmp_path / workers, *options, "--workers", workers)
    assert _summary(tmp_path / "1")["schedule"] == _summary(tmp_path / "2")["schedule"]


def test_reference_that_is_not_reached_fails_the_run(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = tmp_path / "reference.json"
    reference.write_text(json.dumps({"key": {"Requests/Sec": 1e9}}))
    options = ["--check_perf_json", str(reference), "--check_perf_key", "key"]
    status = _measure(server, tmp_path / "run", "--model", "scripted", "--num_requests", "5", *options)
    assert status == ExitStatus.FAILED
    assert "FAIL  Requests/Sec" in capsys.readouterr().out


def test_interrupted_program_keeps_what_it_has_and_says_130(server: ScriptedServer, tmp_path: Path) -> None:
    target = ["--url", server.address, "--model", "scripted", "--run_dir", str(tmp_path)]
    traffic = [*_NORMAL, "--request_rate", "100", "--num_requests", "5000"]
    program = subprocess.Popen(
        [Path(sys.executable).parent / "bench", "token_norm_dist", *target, *traffic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    reader = JournalReader(tmp_path / "journal-0.bin")
    done = 0
    while done < 10 and program.poll() is None:
        done += sum(1 for _ in reader.read_new())
    os.killpg(program.pid, signal.SIGINT)
    out, err = program.communicate(timeout=30)
    assert program.returncode == ExitStatus.INTERRUPTED
    assert "Traceback" not in err
    assert RunFolder(tmp_path).read_manifest()["interrupted"] is True
    requests = _summary(tmp_path)["requests"]
    assert requests["scheduled"] == 5000
    assert requests["done"] >= 10
    assert requests["done"] + requests["by_kind"]["not_sent"] == 5000
    assert str(tmp_path) in out
