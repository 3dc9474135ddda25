"""``bench why``: its outputs, exit statuses and mistakes; and a server whose times are known."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolder
from bench_records.table import write_table
from bench_records.whole_file import write_json
from tests.harness.chat_server import DONE, USAGE, WHOLE, Event, chat_server, chunk
from tests.reports.manifests import machine_use, run_manifest

_TOKENIZER = str(Path(__file__).parents[2] / "serving" / "demo_engine")


def _folder(path: Path, queue_ms: int, *, fail: bool = False, **changes: Any) -> Path:
    """A run of 40 requests with this wait in the queue and 10 ms of prefill, one each 0.5 s."""
    folder = RunFolder(path)
    folder.path.mkdir()
    write_json(run_manifest(**changes), folder.manifest)
    first = (queue_ms + 12) * 10**6
    records = [
        Record(
            index=k,
            outcome=Outcome.REFUSED if fail else Outcome.DONE,
            scheduled_ns=k * 5 * 10**8,
            requested_output_tokens=1,
            sent_ns=k * 5 * 10**8,
            done_ns=k * 5 * 10**8 + first,
            token_times_ns=() if fail else (k * 5 * 10**8 + first,),
            output_tokens=1,
            server_queue_ns=queue_ms * 10**6,
            server_prefill_ns=10**7,
        )
        for k in range(40)
    ]
    write_table(records, folder.requests)
    return path


def test_the_answer_comes_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["why", str(_folder(tmp_path / "a", 88))]) == ExitStatus.VALID
    text = capsys.readouterr().out
    assert text.startswith("p99 TTFT 100 ms: 88 % engine queue, 10 % prefill, 2 % unattributed.")
    assert "\np99 E2E latency 100 ms: " in text


def test_one_latency_and_another_percentile(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["why", str(_folder(tmp_path / "a", 88)), "--metric", "e2e", "--percentile", "50"]) == ExitStatus.VALID
    text = capsys.readouterr().out
    assert text.startswith("p50 E2E latency 100 ms: ")
    assert "TTFT" not in text


def test_parts_of_the_run_and_its_slowest_requests(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["why", str(_folder(tmp_path / "a", 88)), "--over_time", "2", "--slowest", "1"]) == ExitStatus.VALID
    text = capsys.readouterr().out
    assert "0.0 – 9.8" in text
    assert "88.0 engine queue, 10.0 prefill, 2.00 unattributed" in text


def test_a_request_by_its_number(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["why", str(_folder(tmp_path / "a", 88)), "--request", "7", "--metric", "ttft"]) == ExitStatus.VALID
    text = capsys.readouterr().out
    assert "Request 7, due at 3.500 s: TTFT 100 ms" in text
    assert (
        f"After that change, send the same requests: bench replay {tmp_path / 'a'} --run_dir {tmp_path / 'a'}-tried\n" in text
    )


def test_two_runs_by_phases(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    a, b = _folder(tmp_path / "a", 88), _folder(tmp_path / "b", 188)
    assert run(["why", str(a), str(b), "--format", "markdown"]) == ExitStatus.VALID
    assert "p99 TTFT +100 ms (100 to 200 ms). The requests around it took +100 ms on the mean: +100 engine queue." in (
        capsys.readouterr().out
    )


def test_two_runs_of_different_work_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Answers of 20 tokens take longer than answers of 12, whatever the server does."""
    before = _folder(tmp_path / "before", 300, workload={"description": "prompts", "output_mean": 12.0})
    after = _folder(tmp_path / "after", 88, workload={"description": "prompts", "output_mean": 20.0})
    assert run(["why", str(before), str(after)]) == ExitStatus.VALID
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 100
    text = " ".join(printed.split())
    assert run(["why", str(before), str(after), "--format", "json"]) == ExitStatus.VALID
    assert json.loads(capsys.readouterr().out)["other_work"].startswith("The runs sent different work")
    assert (
        "The runs sent different work, so part of the difference may come from that: workload.output_mean (12.0 against" in text
    )


