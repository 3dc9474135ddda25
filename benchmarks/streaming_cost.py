"""CPU time of a token in each process from the vllm engine's host to the client: the rate at which one core is full.

    python -m benchmarks.streaming_cost [--requests 1000] [--output_tokens 20] [--in_flight 512] [--step_s 0.1] [--rounds 3]

Triton, the five models and ``serving/engines/vllm/host.py`` are real; the ``vllm`` that the host imports is the fake of the
contract tests, which costs little and has a token for each running request in each step, every ``--step_s``. Printed are the
CPU times, user and system, of each process and of its busiest thread, divided by the tokens. In a Python process one thread
computes at a time, so one core over the largest of them is the most tokens/s of one chain of processes on any machine. The
host's time includes that of the fake. The wall time of a step of 0.001 s says how many responses/s this machine sends.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop

from benchmarks.driving import requests_of, responses_of
from benchmarks.process_cpu import read_cpu
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec
from tests.serving.engines.vllm_python import ARGUMENTS, checkpoint, vllm_python
from workloads.elements.request import Request

_CLIENT = "client"


@dataclass(frozen=True)
class Way:
    """A deployment whose processes are measured; ``processes`` are process ids by name."""

    client: TritonGrpcClient
    processes: Mapping[str, int]


@contextmanager
def deployed(model_dir: Path, options: EngineOptions, streaming: bool, instances: int = 1) -> Iterator[Way]:
    spec = RepositorySpec(
        model_dir,
        model_dir,
        engine="vllm",
        engine_options=options,
        max_stream_interval=1,
        core_instance_count=instances,
    )
    with tempfile.TemporaryDirectory() as folder, deploy(spec, choose_addresses(), Path(folder) / "log") as server:
        model = inspect_model(server.addresses.grpc, "tensorrt_llm")
        yield Way(TritonGrpcClient(server.addresses.grpc, model, streaming), dict(_processes(server)))


def _processes(server: Server) -> Iterator[tuple[str, int]]:
    """This process, Triton, the stubs of the core model and the engine's host."""
    yield _CLIENT, os.getpid()
    hosts = []
    for process in psutil.Process(server.supervisor_pid).children(recursive=True):
        words = process.cmdline()
        if process.name() == "tritonserver":
            yield "tritonserver", process.pid
        elif any(word.endswith("host.py") for word in words):
            hosts.append(process)
        else:
            yield from (
                (f"stub {word.rpartition('_')[2]}", process.pid) for word in words if word.startswith("tensorrt_llm_0_")
            )
    [host] = [process for process in hosts if process.ppid() not in {other.pid for other in hosts}]
    yield "host", host.pid


def measure(way: Way, requests: list[Request], in_flight: int) -> dict[str, tuple[float, float]]:
    """CPU µs a token by process: whole, and of its busiest thread; and the wall time under ``wall``."""
    before = {name: read_cpu(pid) for name, pid in way.processes.items()}
    wall_s, bodies = uvloop.run(responses_of(way.client, requests, in_flight))
    counts = [len(way.client.decode(body).token_ids or ()) for body in bodies]
    tokens, responses = sum(counts), sum(map(bool, counts))
    assert tokens == sum(request.output_tokens for request in requests)
    spent = {name: read_cpu(pid).since(before[name]) for name, pid in way.processes.items()}
    return {name: (1e6 * whole / tokens, 1e6 * busiest.ran_s / tokens) for name, (whole, busiest) in spent.items()} | {
        "wall": (1e6 * wall_s / tokens, responses / tokens)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--in_flight", type=int, default=512)
    parser.add_argument("--input_tokens", type=int, default=128)
    parser.add_argument("--output_tokens", type=int, default=20)
    parser.add_argument("--instances", type=int, default=1, help="of the core model, which share the engine")
    parser.add_argument("--step_s", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ["FAKE_VLLM_STEP_S"] = str(given.step_s)
    requests = requests_of(given.requests, given.input_tokens, given.output_tokens)
    with tempfile.TemporaryDirectory() as folder:
        model_dir = checkpoint(Path(folder))
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(DEMO_ENGINE_DIR / name, folder)
        options = EngineOptions(
            max_num_sequences=given.in_flight, engine_python=vllm_python(Path(folder)), engine_arg=ARGUMENTS
        )
        for streaming in (False, True):
            _report(model_dir, options, streaming, requests, given)


def _report(
    model_dir: Path, options: EngineOptions, streaming: bool, requests: list[Request], given: argparse.Namespace
) -> None:
    with deployed(model_dir, options, streaming, given.instances) as way:
        measure(way, requests, given.in_flight)
        rounds = [measure(way, requests, given.in_flight) for _ in range(given.rounds)]
    print("streamed, a response a token" if streaming else "unstreamed", flush=True)
    for name in rounds[0]:
        whole, busiest = (statistics.median(spent[name][part] for spent in rounds) for part in range(2))
        rate = f"one core has at most {1e6 / whole:9,.0f} tok/s"
        print(f"  {name:14} {whole:7.1f} us a token, busiest thread {busiest:7.1f}: {rate}")


if __name__ == "__main__":
    main()
