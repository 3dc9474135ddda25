"""Cost of Triton and a client: tokens/s through the deployed core model against the same engine driven directly.

    python benchmarks/through_triton.py [--requests 400] [--in_flight 128] [--rounds 3]

All variants get the same requests (128 tokens in, 32 out by default), a fixed number in flight. They alternate round by round,
so that drift in the machine's speed does not favour one; the ratio of the medians is printed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
import uvloop

from benchmarks.driving import Generated, Way, drive, driven, requests_of
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from serving.engines import open_engine
from serving.engines.openvino.folder import DEMO_ENGINE_DIR, read_limits
from serving.engines.openvino.scheduling import blocks_for
from serving.engines.openvino.worker import generation_config, load_pipeline
from serving.engines.protocol import EngineOptions, Sampling
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.repository.pipeline import RepositorySpec
from workloads.elements.request import Request

OPTIONS = EngineOptions(enable_kv_cache_reuse=False)  # the prompts are the same in each round


@contextmanager
def in_one_process() -> Iterator[Way]:
    """OpenVINO's pipeline driven directly in this process: without pipe, Triton and client."""
    limits = read_limits(DEMO_ENGINE_DIR)
    blocks = blocks_for(OPTIONS.max_tokens_in_paged_kv_cache)
    pipeline, guides = load_pipeline(DEMO_ENGINE_DIR, limits.context_tokens, OPTIONS, blocks)

    def run(requests: list[Request], in_flight: int) -> Generated:
        waiting = list(enumerate(requests))
        running: list[Any] = []
        tokens = 0
        started_s = time.monotonic()
        while waiting or running:
            while waiting and len(running) < in_flight:
                number, request = waiting.pop(0)
                ids = ov.Tensor(np.array([request.input_ids], dtype=np.int64))
                running.append(pipeline.add_request(number, ids, generation_config(Sampling(request.output_tokens), guides)))
            pipeline.step()
            ended = [handle for handle in running if handle.get_status() != genai.GenerationStatus.RUNNING]
            running = [handle for handle in running if handle.get_status() == genai.GenerationStatus.RUNNING]
            for handle in ended:
                while handle.can_read():
                    tokens += sum(len(output.generated_ids) for output in handle.read().values())
        return Generated(tokens, time.monotonic() - started_s)

    yield run


@contextmanager
def direct(streaming: bool) -> Iterator[Way]:
    """The engine of the served model, in its worker process behind a pipe, without Triton and client."""
    with closing(open_engine("openvino", DEMO_ENGINE_DIR, OPTIONS)) as engine:
        yield driven(engine, streaming)


@contextmanager
def through_triton(decoupled: bool, streaming: bool) -> Iterator[Way]:
    """The core model on Triton, driven by the client of ``bench``."""
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, decoupled_mode=decoupled, engine_options=OPTIONS)
    with tempfile.TemporaryDirectory() as folder, deploy(spec, choose_addresses(), Path(folder) / "log") as server:
        model = inspect_model(server.addresses.grpc, "tensorrt_llm")
        client = TritonGrpcClient(server.addresses.grpc, model, streaming)
        yield lambda requests, in_flight: uvloop.run(drive(client, requests, in_flight))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--in_flight", type=int, default=128)
    parser.add_argument("--input_tokens", type=int, default=128)
    parser.add_argument("--output_tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    requests = requests_of(arguments.requests, arguments.input_tokens, arguments.output_tokens)
    ways = {
        "engine alone": in_one_process(),
        "engine behind its pipe": direct(streaming=False),
        "engine behind its pipe, streamed": direct(streaming=True),
        "Triton, not decoupled": through_triton(decoupled=False, streaming=False),
        "Triton, decoupled, unstreamed": through_triton(decoupled=True, streaming=False),
        "Triton, decoupled, streamed": through_triton(decoupled=True, streaming=True),
    }
    rates = measure_in_turns(ways, requests, arguments.in_flight, arguments.rounds)
    base = statistics.median(rates["engine alone"])
    for name, values in rates.items():
        ratios = [value / alone for value, alone in zip(values, rates["engine alone"], strict=True)]
        print(
            f"{name:32} {statistics.median(values):7,.0f} tok/s ({min(values):,.0f} to {max(values):,.0f}), "
            f"{statistics.median(values) / base:6.1%} of the engine alone ({min(ratios):.1%} to {max(ratios):.1%} by round)"
        )


def measure_in_turns(
    ways: Mapping[str, AbstractContextManager[Way]], requests: list[Request], in_flight: int, rounds: int
) -> dict[str, list[float]]:
    """Tokens/s by variant and round, after a warm-up round."""
    with ExitStack() as stack:
        runs = {name: stack.enter_context(way) for name, way in ways.items()}
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for round_number in range(rounds + 1):
            for name, run in runs.items():
                generated = run(requests, in_flight)
                tokens, rate = generated.output_tokens, generated.output_tokens / generated.seconds
                assert tokens == sum(request.output_tokens for request in requests), f"{name}: {tokens} tokens"
                if round_number:
                    rates[name].append(rate)
                    print(f"round {round_number}: {name}: {rate:,.0f} tok/s", flush=True)
    return rates


if __name__ == "__main__":
    main()