def test_what_took_the_target_s_cpu_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shared = _folder(tmp_path / "a", 88, **machine_use(1.0))
    assert run(["why", str(shared)]) == ExitStatus.VALID
    assert "a: Other programs used 1.00 of the" in " ".join(capsys.readouterr().out.split())
    assert run(["why", str(shared), "--format", "json"]) == ExitStatus.VALID
    [sentence] = json.loads(capsys.readouterr().out)["runs"][0]["disturbances"]
    assert sentence.startswith("Other programs used 1.00 of the")


def test_json_has_every_number(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["why", str(_folder(tmp_path / "a", 88)), "--format", "json"]) == ExitStatus.VALID
    found = json.loads(capsys.readouterr().out)
    ttft, _ = found["runs"][0]["latencies"]
    last = ttft["percentiles"][-1]
    phases = {phase["phase"]: phase["mean_ms"]["value"] for phase in last["phases"]}
    assert phases == pytest.approx({"slip": 0.0, "queue": 88.0, "prefill": 10.0, "unattributed": 2.0})
    assert sum(phases.values()) + last["contradiction_ms"] == pytest.approx(last["mean_ms"])
    assert found["differences"] == []


def test_a_run_that_is_not_valid_is_named_and_has_its_exit_status(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["why", str(_folder(tmp_path / "a", 88, fail=True))]) == ExitStatus.INVALID
    assert "a: THIS RUN IS NOT VALID: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("runs", "options", "words"),
    [
        (["a", "a"], [], "is given twice"),
        (["a", "b", "c"], [], "3 runs are given; give one run, or two"),
        (["none"], [], "none"),
        (["a"], ["--percentile", "20"], "--percentile"),
        (["a"], ["--metric", "tpot"], "--metric"),
        ([], [], "RUNS"),
        (["a", "b"], ["--slowest", "3"], "--slowest is for one run"),
        (["a", "b"], ["--step_log", __file__], "--step_log is for one run"),
        (["a"], ["--step_log", __file__], "the file is no step log"),
        (["a"], ["--over_time", "1"], "--over_time"),
        (["a"], ["--request", "40"], "--request 40: a run has no request with this number"),
        (["a", "b"], ["--request", "4"], "--request is for one run"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], tmp_path: Path, runs: list[str], options: list[str], words: str) -> None:
    for name in ("a", "b", "c"):
        _folder(tmp_path / name, 8)
    assert run(["why", *(str(tmp_path / name) for name in runs), *options]) == ExitStatus.USAGE
    assert words in capsys.readouterr().err


# ---- a server that returns its times


def test_the_delays_of_a_server_are_found_in_their_phases(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A front end of 30 ms, a queue of 40 ms, a prefill of 20 ms and a decode of 20 ms, measured by the server itself."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    measured: list[dict[str, Any]] = []

    def answers(number: int) -> Iterator[Event]:
        time.sleep(0.03)
        stamps = [time.monotonic()]
        for delay_s in (0.04, 0.02):
            time.sleep(delay_s)
            stamps.append(time.monotonic())
        yield chunk(role="assistant", content="w0")
        for k in range(1, 5):
            time.sleep(0.005)
            if k == 4:
                stamps.append(time.monotonic())  # before the send, in which the server may lose the processor
            yield chunk(content=f" w{k}")
        queue, prefill, decode = (1e3 * (end - start) for start, end in pairwise(stamps))
        measured.append({"queue_time_ms": queue, "time_to_first_token_ms": prefill, "generation_time_ms": decode})
        yield chunk(reason="length")
        yield USAGE | {"metrics": measured[-1]}
        yield DONE

    with chat_server(answers) as chat:  # type: ignore[arg-type]
        line = ["token_norm_dist", "-i", "openai", "--url", f"127.0.0.1:{chat.port}", "--tokenizer_dir", _TOKENIZER]
        line += ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "5", "--output_stdev", "0", "--server_timings"]
        line += ["--num_requests", "12", "--concurrency", "1", "--workers", "1", "--run_dir", str(tmp_path / "r")]
        assert run(line) in (ExitStatus.VALID, ExitStatus.INVALID)
    assert all(body["include_metrics"] is True for body in chat.bodies)
    capsys.readouterr()
    run(["why", str(tmp_path / "r"), "--format", "json"])
    [found] = json.loads(capsys.readouterr().out)["runs"]
    for latency, names in zip(found["latencies"], (("queue", "prefill"), ("queue", "prefill", "decode")), strict=True):
        last = latency["percentiles"][-1]
        phases = {phase["phase"]: phase["mean_ms"]["value"] for phase in last["phases"]}
        keys = {"queue": "queue_time_ms", "prefill": "time_to_first_token_ms", "decode": "generation_time_ms"}
        for name in names:
            truth = sum(each[keys[name]] for each in measured[-12:]) / 12
            assert phases[name] == pytest.approx(truth, rel=1e-3), name
        assert phases["unattributed"] >= 0.95 * 30.0
        assert (last["timed"], last["contradicted"]) == (12, 0)
        assert sum(phases.values()) == pytest.approx(last["mean_ms"])


