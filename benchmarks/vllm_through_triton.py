"""Cost of Triton and a client before vLLM: tokens/s through the deployed core model against ``AsyncLLM`` driven directly.

    python -m benchmarks.vllm_through_triton --engine_python PYTHON --model_dir DIR [--engine_arg KEY=VALUE …] [--rounds 3]

As ``benchmarks/through_triton.py`` for the embedded engine: all variants get the same requests, a fixed number in flight, in
turns. Each has an engine of its own, and all are loaded at once, so the memory must hold six.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from benchmarks.through_triton import Way, direct, drive, measure_in_turns, requests_of
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from serving.engines import check_installed
from serving.engines.protocol import EngineOptions
from serving.engines.vllm.engine import engine_arguments
from serving.engines.vllm.environment import environment
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.repository.pipeline import RepositorySpec
from workloads.elements.request import Request

_BARE = Path(__file__).with_name("in_vllm") / "bare_async_llm.py"


@contextmanager
def alone(model_dir: Path, options: EngineOptions, streaming: bool) -> Iterator[Way]:
    """``AsyncLLM`` in a process of its own, which gets a load as one line."""
    command = [options.engine_python, str(_BARE), json.dumps(engine_arguments(model_dir, options))]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(os.environ),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        sending, answers = process.stdin, process.stdout
        assert answers.readline() == "ready\n"

        def run(requests: list[Request], in_flight: int) -> int:
            load = {"requests": [[request.input_ids, request.output_tokens] for request in requests]}
            sending.write(json.dumps(load | {"in_flight": in_flight, "streaming": streaming}) + "\n")
            sending.flush()
            return int(answers.readline())

        yield run
        sending.close()


@contextmanager
def through_triton(model_dir: Path, options: EngineOptions, decoupled: bool, streaming: bool, tokens: int) -> Iterator[Way]:
    """The core model on Triton, with at most ``tokens`` in a response, driven by the client of ``bench``."""
    spec = RepositorySpec(
        model_dir, model_dir, engine="vllm", decoupled_mode=decoupled, engine_options=options, max_stream_interval=tokens
    )
    with tempfile.TemporaryDirectory() as folder, deploy(spec, choose_addresses(), Path(folder) / "log") as server:
        model = inspect_model(server.addresses.grpc, "tensorrt_llm")
        client = TritonGrpcClient(server.addresses.grpc, model, streaming)
        yield lambda requests, in_flight: uvloop.run(drive(client, requests, in_flight))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine_python", required=True)
    parser.add_argument("--model_dir", type=Path, required=True)
    parser.add_argument("--engine_arg", action="append", default=[])
    parser.add_argument("--max_num_sequences", type=int, default=256)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--in_flight", type=int, default=128)
    parser.add_argument("--input_tokens", type=int, default=128)
    parser.add_argument("--output_tokens", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    options = EngineOptions(
        max_num_sequences=given.max_num_sequences,
        enable_kv_cache_reuse=False,  # the prompts are the same in each round
        guided_decoding_backend="",
        engine_python=given.engine_python,
        engine_arg=tuple(given.engine_arg),
    )
    check_installed("vllm", options)
    model_dir = given.model_dir.resolve()
    ways = {
        "AsyncLLM alone": alone(model_dir, options, streaming=False),
        "AsyncLLM alone, streamed": alone(model_dir, options, streaming=True),
        "engine by its socket, streamed": direct(True, "vllm", model_dir, options),
        "Triton, not decoupled": through_triton(model_dir, options, decoupled=False, streaming=False, tokens=1),
        "Triton, streamed token by token": through_triton(model_dir, options, decoupled=True, streaming=True, tokens=1),
        "Triton, streamed, up to 4 tokens": through_triton(model_dir, options, decoupled=True, streaming=True, tokens=4),
    }
    requests = requests_of(given.requests, given.input_tokens, given.output_tokens)
    rates = measure_in_turns(ways, requests, given.in_flight, given.rounds)
    base = statistics.median(rates["AsyncLLM alone"])
    for name, values in rates.items():
        median = statistics.median(values)
        span = f"{median:7,.0f} tok/s ({min(values):,.0f} to {max(values):,.0f})"
        print(f"{name:34} {median / given.output_tokens:6,.1f} req/s {span} {median / base:6.1%}")


if __name__ == "__main__":
    main()
