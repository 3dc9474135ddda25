"""What a sitting measures: vLLM alone, the five models on Triton over vLLM, and vLLM's own OpenAI server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import alone_in_vllm
from benchmarks.alone_in_vllm import Load
from benchmarks.driving import requests_of
from benchmarks.gpu.processes import until_the_end
from benchmarks.gpu.stages import OFFLINE, OPENAI, TRITON
from serving.engines.protocol import EngineOptions

BENCH = str(Path(sys.executable).with_name("bench"))
_READY_S = 420.0
_CORES_AN_INSTANCE = 4
_WARM_UP = requests_of(50, 128, 20)


@dataclass(frozen=True)
class Deployment:
    """What both serve. ``engine_args`` are arguments of vLLM's AsyncEngineArgs, KEY=VALUE; ``memory_share`` that of a GPU.

    ``max_num_tokens`` is the most of a step: the defaults of vLLM's classes differ, and its rate with them.
    """

    engine_python: str
    model_dir: Path
    engine_args: tuple[str, ...]
    max_num_sequences: int
    max_num_tokens: int
    memory_share: float


@dataclass(frozen=True)
class Target:
    """A server that answers at ``port`` of this machine: the options of ``bench`` that name it."""

    port: int
    options: tuple[str, ...]


@dataclass(frozen=True)
class _Server:
    command: tuple[str, ...]
    ready_url: str
    target: Target


@contextmanager
def deployed(deployment: Deployment, out: Path, wanted: Collection[str]) -> Iterator[tuple[Load | None, dict[str, Target]]]:
    """vLLM alone and the servers of ``wanted``, started together: those that became ready.

    Logs are in ``out``; why one is not ready is printed.
    """
    servers = {name: make(deployment, out) for name, make in ((TRITON, _triton), (OPENAI, _openai)) if name in wanted}
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(_running(server.command, out / f"{name}-server.log")) for name, server in servers.items()
        }
        alone, targets = None, {}
        try:
            if OFFLINE in wanted:
                alone = stack.enter_context(
                    alone_in_vllm.offline(deployment.model_dir, _options(deployment), out / "offline.log")
                )
                alone(_WARM_UP, {})
        except RuntimeError as error:
            print(error, flush=True)
        for name, server in servers.items():
            try:
                _wait(processes[name], server.ready_url, out / f"{name}-server.log")
                targets[name] = server.target
            except RuntimeError as error:
                print(f"{name}: {error}", flush=True)
        yield alone, targets


def _options(deployment: Deployment) -> EngineOptions:
    return EngineOptions(
        max_num_sequences=deployment.max_num_sequences,
        max_num_tokens=deployment.max_num_tokens,
        kv_cache_free_gpu_mem_fraction=deployment.memory_share,
        enable_kv_cache_reuse=False,
        guided_decoding_backend="",
        engine_python=deployment.engine_python,
        engine_arg=deployment.engine_args,
    )


def _triton(deployment: Deployment, out: Path) -> _Server:
    """The pipeline, with decoupled models, a response a token, and no cache of prompts: some runs send the same ones."""
    http, grpc, metrics = _free_ports(3)
    command = (
        BENCH, "serve", "--engine", "vllm", "--engine_python", deployment.engine_python,
        "--model_dir", str(deployment.model_dir), "--max_num_sequences", str(deployment.max_num_sequences),
        "--max_num_tokens", str(deployment.max_num_tokens),
        "--kv_cache_free_gpu_mem_fraction", str(deployment.memory_share),
        "--max_stream_interval", "1", "--core_instance_count", str(max(1, len(os.sched_getaffinity(0)) // _CORES_AN_INSTANCE)),
        "--log_file", str(out / "triton_log.txt"), "--no_enable_kv_cache_reuse",
        "--http_port", str(http), "--grpc_port", str(grpc), "--metrics_port", str(metrics),
        *(part for argument in deployment.engine_args for part in ("--engine_arg", argument)),
    )  # fmt: skip
    options = ("-i", "grpc", "--url", f"127.0.0.1:{grpc}", "--metrics_url", f"http://127.0.0.1:{metrics}/metrics")
    return _Server(command, f"http://127.0.0.1:{http}/v2/health/ready", Target(grpc, options))


def _openai(deployment: Deployment, _: Path) -> _Server:
    """``vllm serve`` with one API process, as it starts by default."""
    (port,) = _free_ports(1)
    arguments = [part for argument in deployment.engine_args for part in _option(*argument.split("=", 1))]
    command = (
        deployment.engine_python, "-m", "vllm.entrypoints.cli.main", "serve", str(deployment.model_dir),
        "--served-model-name", "model", "--host", "127.0.0.1", "--port", str(port), "--disable-uvicorn-access-log",
        "--gpu-memory-utilization", str(deployment.memory_share),
        "--no-enable-prefix-caching", "--max-num-seqs", str(deployment.max_num_sequences),
        "--max-num-batched-tokens", str(deployment.max_num_tokens), *arguments,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    options = ("-i", "openai", "--url", url, "--model", "model", "--ignore_eos", "--tokenizer", str(deployment.model_dir))
    return _Server(command, f"{url}/health", Target(port, options))


def _option(key: str, value: str) -> tuple[str, ...]:
    """An argument of the engine as vLLM's command line takes it: a switch has no value."""
    name = key.replace("_", "-")
    if value.lower() in ("true", "false"):
        return (f"--{name}",) if value.lower() == "true" else (f"--no-{name}",)
    return f"--{name}", value


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``command`` in a session of its own, until the context ends. Raises RuntimeError where there is no such program."""
    if shutil.which(command[0]) is None:
        raise RuntimeError(f"{command[0]} cannot be run")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={"VLLM_NO_USAGE_STATS": "1", **os.environ},
        )
    with until_the_end(process):
        yield process


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline_s = time.monotonic() + _READY_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5.0):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    tail = log.read_text(encoding="utf-8", errors="replace")[-2_000:]
    raise RuntimeError(f"the server is not ready after {_READY_S:g} s, or has ended:\n{tail}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(free.getsockname()[1]) for free in sockets]
    for free in sockets:
        free.close()
    return ports
