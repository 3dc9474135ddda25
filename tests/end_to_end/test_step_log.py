"""The step log of the embedded engine under the real Triton."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench_cli import run
from bench_errors import ExitStatus
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec
from simulator.model import read_model
from tests.end_to_end.triton_calls import core_inputs, flag, generated_tokens, settled, stream

_REQUESTS = 24


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("steps") / "steps.csv"


@pytest.fixture(scope="module")
def logging_server(log: Path) -> Iterator[Server]:
    """The pipeline whose engine logs its steps, each of at most 128 tokens."""
    options = EngineOptions(step_log=str(log), max_num_tokens=128)
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, engine_options=options)
    with deploy(spec, choose_addresses(), log.parent / "server.log") as server:
        yield server


def test_a_run_is_explained_and_fitted_with_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the whole way: a run that deploys the pipeline with its log, and the log of that run, which divides the decode of each
    request, and has the steps of a model.
    """
    lengths = ["--input_mean", "96", "--input_stdev", "16", "--output_mean", "120", "--output_stdev", "4"]
    load = ["--request_rate", "20", "--num_requests", "40", "--warmup_requests", "2", "--seed", "5", "--server_timings"]
    folder, log = tmp_path / "run", tmp_path / "steps.csv"
    files = ["--step_log", str(log), "--run_dir", str(folder)]
    assert run(["token_norm_dist", *lengths, *load, *files]) in (ExitStatus.VALID, ExitStatus.INVALID)
    capsys.readouterr()
    run(["why", str(folder), "--step_log", str(log), "--format", "json"])
    [found] = json.loads(capsys.readouterr().out)["runs"]
    assert (found["step_log"]["requests_timed"], found["step_log"]["requests_divided"]) == (40, 40)
    [stretch] = found["step_log"]["over_time"]
    assert 0 < stretch["beside"] < stretch["steps"]
    run(["why", str(folder), "--format", "json"])
    [before] = json.loads(capsys.readouterr().out)["runs"]
    for own, whole in zip(found["latencies"], before["latencies"], strict=True):
        last, undivided = own["percentiles"][-1], whole["percentiles"][-1]
        phases = {phase["phase"]: phase["mean_ms"]["value"] for phase in last["phases"]}
        expected = {phase["phase"]: phase["mean_ms"]["value"] for phase in undivided["phases"]}
        if own["metric"] == "e2e_ms":
            assert phases["decode_beside_prefill"] > 0.0
            phases["decode"] += phases.pop("decode_beside_prefill")
        assert phases == pytest.approx(expected)
    model = tmp_path / "model.json"
    assert run(["simulate", "fit", str(folder), "--step_log", str(log), "-o", str(model)]) == ExitStatus.VALID
    [source] = read_model(model).sources
    assert source.logged
    assert 100 < source.steps <= sum(line[0].isdigit() for line in log.read_text().splitlines())


def test_the_steps_are_those_of_the_requests(logging_server: Server, log: Path) -> None:
    """The tokens of the log are those that the server counts, and the phases of each request lie between ends of steps."""
    random = np.random.default_rng(3)
    sent = [
        core_inputs(
            random.integers(100, 1_900, 20 + 9 * k).tolist(),
            1 + k,
            return_perf_metrics=flag(True),
            streaming=flag(k % 2 == 0),
        )
        for k in range(_REQUESTS)
    ]
    answers = stream(logging_server, "tensorrt_llm", sent)
    counted = generated_tokens(settled(logging_server))
    with log.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    assert all(row["decode_tokens"] and row["first_tokens"] for row in rows)
    assert sum(int(row["decode_tokens"]) + int(row["first_tokens"]) for row in rows) == counted
    assert sum(int(row["prefill_tokens"]) for row in rows) == sum(inputs["input_ids"].size for inputs in sent)
    starts = [int(row["start_ns"]) for row in rows]
    ends = [start + int(row["duration_ns"]) for start, row in zip(starts, rows, strict=True)]
    for answer, inputs in zip(answers, sent, strict=True):
        started, first, last = (
            answer[-1].as_numpy(name).item()
            for name in ("first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
        )
        assert {first, last} <= set(ends)
        prefill = [start for start, end in zip(starts, ends, strict=True) if started <= start and end <= first]
        decode = [end - start for start, end in zip(starts, ends, strict=True) if first <= start and end <= last]
        assert prefill
        assert len(decode) == inputs["request_output_len"].item() - 1
        assert sum(decode) <= last - first
