"""A mixed run on the embedded pipeline: two classes, probes, and cancellations that reach the engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench_records.run_folder import RunFolder
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.launch.server import Server
from tests.end_to_end.test_bench import bench
from tests.end_to_end.test_core_features import adapter, one, task
from tests.end_to_end.triton_calls import value_of, wait_until_idle

_FULL = 600  # tokens: more than 500, a bound of the engine's histogram, which separates cancelled answers from whole ones
_REQUESTS = 12
_OPTIONS = [
    *("token_norm_dist", "--isl", "16", "--osl", str(_FULL), "--ignore_eos", "--request_rate", "4"),
    *("--class", "chat:weight=3", "--class", "code:weight=1,slo=e2e<=600s", "--probe_rate", "1", "--probe_osl", "4"),
    *("--cancel", "25%:after=10tokens", "--warmup_requests", "1", "--workers", "1", "--run_dir", "r", "--seed", "3"),
    *("--num_requests", str(_REQUESTS), "--tokenizer_dir", str(DEMO_ENGINE_DIR)),
]


def _short_answers(page: str) -> float:
    """The answers of at most 500 tokens, by the engine; it has no such counter before the first."""
    return value_of(page, "nv_llm_output_token_len_bucket", le="500") if 'le="500"' in page else 0.0


def test_classes_probes_and_cancellations_on_the_engine(decoupled_server: Server, tmp_path: Path) -> None:
    before = _short_answers(wait_until_idle(decoupled_server))
    addresses = decoupled_server.addresses
    result = bench(*_OPTIONS, "--url", addresses.grpc, "--metrics_url", f"http://{addresses.metrics}/metrics", cwd=tmp_path)
    assert result.returncode in (0, 3), result.stderr  # a busy machine may send late
    after = _short_answers(wait_until_idle(decoupled_server))
    found: dict[str, Any] = json.loads((tmp_path / "r" / "summary.json").read_text())
    rows = RunFolder(tmp_path / "r").read_requests().to_pylist()
    by_class = {entry["name"]: entry for entry in found["classes"]}
    withdrawn = sum(row["outcome"] == "withdrawn" for row in rows)
    assert withdrawn == found["requests"]["withdrawn"] == by_class["chat"]["withdrawn"] + by_class["code"]["withdrawn"] > 0
    assert found["requests"]["done"] + withdrawn == _REQUESTS
    assert by_class["chat"]["scheduled"] + by_class["code"]["scheduled"] == _REQUESTS
    assert by_class["code"]["attainment"]["value"] == 1.0
    assert by_class["probe"]["done"] == by_class["probe"]["scheduled"] > 0
    assert after - before - by_class["probe"]["done"] == withdrawn  # the engine stopped exactly those, before their end
    assert {finding["code"] for finding in found["findings"]}.isdisjoint(
        {"errors", "counters_disagree", "generated_after_cancellation", "output_shorter_than_asked", "littles_law"}
    )


def test_a_class_uses_its_adapter(decoupled_server: Server, tmp_path: Path) -> None:
    one(decoupled_server, **task(51), **adapter(0))  # registers it
    options = ["token_norm_dist", "--isl", "8", "--osl", "4", "--request_rate", "20", "--num_requests", "16", "--workers", "1"]
    classes = ["--class", "base", "--class", "known:lora=51", "--class", "unknown:lora=999"]
    url = ["--url", decoupled_server.addresses.grpc, "--tokenizer_dir", str(DEMO_ENGINE_DIR), "--run_dir", "r"]
    bench(*options, *classes, *url, "--warmup_requests", "0", cwd=tmp_path)
    rows = RunFolder(tmp_path / "r").read_requests().to_pylist()
    outcomes = {(row["traffic_class"], row["outcome"], row["error"]) for row in rows}
    assert {outcome[:2] for outcome in outcomes} == {("base", "done"), ("known", "done"), ("unknown", "server_error")}
    assert any("LoRA task 999 not found" in (error or "") for _, _, error in outcomes)
