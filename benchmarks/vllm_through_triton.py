"""Where the speed of vLLM goes on its way through Triton: tokens/s of each layer in turns, and what its processes spend.

    python -m benchmarks.vllm_through_triton --engine_python PYTHON --model_dir DIR [--engine_arg KEY=VALUE …] [--rounds 3]

The same requests go through ``LLM.generate``, ``AsyncLLM``, the engine by its socket, and the core model on Triton with the
client of ``bench``, streamed and not: a response has one token. ``--in_flight`` requests are sent at a time, except to
``LLM.generate``, which gets all at once. The four engines are loaded together, so the memory must hold them all. For each layer
the processes that computed are printed: cores in use, and the busiest thread, with the time in which it waited for a core. A
thread that runs all the time is the limit; one whose time a step grows from layer to layer shares its core with another.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks import alone_in_vllm
from benchmarks.driving import Way, drive, driven, requests_of
from benchmarks.process_cpu import named_processes, read_cpu
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from serving.engines import check_installed, open_engine
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.repository.pipeline import RepositorySpec
from workloads.elements.request import Request

_LEAST_CORES = 0.03  # of a process that is printed
Ways = Mapping[str, Way]


@dataclass(frozen=True)
class Spent:
    """A process during a round: the cores that it used; the shares of the time in which its busiest thread ran and waited."""

    name: str
    cores: float
    ran: float
    waited: float | None


@contextmanager
def offline(model_dir: Path, options: EngineOptions, logs: Path) -> Iterator[Ways]:
    with alone_in_vllm.offline(model_dir, options, logs / "llm.log") as load:
        yield {"LLM.generate": lambda requests, _: load(requests, {})}


@contextmanager
def async_alone(model_dir: Path, options: EngineOptions, logs: Path) -> Iterator[Ways]:
    with alone_in_vllm.async_llm(model_dir, options, logs / "async_llm.log") as load:
        yield {
            "AsyncLLM": lambda requests, in_flight: load(requests, {"in_flight": in_flight, "streaming": False}),
            "AsyncLLM, streamed": lambda requests, in_flight: load(requests, {"in_flight": in_flight, "streaming": True}),
        }


@contextmanager
def by_socket(model_dir: Path, options: EngineOptions) -> Iterator[Ways]:
    with closing(open_engine("vllm", model_dir, options)) as engine:
        yield {
            "the engine by its socket": driven(engine, streaming=False),
            "the engine by its socket, streamed": driven(engine, streaming=True),
        }


@contextmanager
def through_triton(model_dir: Path, options: EngineOptions, logs: Path, instances: int) -> Iterator[Ways]:
    """The core model, decoupled, with ``instances`` that share the engine, driven by the client of ``bench``."""
    spec = RepositorySpec(
        model_dir,
        model_dir,
        engine="vllm",
        decoupled_mode=True,
        engine_options=options,
        max_stream_interval=1,
        core_instance_count=instances,
    )
    with deploy(spec, choose_addresses(), logs / "triton.log") as server:
        model = inspect_model(server.addresses.grpc, "tensorrt_llm")
        yield {
            name: _through(TritonGrpcClient(server.addresses.grpc, model, streaming))
            for name, streaming in (("Triton", False), ("Triton, streamed", True))
        }


def _through(client: TritonGrpcClient) -> Way:
    return lambda requests, in_flight: uvloop.run(drive(client, requests, in_flight))


@contextmanager
def together(layers: Sequence[AbstractContextManager[Ways]]) -> Iterator[dict[str, Way]]:
    """The ways of all layers, whose engines are loaded at the same time, in their order."""
    with ThreadPoolExecutor(len(layers)) as pool, ExitStack() as stack:  # a host dies with the thread that started it
        ways: dict[str, Way] = {}
        for layer, entered in zip(layers, list(pool.map(lambda layer: layer.__enter__(), layers)), strict=True):
            stack.push(layer)
            ways |= entered
        yield ways


def measure(way: Way, requests: list[Request], in_flight: int) -> tuple[float, list[Spent]]:
    """Tokens/s, and what the processes spent, that which computed most first."""
    processes = list(named_processes())
    before = {pid: read_cpu(pid) for _, pid in processes}
    generated = way(requests, in_flight)
    asked = sum(request.output_tokens for request in requests)
    assert generated.output_tokens == asked, f"{generated.output_tokens} of {asked} tokens"
    spent = []
    for name, pid in processes:
        with suppress(OSError):  # it has ended meanwhile
            process_s, thread = read_cpu(pid).since(before[pid])
            waited = None if thread.waited_s is None else thread.waited_s / generated.seconds
            spent.append(Spent(name, process_s / generated.seconds, thread.ran_s / generated.seconds, waited))
    return generated.output_tokens / generated.seconds, sorted(spent, key=lambda each: -each.cores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine_python", required=True)
    parser.add_argument("--model_dir", type=Path, required=True)
    parser.add_argument("--engine_arg", action="append", default=[])
    parser.add_argument("--max_num_sequences", type=int, default=256)
    parser.add_argument("--max_num_tokens", type=int, default=EngineOptions().max_num_tokens)
    parser.add_argument("--memory_share", type=float, default=0.2, help="of the memory, for each of the four engines")
    parser.add_argument("--core_instance_count", type=int, default=1)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--in_flight", type=int, default=128)
    parser.add_argument("--input_tokens", type=int, default=128)
    parser.add_argument("--output_tokens", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--logs", type=Path, help="a folder for the logs of the engines")
    given = parser.parse_args()
    options = EngineOptions(
        max_num_sequences=given.max_num_sequences,
        max_num_tokens=given.max_num_tokens,
        kv_cache_free_gpu_mem_fraction=given.memory_share,
        enable_kv_cache_reuse=False,  # the prompts are the same in each round
        guided_decoding_backend="",
        engine_python=given.engine_python,
        engine_arg=tuple(given.engine_arg),
    )
    check_installed("vllm", options)
    model_dir = given.model_dir.resolve()
    logs: Path = given.logs or Path(tempfile.mkdtemp(prefix="vllm-through-triton-"))
    layers = (
        offline(model_dir, options, logs),
        async_alone(model_dir, options, logs),
        by_socket(model_dir, options),
        through_triton(model_dir, options, logs, given.core_instance_count),
    )
    requests = requests_of(given.requests, given.input_tokens, given.output_tokens)
    rates: dict[str, list[float]] = defaultdict(list)
    spent: dict[str, list[Spent]] = {}
    with together(layers) as ways:
        for round_number in range(given.rounds + 1):
            for name, way in ways.items():
                rate, spent[name] = measure(way, requests, given.in_flight)
                if round_number:  # the first warms up
                    rates[name].append(rate)
                    print(f"round {round_number}: {name}: {rate:,.0f} tok/s", flush=True)
    _print(rates, spent, given.output_tokens)


def _print(rates: Mapping[str, list[float]], spent: Mapping[str, list[Spent]], output_tokens: int) -> None:
    base = statistics.median(rates["LLM.generate"])
    for name, values in rates.items():
        median = statistics.median(values)
        span = f"{median:7,.0f} tok/s ({min(values):,.0f} to {max(values):,.0f})"
        print(f"{name:34} {median / output_tokens:6,.1f} req/s {span} {median / base:6.1%}")
        for each in spent[name]:
            if each.cores >= _LEAST_CORES:
                waited = "" if each.waited is None else f", waited for a core {each.waited:4.0%}"
                print(f"    {each.name:22} {each.cores:5.2f} cores; busiest thread {each.ran:5.0%}{waited}")


if __name__ == "__main__":
    main()
