"""The step log of the embedded engine under the real Triton."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec
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
