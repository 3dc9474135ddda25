"""Whole measurements from the command line against a server that follows a script."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from bench_cli import run
from bench_cli.measurement.measure import status_of  # loads what a measurement needs before any is timed, too
from bench_errors import ExitStatus
from bench_records.manifest import RunState
from bench_records.record import Outcome
from bench_records.run_folder import RunFolder
from harness.clients.transport.http2_pool import DEFAULT_LIMITS
from harness.journal.worker_journal import JournalReader
from harness.recording.run_result import RunResult
from reports.metrics.configuration import configured_load
from tests.harness.scripted_server import ScriptedServer, scripted_server
from workloads.table.workload import Workload, WorkloadFacts

if TYPE_CHECKING:
    from bench_records.record import Record
    from reports.run_report import RunReport

_TOKENIZER = Path(__file__).parents[3] / "serving" / "demo_engine"

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
    manifest = RunFolder(tmp_path).read_document()[0]
    assert manifest["schedule"]["digest"] == summary["schedule"]["digest"]
    assert (manifest["target"]["model"], manifest["target"]["streaming"], manifest["interrupted"]) == ("scripted", True, False)
    assert RunFolder(tmp_path).read_requests().column("output_tokens").to_pylist() == [5] * 20
    assert RunFolder(tmp_path).journals() == []  # they are deleted after the table is written
    assert str(tmp_path) in capsys.readouterr().out


def test_a_run_that_stop_if_ended_is_whole_and_shorter(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = ("--rate_profile", "stages:200/s*20s,400/s*20s")
    rule = ("--model", "scripted", "--num_requests", "5000", *profile, "--stop_if", "p99_e2e>0.001ms")
    assert _measure(server, tmp_path, *rule) in (ExitStatus.VALID, ExitStatus.INVALID)
    assert "Ended by --stop_if p99_e2e>0.001ms: " in capsys.readouterr().err
    manifest = RunFolder(tmp_path).read_manifest()
    assert manifest.early_end is not None
    assert (manifest.interrupted, manifest.early_end.planned, manifest.early_end.gave_up) == (False, 5_000, True)
    assert manifest.load is not None
    assert [stage.end_s for stage in manifest.load.stages or ()] == [manifest.early_end.at_s]
    assert 51 <= manifest.early_end.requests == RunFolder(tmp_path).read_requests().num_rows < 1_000
    assert _summary(tmp_path)["requests"]["not_sent"] == 0


def test_stop_if_needs_a_planned_number_and_streamed_answers_for_token_times(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_the_clock = ("--concurrency", "2", "--duration", "3", "--stop_if", "p99_e2e>1ms")
    assert _measure(server, tmp_path / "a", "--model", "scripted", *by_the_clock) == ExitStatus.USAGE
    assert "give --num_requests instead of --duration" in capsys.readouterr().err.replace("\n", " ")
    assert _measure(server, tmp_path / "b", "--model", "unary", "--stop_if", "p99_ttft>1ms") == ExitStatus.USAGE
    assert "needs streamed answers" in capsys.readouterr().err


def test_a_run_ends_when_it_is_precise_or_says_that_its_bound_was_reached(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    until = ("--model", "scripted", "--until", "mean_e2e+-5%")
    assert _measure(server, tmp_path / "a", *until, "--num_requests", "20") in (ExitStatus.VALID, ExitStatus.INVALID)
    assert "Bound reached: mean_e2e±5% was not reached by 20 requests, and it has no interval." in capsys.readouterr().err
    assert _measure(server, tmp_path / "b", "--model", "unary", "--until", "p99_ttft±5%") == ExitStatus.USAGE

    monkeypatch.setattr("reports.metrics.precision.FIRST_LOOK", 20)  # a busy machine has no interval at all
    monkeypatch.setattr("reports.metrics.precision.FEWEST", 20)
    monkeypatch.setattr("bench_cli.measurement.precision_rule.half_width", lambda _: 0.04)
    monkeypatch.setattr("reports.metrics.precision.half_width", lambda _: 0.04)
    _measure(server, tmp_path / "c", *until, "--num_requests", "3000", "--request_rate", "100")
    shown = capsys.readouterr().err
    assert "Ended by --until mean_e2e±5%: mean_e2e is " in shown
    assert "± 4.0 % by the first " in shown
    end = RunFolder(tmp_path / "c").read_manifest().early_end
    assert end is not None
    assert (end.gave_up, end.planned) == (False, 3_000)
    assert 40 <= end.requests < 2_500


def test_report_renders_the_same_numbers_again(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = _measure(server, tmp_path, "--model", "scripted", "--num_requests", "10")
    shown, summary = capsys.readouterr().out, _summary(tmp_path)
    (tmp_path / "summary.json").unlink()
    assert run(["report", str(tmp_path)]) == status
    assert capsys.readouterr().out == shown
    assert _summary(tmp_path) == summary


def test_objectives_give_goodput_and_a_report_may_use_others(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _measure(
        server, tmp_path, "--model", "scripted", "--num_requests", "10", "--slo", "ttft_ms<=6e4", "--slo", "tpot_ms<=60000"
    )
    assert RunFolder(tmp_path).read_document()[0]["options"]["slo"] == ["ttft<=60000ms", "tpot<=60000ms"]
    metrics = _summary(tmp_path)["metrics"]
    assert metrics["attainment"]["value"] == 1.0
    assert metrics["goodput"]["value"] == metrics["request_throughput"]["value"]
    assert "Objectives: ttft<=60000ms and tpot<=60000ms." in capsys.readouterr().out
    run(["report", str(tmp_path), "--slo", "e2e_ms<=0.000001"])
    assert _summary(tmp_path)["metrics"]["goodput"]["value"] == 0.0
    run(["report", str(tmp_path)])
    assert _summary(tmp_path)["metrics"] == metrics


def test_objective_of_token_times_is_refused_without_streaming(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _measure(server, tmp_path / "a", "--model", "unary", "--slo", "ttft_ms<=200") == ExitStatus.USAGE
    assert "--slo ttft<=200ms needs streamed answers" in capsys.readouterr().err
    _measure(server, tmp_path / "b", "--model", "unary", "--num_requests", "2", "--slo", "e2e_ms<=60000")
    assert _summary(tmp_path / "b")["metrics"]["attainment"]["value"] == 1.0
    assert run(["report", str(tmp_path / "b"), "--slo", "tpot_ms<=1"]) == ExitStatus.USAGE


@pytest.mark.parametrize("criterion", [("--fail_if", "goodput<5"), ("--slo", "attainment>=90%")])
def test_goodput_is_no_requirement_without_an_objective(
    server: ScriptedServer, tmp_path: Path, criterion: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--model", "scripted", "--num_requests", "5", "--class", "a:slo=e2e<=60s")
    assert _measure(server, tmp_path / "a", *options, *criterion) == ExitStatus.USAGE
    assert f"{criterion[0]} {criterion[1]} needs an objective of each request" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "a").exists()
    _measure(server, tmp_path / "b", *options, *criterion, "--slo", "e2e<=60s")
    assert run(["report", str(tmp_path / "b"), *criterion]) == ExitStatus.USAGE
    assert _summary(tmp_path / "b")["gates"][0]["value"] is not None


def test_text_model_is_driven_with_a_datasets_prompts(server: ScriptedServer, tmp_path: Path) -> None:
    dataset = tmp_path / "prompts.json"
    dataset.write_text(json.dumps([{"input": "one", "instruction": "two", "output": "three four five six"}] * 3))
    folder = tmp_path / "run"
    _measure(server, folder, "--model", "text", "--dataset", str(dataset), verb="dataset")
    rows = RunFolder(folder).read_requests().to_pylist()
    assert [row["requested_output_tokens"] for row in rows] == [5, 5, 5]  # 4 words · 1.3
    assert [(row["outcome"], row["output_tokens"], row["output_tokens_source"]) for row in rows] == [("done", 5, "server")] * 3


def test_rows_that_cannot_be_read_and_lengths_that_a_dataset_lacks_are_reported_and_recorded(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = tmp_path / "prompts.jsonl"
    history = [{"role": "system", "content": "s"}]
    bodies = [{"messages": [*history, {"role": "user", "content": "a"}], "max_tokens": 5}, {"messages": 7}, None]
    dataset.write_text("\n".join(json.dumps(body) for body in bodies) + '\n{"messages": [{"role": "user", "content": "b"}]}')
    folder = tmp_path / "run"
    _measure(server, folder, "--model", "text", "--dataset", str(dataset), "--output_tokens", "3", verb="dataset")
    assert RunFolder(folder).read_requests()["requested_output_tokens"].to_pylist() == [5, 3]
    workload = RunFolder(folder).read_document()[0]["workload"]
    assert {name: workload[name] for name in ("format", "rejected_rows", "output_tokens", "without_history", "rows_read")} == {
        "format": "openai", "rejected_rows": 2, "output_tokens": 3, "without_history": 1, "rows_read": 2,
    }  # fmt: skip
    reported = capsys.readouterr().err
    assert 'prompts.jsonl: 2 rows were not read; for example line 2: "messages" must be a list' in reported
    assert "1 prompt has no output length in the dataset: 3 tokens are requested" in reported
    assert "1 prompt is sent without the messages that came before." in reported


def test_rows_without_text_beside_others_are_counted(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset, columns = tmp_path / "mixed.parquet", {"prompt": ["a", None, "b"], "input_tokens": [None, 5, None]}
    Workload.of_columns(WorkloadFacts("own", "mixed"), 3, columns | {"output_tokens": [2, 2, 2]}).write(dataset)
    _measure(server, tmp_path / "run", "--model", "text", "--dataset", str(dataset), verb="dataset")
    assert len(RunFolder(tmp_path / "run").read_requests()) == 2
    assert RunFolder(tmp_path / "run").read_document()[0]["workload"]["without_text"] == 1
    assert "has no text, and is not sent: row 2." in capsys.readouterr().err


def test_a_trace_of_lengths_is_sent_as_random_prompts_of_these_lengths(server: ScriptedServer, tmp_path: Path) -> None:
    trace, folder = tmp_path / "trace.csv", tmp_path / "run"
    rows = ((5, 2), (9, 3), (2, 4))
    lines = [f"2023-11-16 18:15:4{k},{row[0]},{row[1]}" for k, row in enumerate(rows)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    _measure(server, folder, "--model", "text", "--dataset", str(trace), "--tokenizer_dir", str(_TOKENIZER), verb="dataset")
    records = RunFolder(folder).read_requests()
    assert list(
        zip(records["requested_input_tokens"].to_pylist(), records["requested_output_tokens"].to_pylist(), strict=True)
    ) == [*rows]
    assert RunFolder(folder).read_document()[0]["workload"]["synthetic"] is True


def test_a_trace_is_replayed_at_its_own_times(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, folder = tmp_path / "trace.csv", tmp_path / "run"
    lines = [f"2023-11-16 18:15:4{k}.5,{k + 2},2" for k in (0, 1, 2, 4)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    options = ("--model", "text", "--tokenizer_dir", str(_TOKENIZER))
    _measure(server, folder, *options, str(trace), "--speed", "10", verb="trace")
    records = RunFolder(folder).read_requests()
    assert records["scheduled_ns"].to_pylist() == [0, 100_000_000, 200_000_000, 400_000_000]
    assert records["requested_input_tokens"].to_pylist() == [2, 3, 4, 6]
    manifest = RunFolder(folder).read_document()[0]
    assert manifest["load"]["own_arrivals"] is True
    assert manifest["arrivals"] == "the trace's own arrivals, 7.5 requests/s"
    assert configured_load(RunFolder(folder).read_manifest()).rate_per_s is None
    _measure(server, tmp_path / "at_rate", *options, str(trace), "--request_rate", "30", "--max_input_len", "4", verb="trace")
    rated = RunFolder(tmp_path / "at_rate").read_requests()
    assert rated["scheduled_ns"].to_pylist() == [0, 33_333_333, 66_666_667]  # of those that are sent
    assert "Dropped 1 prompt that is too long" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--speed", "2", "--request_rate", "3"), "both scale"),
        (("--burstiness", "2"), "--burstiness belongs to a law of arrivals"),
        (("--request_rate", "-1"), "stretched to a rate above 0"),
        (("--concurrency", "2", "--speed", "3"), "--speed cannot be combined with --concurrency"),
        (("--concurrency", "2", "--spread_ticks"), "--spread_ticks cannot be combined with --concurrency"),
    ],
)
def test_options_that_contradict_a_trace_are_refused(
    server: ScriptedServer, tmp_path: Path, options: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,2\n")
    assert _measure(server, tmp_path / "run", str(trace), *options, verb="trace") == ExitStatus.USAGE
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_users_send_a_trace_from_its_start_in_a_closed_loop(server: ScriptedServer, tmp_path: Path) -> None:
    trace, folder = tmp_path / "trace.csv", tmp_path / "run"
    lines = [f"2023-11-16 18:15:4{k},{k + 2},2" for k in (0, 1, 2)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    options = ("--model", "text", "--tokenizer_dir", str(_TOKENIZER), "--concurrency", "1", "--start", "1")
    _measure(server, folder, *options, str(trace), verb="trace")
    assert RunFolder(folder).read_requests()["requested_input_tokens"].to_pylist() == [3, 4]
    manifest = RunFolder(folder).read_document()[0]
    assert (manifest["load"]["mode"], manifest["workload"]["start"]) == ("closed", 1.0)
    assert manifest["load"]["own_arrivals"] is None


def test_a_trace_of_lengths_needs_a_vocabulary(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,2\n")
    assert _measure(server, tmp_path / "run", "--model", "text", "--dataset", str(trace), verb="dataset") == ExitStatus.USAGE
    assert "trace.csv has lengths but no prompts: give --tokenizer_dir" in capsys.readouterr().err


def test_a_dataset_with_fewer_prompts_than_num_requests_is_reported(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = tmp_path / "prompts.json"
    dataset.write_text(json.dumps([{"input": "one", "instruction": "two", "output": "three"}] * 3))
    _measure(server, tmp_path / "run", "--model", "text", "--dataset", str(dataset), "--num_requests", "5", verb="dataset")
    assert "--num_requests 5: there are only 3 prompts, which are all sent. --repeat_dataset" in capsys.readouterr().err


def test_requests_that_duration_cuts_off_are_no_missing_prompts(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--num_requests", "5", "--request_rate", "20", "--time_delay_dist", "constant", "--duration", "0.1")
    _measure(server, tmp_path / "run", "--model", "text", "--tokenizer_dir", str(_TOKENIZER), *options, verb="token_norm_dist")
    assert RunFolder(tmp_path / "run").read_requests().num_rows == 2
    assert "there are only" not in capsys.readouterr().err


def test_random_prompts_that_are_too_long_are_not_to_be_had_by_repeating_a_dataset(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", "text", "--tokenizer_dir", str(_TOKENIZER), "--num_requests", "9"]
    _measure(server, tmp_path / "run", *options, "--input_mean", "4", "--input_stdev", "2", "--max_input_len", "4")
    printed = capsys.readouterr().err
    assert "--num_requests 9: there are only 7 prompts" in printed
    assert "--repeat_dataset" not in printed


def test_a_dataset_is_sent_again_from_its_start_only_on_request(server: ScriptedServer, tmp_path: Path) -> None:
    dataset = tmp_path / "prompts.json"
    rows = [{"input": "", "instruction": f"prompt {k}", "output": "one " * (k + 1)} for k in range(3)]
    dataset.write_text(json.dumps(rows))
    options = ("--model", "text", "--dataset", str(dataset), "--op_tokens_per_word", "1", "--repeat_dataset")
    _measure(server, tmp_path / "run", *options, "--num_requests", "8", verb="dataset")
    folder = RunFolder(tmp_path / "run")
    assert folder.read_requests().column("requested_output_tokens").to_pylist() == [2, 3, 4, 2, 3, 4, 2, 3]
    workload = folder.read_document()[0]["workload"]
    assert workload["description"] == "8 prompts of prompts.json, repeated"
    assert workload["repeat_dataset"] is True


def test_how_often_a_dataset_is_repeated_must_be_known(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--model", "text", "--repeat_dataset", "--concurrency", "2", "--duration", "1")
    assert _measure(server, tmp_path / "run", *options, verb="dataset") == ExitStatus.USAGE
    assert "--repeat_dataset needs --num_requests" in capsys.readouterr().err


@pytest.mark.slow
def test_waits_for_the_servers_limit_of_streams_are_in_the_manifest(tmp_path: Path) -> None:
    traffic = ("--model", "paced", "--num_requests", "30", "--workers", "1", "--request_rate", "1000")  # 100 ms each
    with scripted_server(tmp_path / "log", 1) as limited:
        _measure(limited, tmp_path / "fixed", *traffic, "--connections", "2")
        _measure(limited, tmp_path / "grown", *traffic)
    fixed, grown = (RunFolder(tmp_path / name).read_document()[0]["connections"] for name in ("fixed", "grown"))
    assert (fixed["per_worker"], fixed["opened"], fixed["workers_told"]) == (2, 2, 1)
    assert 0 < fixed["limit_reached"] <= 30 - 2
    assert 0 < fixed["longest_wait_ms"] <= fixed["total_wait_ms"] <= fixed["limit_reached"] * fixed["longest_wait_ms"]
    assert grown["opened"] > grown["per_worker"] == DEFAULT_LIMITS.at_start
    assert all(_summary(tmp_path / name)["requests"]["done"] == 30 for name in ("fixed", "grown"))
    (finding,) = [found for found in _summary(tmp_path / "fixed")["findings"] if found["code"] == "connection_limit_reached"]
    assert finding["evidence"]["requests"] == fixed["limit_reached"]


def test_failing_requests_make_the_run_fail_and_are_recorded(server: ScriptedServer, tmp_path: Path) -> None:
    status = _measure(server, tmp_path, "--model", "failing", "--num_requests", "6", "--warmup_requests", "0")
    assert status == ExitStatus.FAILED
    requests = _summary(tmp_path)["requests"]
    assert (requests["scheduled"], requests["done"], requests["failed"]) == (6, 0, 6)
    assert requests["by_kind"]["server_error"] == 6


def test_warm_up_without_a_success_fails_the_run(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _measure(server, tmp_path, "--model", "failing", "--num_requests", "6") == ExitStatus.FAILED
    assert "Error: every warm-up request failed; the first error: scripted error" in capsys.readouterr().err


def test_a_run_that_sent_nothing_is_replaced_by_the_next_one_in_its_folder(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replaces = f"Replaces the run in {tmp_path}, which ended before its first request."
    assert _measure(server, tmp_path, "--model", "failing", "--num_requests", "6") == ExitStatus.FAILED
    assert replaces not in capsys.readouterr().err
    (tmp_path / "notes.txt").touch()  # a folder with other files stays as it is
    assert _measure(server, tmp_path, "--num_requests", "6") == ExitStatus.USAGE
    assert "is not empty" in capsys.readouterr().err
    (tmp_path / "notes.txt").unlink()
    assert _measure(server, tmp_path, "--model", "nosuch") == ExitStatus.FAILED  # leaves nothing, so the first one stays
    assert replaces in capsys.readouterr().err
    assert RunFolder(tmp_path).read_manifest().state is RunState.NOT_STARTED
    assert _measure(server, tmp_path, "--model", "scripted", "--num_requests", "6") != ExitStatus.USAGE
    assert replaces in capsys.readouterr().err
    assert RunFolder(tmp_path).read_manifest().state is RunState.DONE
    assert _measure(server, tmp_path, "--num_requests", "6") == ExitStatus.USAGE  # this one has records


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "nosuch"], "--model nosuch"),
        (["--model", "unary", "--streaming"], "--streaming: the model unary is not decoupled"),
    ],
)
def test_target_that_does_not_fit_the_options(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert _measure(server, tmp_path, *options) == ExitStatus.FAILED
    assert f"Error: {message}" in capsys.readouterr().err


def test_requirements_of_the_run_are_gates_and_only_fail_if_fails_a_build(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traffic = ("--model", "scripted", "--num_requests", "300", "--request_rate", "150")
    slo = ("--slo", "request_throughput>=1e6", "--slo", "p99_ttft<=60s")
    assert _measure(server, tmp_path / "a", *traffic, *slo) in (ExitStatus.VALID, ExitStatus.INVALID)
    assert [gate["requirement"] for gate in _summary(tmp_path / "a")["gates"]] == [
        "request_throughput>=1000000",
        "p99_ttft<=60000ms",
    ]
    capsys.readouterr()
    report = ["report", str(tmp_path / "a")]
    if _summary(tmp_path / "a")["validity"] == "valid":  # of an invalid run nothing passes or fails
        assert run([*report, "--fail_if", "request_throughput<1e6"]) == ExitStatus.FAILED
        assert "FAILED  request_throughput>=1000000" in capsys.readouterr().out
    assert run([*report, "--fail_if", "p99_ttft>60s"]) in (ExitStatus.VALID, ExitStatus.INVALID)
    printed = capsys.readouterr()
    assert "undecided  p99_ttft<=60000ms" in printed.out
    is_valid = _summary(tmp_path / "a")["validity"] == "valid"
    assert ("counts as passed; --undecided fail makes it fail" in printed.err) is is_valid
    assert run([*report, "--fail_if", "p99_ttft>60s", "--undecided", "fail"]) == ExitStatus.FAILED


def test_core_model_with_text_prompts_needs_a_tokenizer(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _measure(server, tmp_path, "--model", "scripted", verb="dataset") == ExitStatus.USAGE
    assert "--tokenizer_dir" in capsys.readouterr().err


def test_text_model_with_random_tokens_needs_a_tokenizer(
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


def test_ids_without_text_are_refused_where_text_is_sent(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--num_requests", "5", "--tokenizer_dir", str(_TOKENIZER), "--vocab_size", "1000000"]
    assert _measure(server, tmp_path / "text", "--model", "text", *options) == ExitStatus.USAGE
    assert "--vocab_size 1000000: the model text takes text, which ids beyond the" in capsys.readouterr().err
    _measure(server, tmp_path / "ids", "--model", "scripted", *options)
    assert len(RunFolder(tmp_path / "ids").read_requests()) == 5


def test_same_seed_gives_the_same_digest_with_any_number_of_workers(server: ScriptedServer, tmp_path: Path) -> None:
    options = ["--model", "scripted", "--num_requests", "8", "--seed", "5", "--request_rate", "500"]
    for workers in ("1", "2"):
        _measure(server, tmp_path / workers, *options, "--workers", workers)
    assert _summary(tmp_path / "1")["schedule"] == _summary(tmp_path / "2")["schedule"]


# ---- load modes


def _manifest(folder: Path) -> dict[str, Any]:
    return RunFolder(folder).read_document()[0]


def test_the_manifest_records_load_and_workers(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--request_rate", "400", "--max_concurrency", "50", "--ramp_up", "0.2", "--num_requests", "30"]
    _measure(server, tmp_path, "--model", "scripted", *options)
    manifest = _manifest(tmp_path)
    assert manifest["load"] == {
        "mode": "open",
        "max_concurrency": 50,
        "concurrency": None,
        "duration_s": None,
        "ramp_up_s": 0.2,
        "prepared": 30,
        "ran_out": False,
        "own_arrivals": None,
        "stages": None,
        "law": {"name": "exponential", "parameter": None, "text": "exponential"},
        "asked_arrivals": {
            "law": "exponential arrivals at 400 requests/s, the rate rising over 0.2 s",
            "unit": "requests",
            "rate_per_s": 400.0,
            "gap_cv": 1.0,
            "law_gap_cv": 1.0,
        },
    }
    assert manifest["workers"]["count"] >= 1
    assert manifest["workers"]["pinned_cores"] == []  # the target is on this machine
    assert "of a core busy" in manifest["workers"]["why"]
    opening = (
        "Sending 30 requests, exponential arrivals at 400 requests/s, the rate rising over 0.2 s, at most 50 in flight, by "
    )
    assert opening in capsys.readouterr().err


def test_a_duration_ends_a_closed_loop_without_any_failure(server: ScriptedServer, tmp_path: Path) -> None:
    options = ["--concurrency", "4", "--duration", "1.5", "--workers", "2"]
    status = _measure(server, tmp_path, "--model", "scripted", *options)
    summary, manifest = _summary(tmp_path), _manifest(tmp_path)
    assert status in (ExitStatus.VALID, ExitStatus.INVALID)
    requests = summary["requests"]
    assert (
        requests["prepared"] == manifest["load"]["prepared"] == manifest["workload"]["requests"] == 1200
    )  # 4 · 1.5 · 1000 / 5
    assert 0 < requests["done"] == requests["scheduled"]
    assert (requests["failed"], requests["by_kind"]) == (0, {})
    assert summary["metrics"]["offered_rate"] is None
    assert summary["arrivals"]["law"] is None
    assert {"interrupted", "achieved_below_offered", "queue_growing"}.isdisjoint(f["code"] for f in summary["findings"])
    assert manifest["workers"] == {"count": 2, "why": "as requested", "pinned_cores": []}
    assert manifest["workload"]["description"].startswith("up to 1,200 random prompts")


def test_a_closed_loop_that_runs_out_has_a_finding_below_num_requests(server: ScriptedServer, tmp_path: Path) -> None:
    dataset = tmp_path / "prompts.json"
    dataset.write_text(json.dumps([{"input": "one", "instruction": "two", "output": "three four"}] * 8))
    options = ["--model", "text", "--dataset", str(dataset), "--concurrency", "2", "--duration", "20"]
    found = {}
    for name, more in (("short", []), ("exact", ["--num_requests", "8"]), ("more", ["--num_requests", "9"])):
        _measure(server, tmp_path / name, *options, *more, verb="dataset")
        assert _summary(tmp_path / name)["requests"]["done"] == 8
        found[name] = "requests_ran_out" in {finding["code"] for finding in _summary(tmp_path / name)["findings"]}
    assert found == {"short": True, "exact": False, "more": True}


def test_a_limit_that_so_few_requests_cannot_pass_is_named_before_they_are_sent(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    criteria = [
        "--fail_if",
        "p99_ttft>60s",
        "--fail_if",
        "failed_share>0%",
        "--fail_if",
        "p99_itl>60s",
        "--slo",
        "mean_e2e<=60s",
    ]
    status = _measure(server, tmp_path, "--model", "scripted", "--num_requests", "20", "--request_rate", "200", *criteria)
    assert status in (ExitStatus.VALID, ExitStatus.INVALID)
    said, _, during = capsys.readouterr().err.partition("Sending 20 requests")
    assert [line for line in said.splitlines() if "pass it" in line] == [
        "--slo 'mean_e2e<=60000ms': 20 requests cannot pass it, at least 100 can (--num_requests 100); they can still fail it.",
        "--fail_if 'p99_ttft>60s': 20 requests cannot pass it, at least 299 can (--num_requests 299); they can still fail it.",
        "--fail_if 'failed_share>0%': no number of requests can pass it; they can fail it.",
    ]
    assert "cannot pass" not in during


def test_a_duration_in_which_too_few_requests_arrive_is_named_before_they_are_sent(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", "scripted", "--request_rate", "50", "--duration", "1"]
    _measure(server, tmp_path / "short", *options, "--fail_if", "p50_e2e>60s", "--slo", "e2e<=60s", "--slo", "attainment>=99%")
    said = capsys.readouterr().err
    assert re.search(r"--fail_if 'p50_e2e>60s': \d\d requests cannot pass it, at least 100 can \(a longer --duration\)", said)
    assert re.search(r"--slo 'attainment>=99%': \d\d requests cannot pass it, at least 299 can \(a longer --duration\)", said)


def test_a_limit_that_the_requests_can_pass_is_not_named(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", "scripted", "--num_requests", "299", "--request_rate", "1000"]
    _measure(server, tmp_path, *options, "--fail_if", "p99_ttft>60s", "--fail_if", "mean_ttft>60s", "--slo", "ttft<=60s")
    assert "cannot pass" not in capsys.readouterr().err


def test_a_dataset_too_short_for_the_duration_is_not_repeated(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = tmp_path / "prompts.json"
    dataset.write_text(json.dumps([{"input": "one", "instruction": "two", "output": "three four"}] * 8))
    options = ["--model", "text", "--dataset", str(dataset), "--request_rate", "50", "--duration", "9"]
    _measure(server, tmp_path / "run", *options, verb="dataset")
    assert "Only 8 requests can be sent, too few for --duration 9: the run will end early." in capsys.readouterr().err
    assert _summary(tmp_path / "run")["requests"]["done"] == 8
    assert "requests_ran_out" in {finding["code"] for finding in _summary(tmp_path / "run")["findings"]}


def test_as_many_random_requests_as_arrive_within_the_duration(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", "scripted", "--request_rate", "100", "--duration", "1", "--time_delay_dist", "constant"]
    _measure(server, tmp_path / "all", *options)
    assert _summary(tmp_path / "all")["requests"]["scheduled"] == 100
    # a third of the prompts have more than 4 tokens; others are drawn in their place
    _measure(server, tmp_path / "short", *options, "--input_stdev", "2", "--max_input_len", "4")
    assert _summary(tmp_path / "short")["requests"]["scheduled"] == 100
    assert _manifest(tmp_path / "short")["workload"]["dropped_too_long"] > 0
    assert "too few" not in capsys.readouterr().err


def test_everything_at_once_below_a_ceiling(server: ScriptedServer, tmp_path: Path) -> None:
    _measure(server, tmp_path, "--model", "scripted", "--num_requests", "60", "--max_concurrency", "3")
    rows = RunFolder(tmp_path).read_requests().to_pylist()
    assert [row["scheduled_ns"] for row in rows] == [0] * 60
    assert rows[-1]["released_ns"] > 0
    assert "achieved_below_offered" not in {finding["code"] for finding in _summary(tmp_path)["findings"]}


def _interrupted(server: ScriptedServer, folder: Path, *options: str) -> tuple[str, str]:
    """Run the program, send it SIGINT after 10 requests, and return its stdout and stderr. It must exit with 130."""
    target = ["--url", server.address, "--model", "scripted", "--run_dir", str(folder)]
    program = subprocess.Popen(
        [Path(sys.executable).parent / "bench", "token_norm_dist", *target, *_NORMAL, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    reader = JournalReader(folder / "journal-0.bin")
    done = 0
    try:
        while done < 10 and program.poll() is None:
            done += sum(1 for _ in reader.read_new())
            time.sleep(0.01)
        os.killpg(program.pid, signal.SIGINT)
        out, err = program.communicate(timeout=120)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
    assert program.returncode == ExitStatus.INTERRUPTED
    assert "Traceback" not in err
    return out, err


def test_interrupted_closed_loop_exits_with_130_and_has_no_failures(server: ScriptedServer, tmp_path: Path) -> None:
    options = ("--concurrency", "4", "--duration", "120", "--num_requests", "20000")
    _, err = _interrupted(server, tmp_path, *options)
    summary = _summary(tmp_path)
    assert f"Stopped: {summary['requests']['scheduled']:,} sent, 0 failed.\n" in err
    assert summary["requests"]["failed"] == 0
    (finding,) = [finding for finding in summary["findings"] if finding["code"] == "interrupted"]
    assert finding["evidence"] == {"not_sent": None, "scheduled": None}


def test_reference_that_is_not_reached_fails_the_run(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = tmp_path / "reference.json"
    reference.write_text(json.dumps({"key": {"Requests/Sec": 1e9}}))
    options = ["--check_perf_json", str(reference), "--check_perf_key", "key"]
    status = _measure(server, tmp_path / "run", "--model", "scripted", "--num_requests", "5", *options)
    assert status == ExitStatus.FAILED
    assert "FAIL  Requests/Sec" in capsys.readouterr().out


def test_interrupted_program_records_its_requests_and_exits_with_130(server: ScriptedServer, tmp_path: Path) -> None:
    out, _ = _interrupted(server, tmp_path, "--request_rate", "100", "--num_requests", "5000")
    assert RunFolder(tmp_path).read_document()[0]["interrupted"] is True
    requests = _summary(tmp_path)["requests"]
    assert requests["scheduled"] == 5000
    assert requests["done"] >= 10
    assert requests["done"] + requests["not_sent"] == 5000
    assert str(tmp_path) in out


@pytest.mark.parametrize(
    ("outcome", "fail_if", "status"),
    [
        (Outcome.SERVER_ERROR, [], ExitStatus.FAILED),
        (Outcome.SERVER_ERROR, ["p99_ttft>60s"], ExitStatus.FAILED),
        (Outcome.SERVER_ERROR, ["failed_share>5%"], ExitStatus.VALID),
        (Outcome.LOST, ["failed_share>5%"], ExitStatus.FAILED),  # by the client
        (Outcome.DONE, ["p99_ttft>60s"], ExitStatus.VALID),
    ],
)
def test_a_failed_request_fails_the_run_unless_a_gate_limits_their_share(
    outcome: Outcome, fail_if: list[str], status: ExitStatus
) -> None:
    records = (cast("Record", SimpleNamespace(outcome=outcome)),)
    result = RunResult(records, None, 1.0, interrupted=False, warm_up_failures=())
    report = cast("RunReport", SimpleNamespace(valid=True))
    assert status_of(report, result, meets_criteria=True, fail_if=fail_if) == status
