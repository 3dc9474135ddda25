"""Observation of the real server and client, and agreement of their counts."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench_records.record import Outcome
from bench_records.run_folder import RunFolder
from harness.clients.transport.url import parse_url
from harness.clients.triton.statistics import grpc_statistics, http_statistics
from serving.launch.server import Server
from tests.faults.bench_program import Program, run_bench, wait_until
from tests.harness.scripted_server import scripted_server

BENCH = str(Path(sys.executable).parent / "bench")
REQUESTS = 60
OUTPUT_TOKENS = 16
_STARVED = 150  # requests of a client without a core


def _measure(server: Server, run: Path, *options: str) -> dict[str, Any]:
    """Summary of a run. On a busy machine the run may rightly be invalid (3)."""
    lengths = ["--input_mean", "64", "--input_stdev", "0", "--output_mean", str(OUTPUT_TOKENS), "--output_stdev", "0"]
    target = ["--url", server.addresses.grpc, "--metrics_url", server.addresses.metrics, "--run_dir", str(run)]
    traffic = ["--request_rate", "30", "--num_requests", str(REQUESTS), "--warmup_requests", "3", "--telemetry_period", "0.2"]
    result = run_bench("token_norm_dist", *lengths, *target, *traffic, *options)
    assert result.returncode in (0, 3), result.stderr
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found


def _codes(summary: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in summary["findings"]}


@pytest.mark.parametrize(
    ("mode", "model"),
    [
        ("decoupled_server", "tensorrt_llm"),
        ("decoupled_server", "ensemble"),
        ("decoupled_server", "tensorrt_llm_bls"),
        ("plain_server", "tensorrt_llm"),
    ],
)
def test_counters_of_server_and_client_agree_exactly(
    request: pytest.FixtureRequest, tmp_path: Path, mode: str, model: str
) -> None:
    server: Server = request.getfixturevalue(mode)
    summary = _measure(server, tmp_path, "--model", model, "--seed", str(len(model) + len(mode)))
    assert summary["requests"]["done"] == REQUESTS
    server_counts = summary["server"]
    [driven] = [work for work in server_counts["models"] if work["name"] == model]
    assert (driven["succeeded"], driven["failed"]) == (REQUESTS, 0)  # without those of the warm-up
    assert server_counts["metrics_requests"] == REQUESTS
    tokens = RunFolder(tmp_path).read_requests()["output_tokens"].to_pylist()
    assert server_counts["generated_tokens"] == sum(tokens) == REQUESTS * OUTPUT_TOKENS
    assert server_counts["times"]["requests"] == REQUESTS
    assert not _codes(summary) & {"counters_disagree", "phases_exceed_latency"}
    for phase in summary["phases"]:
        assert phase["server_ms"] > 0, phase
        assert phase["client_ms"] is None or phase["server_ms"] < phase["client_ms"] * 1.05 + 1, phase
    assert {"TTFT, by the engine"} <= {phase["name"] for phase in summary["phases"]} or mode == "plain_server"


def test_each_model_of_the_ensemble_has_statistics(decoupled_server: Server, tmp_path: Path) -> None:
    summary = _measure(decoupled_server, tmp_path, "--model", "ensemble")
    counted = {work["name"]: work["succeeded"] for work in summary["server"]["models"]}
    assert set(counted) == {"ensemble", "preprocessing", "tensorrt_llm", "postprocessing"}
    assert counted["preprocessing"] == counted["tensorrt_llm"] == REQUESTS
    assert counted["postprocessing"] >= REQUESTS
    over_http = http_statistics(parse_url(f"{decoupled_server.addresses.http}/v2/models/stats", ""))
    assert over_http == grpc_statistics(decoupled_server.addresses.grpc)
    recorded = RunFolder(tmp_path).read_manifest().server_statistics
    assert recorded is not None
    assert over_http == recorded.after


def test_telemetry_uses_the_clock_of_the_run(decoupled_server: Server, tmp_path: Path) -> None:
    summary = _measure(decoupled_server, tmp_path, "--output_mean", "60")
    folder = RunFolder(tmp_path)
    table, requests = folder.read_server(), folder.read_requests()
    assert table is not None
    rows = [row | {"labels": json.loads(row["labels"])} for row in table.to_pylist()]
    last_ns = max(requests["done_ns"].to_pylist())

    def values(name: str, **labels: str) -> list[tuple[int, float]]:
        return [(r["time_ns"], r["value"]) for r in rows if r["name"] == name and labels.items() <= r["labels"].items()]

    active = values("nv_trt_llm_request_metrics", request_type="active", model="tensorrt_llm")
    scheduled = values("nv_trt_llm_request_metrics", request_type="scheduled", model="tensorrt_llm")
    used = values("nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type="used", model="tensorrt_llm")
    assert active[0][0] < 0 < active[1][0]  # one reading before the first send …
    assert last_ns < active[-1][0]  # … and one after the last answer
    for series in (active, scheduled, used):
        assert len(series) >= 5
        assert series[0][1] == series[-1][1] == 0  # idle before and after
        assert max(value for _, value in series) > 0  # and busy in between
    busy = [time_ns for time_ns, value in active if value > 0]
    assert all(
        0 < time_ns < last_ns + 5_000_000_000 for time_ns in busy
    )  # the engine publishes every 100 ms, later on a busy machine
    assert summary["server"]["active_requests"]["max"] == max(value for time_ns, value in active if 0 <= time_ns <= last_ns)
    assert summary["server"]["kv_cache_used_fraction"]["max"] > 0


def test_the_engine_reuses_of_shared_prefixes_what_an_infinite_cache_would_have(
    decoupled_server: Server, tmp_path: Path
) -> None:
    groups = ["--prefix_groups", "6", "--prefix_len", "96", "--system_prompt_len", "32", "--prompts_per_group", "10"]
    one_by_one = ["--concurrency", "1", "--num_requests", "60", "--input_mean", "20", "--output_mean", "2", "--seed", "31"]
    target = ["--url", decoupled_server.addresses.grpc, "--metrics_url", decoupled_server.addresses.metrics]
    result = run_bench("token_norm_dist", *target, *groups, *one_by_one, "--run_dir", str(tmp_path / "run"))
    assert result.returncode in (0, 3), result.stderr
    cache = json.loads((tmp_path / "run" / "summary.json").read_text())["prefix_cache"]
    reused, prompt = 32 * 59 + 96 * 6 * 9, 60 * (32 + 96 + 20)
    assert cache["limit_share"] == cache["limit_block_tokens_share"] == pytest.approx(reused / prompt)
    assert cache["limit_block_share"] == pytest.approx(reused / 32 / (60 * 5))
    assert (cache["server_unit"], cache["block_tokens"], cache["usage"]) == ("blocks", 32, None)
    # a block's part may be reused, too, where two own parts begin with the same token
    assert cache["limit_block_share"] <= cache["server_share"] <= cache["limit_block_share"] + 3 / 300


@pytest.mark.parametrize("prefix_factor", [1, 2])
def test_the_engine_reuses_of_a_trace_of_blocks_what_an_infinite_cache_would_have(
    decoupled_server: Server, tmp_path: Path, prefix_factor: int
) -> None:
    # blocks of 16 tokens: 24 requests in groups of three that share eight blocks; the last one is a part of a block
    trace, rows = tmp_path / "blocks.jsonl", []
    for number in range(24):
        hashes = [*(100 * (number // 3) + k for k in range(8)), *(10_000 + 10 * number + k for k in range(7))]
        turn = {"chat_id": number, "parent_chat_id": -1, "turn": 1, "type": "text"}
        lengths = {"input_length": 232, "output_length": 2}
        rows.append(turn | lengths | {"timestamp": 0.01 * number, "hash_ids": hashes})
    trace.write_text("\n".join(map(json.dumps, rows)))
    target = ["--url", decoupled_server.addresses.grpc, "--metrics_url", decoupled_server.addresses.metrics]
    options = ["--concurrency", "1", "--seed", str(4 + prefix_factor), "--prefix_factor", str(prefix_factor)]
    result = run_bench("trace", str(trace), *options, *target, "--run_dir", str(tmp_path / "run"))
    assert result.returncode in (0, 3), result.stderr
    cache = json.loads((tmp_path / "run" / "summary.json").read_text())["prefix_cache"]
    reused, prompt = 16 * 8 * 16 * prefix_factor, 104 + 128 * prefix_factor
    assert cache["limit_share"] == cache["limit_block_tokens_share"] == pytest.approx(reused / (24 * prompt))
    assert cache["limit_block_share"] == pytest.approx(reused / 32 / (24 * -(-prompt // 32)))
    assert cache["unscaled_limit_share"] == (None if prefix_factor == 1 else pytest.approx(16 * 8 * 16 / (24 * 232)))
    assert cache["limit_block_share"] <= cache["server_share"] <= cache["limit_block_share"] + 3 / 192


def test_an_emptied_prefix_cache_has_nothing_of_the_run_before(decoupled_server: Server, tmp_path: Path) -> None:
    groups = ["--prefix_groups", "3", "--prefix_len", "64", "--prompts_per_group", "4", "--concurrency", "1", "--seed", "78"]
    lengths = ["--input_mean", "20", "--output_mean", "2", "--metrics_url", decoupled_server.addresses.metrics]
    shares = []
    for number, (protocol, address) in enumerate(
        [("grpc", decoupled_server.addresses.grpc), ("http", f"http://{decoupled_server.addresses.http}")]
    ):
        folder = tmp_path / str(number)
        target = ["-i", protocol, "--url", address, "--reset_prefix_cache", "--run_dir", str(folder)]
        result = run_bench("token_norm_dist", *target, *groups, *lengths)
        assert result.returncode in (0, 3), result.stderr
        summary = json.loads((folder / "summary.json").read_text())
        assert not [
            finding
            for finding in summary["findings"]
            if finding["code"] == "prefix_cache_warmed" and finding["severity"] != "note"
        ]
        manifest = json.loads((folder / "run.json").read_text())
        assert manifest["prefix_cache_reset"] == "reset_prefix_cache of the model tensorrt_llm"
        shares.append(summary["prefix_cache"]["server_share"] - summary["prefix_cache"]["limit_block_share"])
    assert all(0 <= share <= 3 / 36 for share in shares)  # a block's part may be reused, where two own parts begin alike


@pytest.mark.slow
def test_repeated_prompts_hit_the_cache_and_are_reported(decoupled_server: Server, tmp_path: Path) -> None:
    first = _measure(decoupled_server, tmp_path / "first", "--seed", "77")
    again = _measure(decoupled_server, tmp_path / "again", "--seed", "77")
    assert first["server"]["cache_reuse"]["reused"] == 0
    assert "prefix_cache_warmed" not in _codes(first)
    [finding] = [finding for finding in again["findings"] if finding["code"] == "prefix_cache_warmed"]
    assert finding["severity"] == "warning"
    assert "before this run" in finding["advice"]


@pytest.mark.slow
def test_foreign_traffic_is_reported(decoupled_server: Server, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    command = [BENCH, "token_norm_dist", "--url", decoupled_server.addresses.grpc, "--telemetry_period", "0"]
    lengths = ["--input_mean", "8", "--input_stdev", "0", "--output_mean", "4", "--output_stdev", "0"]
    other = subprocess.Popen(
        [*command, *lengths, "--num_requests", "10000", "--request_rate", "20", "--run_dir", "run"],
        cwd=tmp_path / "other", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline_s = time.monotonic() + 120
        journal = tmp_path / "other" / "run" / "journal-0.bin"
        while not (journal.exists() and journal.stat().st_size > 1000):
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        summary = _measure(decoupled_server, tmp_path / "ours")
    finally:
        other.terminate()
        other.wait(120)
    [finding] = [finding for finding in summary["findings"] if finding["code"] == "counters_disagree"]
    assert finding["evidence"]["counter"] == "requests"
    assert finding["evidence"]["server"] > finding["evidence"]["ours_most"] == REQUESTS
    assert "Other clients" in finding["advice"]


def test_run_of_a_starved_client_is_invalid_with_findings(tmp_path: Path) -> None:
    """The client shares one core with busy loops; its server responds at once from another core."""
    core = min(os.sched_getaffinity(0))
    run = tmp_path / "run"
    lengths = ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "8", "--output_stdev", "0", "--vocab_size", "100"]
    traffic = ["--request_rate", "50", "--num_requests", str(_STARVED), "--telemetry_period", "0", "--run_dir", str(run)]
    loops: list[subprocess.Popen[bytes]] = []
    with scripted_server(tmp_path / "received") as server:
        client = subprocess.Popen(
            [BENCH, "token_norm_dist", "--url", server.address, "--model", "scripted", *lengths, *traffic],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        os.sched_setaffinity(client.pid, {core})
        try:
            _wait_for(run / "journal-0.bin", client)
            _pin(client.pid, core)
            spin = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
            loops += [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(6)]
            _wait_for_exchanges(run, _STARVED, client)
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
            stdout, stderr = client.communicate(timeout=120)
    assert client.returncode == 3, stderr
    found = json.loads((run / "summary.json").read_text())
    assert found["requests"]["done"] == _STARVED  # no request failed: only the numbers are wrong
    assert {row["outcome"] for row in RunFolder(run).read_requests(["outcome"]).to_pylist()} == {Outcome.DONE.value}
    [finding] = [finding for finding in found["findings"] if finding["code"] == "client_saturated"]
    assert (found["validity"], finding["severity"]) == ("invalid", "invalid")
    assert "THIS RUN IS NOT VALID" in stdout
    assert "invalid  Client delayed by other processes: give it cores of its own" in stdout


def _pin(pid: int, core: int) -> None:
    """Pin a process, its threads and its children, including those that already run."""
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            for thread in process.threads():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, {core})


def _wait_for_exchanges(run: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Return when this many exchanges are in the journals, or even in the records."""
    program = Program(process, run, mark="")
    wait_until(lambda: (run / "requests.parquet").exists() or program.exchanges() >= count, process=process)


def _wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + 150
    while not path.exists() and process.poll() is None:
        assert time.monotonic() < deadline_s, f"{path.name} did not come"
        time.sleep(0.02)