def test_a_server_that_says_nothing_has_the_client_s_own_phases(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes 30 ms until it sends its head, and 50 ms from there to a token."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def answer(number: int) -> Iterator[Event]:
        time.sleep(0.03)
        return answers()

    def answers() -> Iterator[Event]:
        time.sleep(0.05)
        yield from WHOLE

    with chat_server(answer) as chat:  # type: ignore[arg-type]
        line = ["token_norm_dist", "-i", "openai", "--url", f"127.0.0.1:{chat.port}", "--tokenizer_dir", _TOKENIZER]
        line += ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "5", "--output_stdev", "0"]
        line += ["--num_requests", "12", "--concurrency", "1", "--workers", "1", "--run_dir", str(tmp_path / "r")]
        assert run(line) in (ExitStatus.VALID, ExitStatus.INVALID)
    rows = RunFolder(tmp_path / "r").read_requests().to_pylist()
    for row in rows:
        assert row["sent_ns"] <= row["written_ns"] < row["head_ns"] <= row["token_times_ns"][0]
    capsys.readouterr()
    run(["why", str(tmp_path / "r"), "--format", "json", "--request", "3"])
    [found] = json.loads(capsys.readouterr().out)["runs"]
    for latency in found["latencies"]:
        last = latency["percentiles"][-1]
        phases = {phase["phase"]: phase["mean_ms"]["value"] for phase in last["phases"]}
        assert phases["first_byte"] >= 29.0
        assert phases["unattributed"] >= 0.0
        assert {"slip", "send"} < phases.keys()
        assert ("stream" in phases) is (latency["metric"] == "e2e_ms")
        assert sum(phases.values()) == pytest.approx(last["mean_ms"])
        [request] = latency["requests"]
        assert request["head_ms"] == pytest.approx((rows[3]["head_ns"] - rows[3]["scheduled_ns"]) / 1e6)


def test_times_that_the_server_wrote_to_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_dir = _folder(tmp_path / "a", 88)
    model = json.loads(RunFolder(run_dir).manifest.read_text())["target"]["model"]
    events = {"QUEUE_START": 5, "COMPUTE_START": 55, "INFER_RESPONSE_COMPLETE": 95, "GRPC_SEND_START": 95}
    trace = [
        entry
        for k in range(40)
        for entry in (
            {"id": k, "model_name": model, "request_id": str(k)},
            *({"id": k, "timestamps": [{"name": name, "ns": (1_000 * k + ms) * 10**6}]} for name, ms in events.items()),
        )
    ]
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    arguments = ["--metric", "ttft", "--server_times", str(tmp_path / "trace.json")]
    assert run(["why", str(run_dir), *arguments]) == ExitStatus.VALID
    assert capsys.readouterr().out.startswith("p99 TTFT 100 ms: 50 % engine queue, 40 % prefill, 10 % unattributed.")
    assert run(["why", str(run_dir), str(_folder(tmp_path / "b", 40)), *arguments]) == ExitStatus.USAGE
    assert "--server_times is for one run" in capsys.readouterr().err
    (tmp_path / "trace.json").write_text("[]")
    assert run(["why", str(run_dir), *arguments]) == ExitStatus.USAGE
    assert "has no times of requests to" in capsys.readouterr().err
