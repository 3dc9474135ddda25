"""Mixtures from the command line: what is sent, what is recorded and reported, against the null server."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_cli.measurement import measure
from bench_cli.measurement.mixture import mix
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from harness.calibration.null_server.pacing import Pace
from harness.calibration.null_server.server import NullServerAddresses, NullServerOptions, null_server
from harness.errors import TargetError
from harness.protocols.protocol import takes_no_variant
from workloads.elements.request import Variant

_TOKENIZER = ["--tokenizer_dir", str(Path(__file__).parents[3] / "serving" / "demo_engine")]
_LOAD = ["--isl", "8", "--osl", "20", "--request_rate", "100", "--num_requests", "60", "--seed", "5", *_TOKENIZER]
_CLASSES = ["--class", "chat:weight=3", "--class", "code:weight=1,slo=ttft<=10s"]
_PROBES = ["--probe_rate", "20", "--probe_isl", "4", "--probe_osl", "2"]
_ALL = [*_CLASSES, *_PROBES, "--cancel", "20%:after=5tokens"]


@pytest.fixture(scope="module")
def paced() -> Iterator[NullServerAddresses]:
    """A server with a first token after 5 ms, and one each 5 ms after it."""
    with null_server(NullServerOptions(Pace(5_000_000, 5_000_000))) as addresses:
        yield addresses


def _measure(url: str, folder: Path, *options: str, verb: str = "token_norm_dist") -> tuple[int, dict[str, Any]]:
    status = run([verb, "--url", url, "--run_dir", str(folder), "--warmup_requests", "2", *options])
    path = folder / "summary.json"
    return status, json.loads(path.read_text()) if path.exists() else {}


def _rows(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = RunFolder(folder).read_requests().to_pylist()
    return rows


def _targets(paced: NullServerAddresses) -> dict[str, tuple[str, list[str]]]:
    return {
        "grpc": (paced.grpc, ["-i", "grpc"]),
        "http": (paced.http, ["-i", "http"]),
        "openai": (f"http://{paced.http}", ["-i", "openai", "--ignore_eos"]),
        "openai_completions": (f"http://{paced.http}", ["-i", "openai_completions", "--ignore_eos"]),
    }


@pytest.mark.parametrize("protocol", ["grpc", "http", "openai", "openai_completions"])
def test_classes_probes_and_cancellations_are_recorded_and_reported(
    paced: NullServerAddresses, tmp_path: Path, protocol: str
) -> None:
    url, options = _targets(paced)[protocol]
    status, found = _measure(url, tmp_path / "run", *options, *_LOAD, "--osl", "80", *_ALL)  # time to cancel in, on any machine
    assert status in (ExitStatus.VALID, ExitStatus.INVALID)  # a busy machine may send late
    rows = _rows(tmp_path / "run")
    probes = [row for row in rows if row["traffic_class"] == "probe"]
    assert len(rows) == 60 + len(probes)
    assert {row["traffic_class"] for row in rows} == {"chat", "code", "probe"}
    planned = [row for row in rows if row["cancel_after_tokens"] == 5]
    assert planned
    assert {row["traffic_class"] for row in planned} <= {"chat", "code"}
    assert {row["outcome"] for row in planned} == {"withdrawn"}
    assert {row["error"] for row in rows} == {None}
    assert {row["outcome"] for row in rows if row not in planned} == {"done"}
    assert all(len(row["token_times_ns"]) >= 5 for row in planned)
    assert any(len(row["token_times_ns"]) < 80 for row in planned)
    assert status != ExitStatus.VALID or all(len(row["token_times_ns"]) < 80 for row in planned)  # it stood still meanwhile
    assert {len(row["token_times_ns"]) for row in probes} == {2}
    by_class = {entry["name"]: entry for entry in found["classes"]}
    assert found["requests"]["withdrawn"] == len(planned) == sum(entry["withdrawn"] for entry in by_class.values())
    assert (found["requests"]["scheduled"], found["requests"]["failed"]) == (60, 0)
    assert by_class["probe"]["done"] == len(probes)
    assert (by_class["code"]["attainment"]["value"], by_class["chat"]["attainment"]) == (1.0, None)
    mixture = RunFolder(tmp_path / "run").read_document()[0]["mixture"]
    assert [entry["name"] for entry in mixture["classes"]] == ["chat", "code"]
    assert (mixture["probe"]["requests"], mixture["cancellation"]["requests"]) == (len(probes), len(planned))
    assert {finding["code"] for finding in found["findings"]} <= {
        "schedule_slip", "client_saturated", "sample_too_small", "achieved_below_offered", "token_counts_unknown",
        "text_tokens_disagree", "input_tokens_disagree", "latencies_cut_off", "machine_shared", "target_paused",
        "arrivals_not_as_asked",
    }  # fmt: skip


def test_one_digest_by_1_and_4_workers_and_the_load_is_as_without_probes(paced: NullServerAddresses, tmp_path: Path) -> None:
    digests = set()
    for workers in ("1", "4"):
        _, found = _measure(paced.grpc, tmp_path / workers, *_LOAD, *_ALL, "--workers", workers)
        digests.add(found["schedule"]["digest"])
        assert Counter(row["outcome"] for row in _rows(tmp_path / workers))["withdrawn"] > 0
    assert len(digests) == 1
    fixed = ("index", "scheduled_ns", "traffic_class", "cancel_after_tokens", "requested_output_tokens")
    one, four = ([[row[name] for name in fixed] for row in _rows(tmp_path / workers)] for workers in ("1", "4"))
    assert one == four
    _measure(paced.grpc, tmp_path / "without", *_LOAD, *_CLASSES, "--cancel", "20%:after=5tokens")
    without = [[row[name] for name in fixed] for row in _rows(tmp_path / "without")]
    assert [row for row in one if row[2] != "probe"] == without


def test_a_time_cancels_an_answer_that_is_not_streamed(paced: NullServerAddresses, tmp_path: Path) -> None:
    options = ["--model", "ensemble_unary", *_LOAD, "--osl", "100", "--cancel", "20%:after=50ms"]
    status, found = _measure(paced.grpc, tmp_path / "run", *options)
    assert status in (ExitStatus.VALID, ExitStatus.INVALID)
    withdrawn = [row for row in _rows(tmp_path / "run") if row["outcome"] == "withdrawn"]
    assert found["requests"]["withdrawn"] == len(withdrawn) > 0
    assert all(row["done_ns"] - row["sent_ns"] >= 48_000_000 and row["cancel_after_ns"] == 50_000_000 for row in withdrawn)
    assert found["metrics"]["output_token_throughput"] is not None
    (finding,) = (finding for finding in found["findings"] if finding["code"] == "latencies_cut_off")
    assert (finding["evidence"]["requests"], found["metrics"]["e2e_ms"]["scheduled"]["censored"]) == (len(withdrawn),) * 2


def test_users_of_a_closed_loop_go_on_behind_a_cancellation(paced: NullServerAddresses, tmp_path: Path) -> None:
    closed = ["--isl", "8", "--osl", "20", "--concurrency", "3", "--num_requests", "30", *_TOKENIZER]
    _, found = _measure(paced.grpc, tmp_path / "run", *closed, *_CLASSES, "--cancel", "30%:after=2tokens")
    requests = found["requests"]
    assert (requests["scheduled"], requests["failed"]) == (30, 0)
    assert requests["done"] + requests["withdrawn"] == 30
    assert requests["withdrawn"] > 0


def test_turns_go_on_behind_an_answer_that_was_cancelled(paced: NullServerAddresses, tmp_path: Path) -> None:
    turns = [{"from": side, "value": f"words {number}"} for number in range(3) for side in ("human", "gpt")]
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([{"id": f"c{k}", "conversations": turns} for k in range(10)]))
    for history in ("recorded", "server"):
        options = ["-i", "openai", "--dataset", str(path), "--sessions", "think_time", "--history", history, *_CLASSES]
        options += ["--request_rate", "50", "--cancel", "40%:after=2tokens", "--output_tokens", "10", *_TOKENIZER]
        options += ["--op_tokens_per_word", "5", *_PROBES]
        _, found = _measure(f"http://{paced.http}", tmp_path / history, *options, verb="dataset")
        rows = _rows(tmp_path / history)
        assert Counter(row["outcome"] for row in rows)["withdrawn"] > 0
        assert {row["outcome"] for row in rows} == {"done", "withdrawn"}
        assert sum(row["traffic_class"] != "probe" for row in rows) == 30
        of_session: dict[str, set[str]] = {}
        for row in rows:
            if row["session"] is not None:
                of_session.setdefault(row["session"], set()).add(row["traffic_class"])
        assert {len(classes) for classes in of_session.values()} == {1}
        assert found["requests"]["not_sent"] == 0


def test_the_run_can_be_repeated_from_its_own_configuration(
    paced: NullServerAddresses, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, first = _measure(paced.grpc, tmp_path / "a", *_LOAD, *_ALL)
    capsys.readouterr()
    assert run(["config", str(tmp_path / "a")]) == ExitStatus.VALID
    config = tmp_path / "again.toml"
    config.write_text(capsys.readouterr().out)
    assert 'class = ["chat:weight=3", "code:weight=1,slo=ttft<=10000ms"]' in config.read_text()
    _, again = _measure(paced.grpc, tmp_path / "b", "--config", str(config))
    assert again["schedule"] == first["schedule"]


def test_runs_of_different_mixtures_are_not_compared(
    paced: NullServerAddresses, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, options in (("a", _CLASSES), ("b", ["--class", "chat", "--class", "code"]), ("c", [])):
        _measure(paced.grpc, tmp_path / name, *_LOAD, *options)
    for other in ("b", "c"):
        capsys.readouterr()
        run(["compare", str(tmp_path / "a"), str(tmp_path / other)])
        printed = capsys.readouterr()
        assert "mixture" in printed.out + printed.err
        assert "cannot be compared" in printed.out + printed.err


def test_probes_have_the_vocabulary_of_the_load_where_no_tokenizer_is_known(
    paced: NullServerAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def watched(*given: Any) -> Any:
        mixed = mix(*given)
        drawn.extend(i for request in mixed.schedule.requests[60:] for i in request.input_ids or ())
        return mixed

    monkeypatch.setattr(measure, "mix", watched)
    options = ["--isl", "8", "--osl", "2", "--request_rate", "100", "--num_requests", "60", "--vocab_size", "9", *_PROBES]
    status, _ = _measure(paced.grpc, tmp_path / "run", *options)
    assert status in (ExitStatus.VALID, ExitStatus.INVALID)  # by how busy the machine is
    assert drawn
    assert max(drawn) < 9


@pytest.mark.parametrize(
    ("protocol", "options", "message"),
    [
        ("grpc", ["--class", "a:lora=7"], "--class a:weight=1,lora=7: the model tensorrt_llm has no input lora_task_id"),
        ("grpc", ["--class", "a:model=none"], "--class a:weight=1,model=none: the server at"),
        ("grpc", ["--class", "a:model=ensemble"], "has other inputs and outputs than tensorrt_llm"),
        ("grpc", ["--model", "ensemble_unary", "--cancel", "5%:after=2tokens"], "the answers are not streamed"),
        ("grpc", ["--model", "ensemble_unary", "--class", "a:slo=ttft<=1s"], "ttft<=1000ms needs streamed answers"),
        ("grpc", ["--probe_rate", "5", "--request_rate", "-1"], "give a --request_rate"),
        ("grpc", ["--probe_rate", "0.001"], "no probe is due before the last time of the load"),
    ],
)
def test_what_the_target_cannot_serve_is_one_sentence(
    paced: NullServerAddresses,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    protocol: str,
    options: list[str],
    message: str,
) -> None:
    url, of_protocol = _targets(paced)[protocol]
    status, _ = _measure(url, tmp_path / "run", *of_protocol, *_LOAD, *options)
    assert status == ExitStatus.USAGE
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_a_target_of_one_model_takes_its_own_alone() -> None:
    takes_no_variant(Variant())
    with pytest.raises(TargetError):
        takes_no_variant(replace(Variant(), model="other"))
