"""What the proxy before Triton costs: the same server directly and through it, over gRPC and server-sent events.

    python -m benchmarks.proxy_cost [--rounds 5] [--requests 300] [--concurrency 16] [--rate 10]

One server, measured in turns. A closed loop yields tokens/s and the CPU time of Triton with its models, and of the proxy; an
open one the TTFT and the E2E latency. Values are medians over the rounds, and ratios the medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.host.processes import read_processes, tree_of
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import ServerAddresses, choose_addresses
from serving.launch.behind_proxy import loopback_addresses, with_proxy
from serving.launch.embedded import embedded_plan
from serving.launch.run import running
from serving.proxy.settings import PROCESS_NAME, ProxyBounds
from serving.repository.pipeline import RepositorySpec, write_repository

BENCH = str(Path(sys.executable).parent / "bench")
LENGTHS = ["--input_mean", "64", "--input_stdev", "8", "--output_mean", "64", "--output_stdev", "8"]
WAYS = ("direct", "proxy")
Row = dict[str, float]


@contextmanager
def proxied_server(folder: Path) -> Iterator[tuple[dict[str, ServerAddresses], int]]:
    """The addresses of each way, and the process of the supervisor."""
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, engine_options=EngineOptions(enable_kv_cache_reuse=False))
    public = choose_addresses()
    own = loopback_addresses(public)
    write_repository(spec, folder / "repository")
    plan = with_proxy(embedded_plan(folder / "repository", own, folder / "log", models=spec.model_names), public, ProxyBounds())
    with running(plan) as server:
        yield {"direct": own, "proxy": public}, server.supervisor_pid


def measure(addresses: ServerAddresses, protocol: str, folder: Path, *load: str) -> dict[str, Any]:
    """Summary of one run."""
    url = addresses.grpc if protocol == "grpc" else addresses.http
    target = ["--url", url, "-i", protocol, "--metrics_url", addresses.metrics, "--run_dir", str(folder)]
    result = subprocess.run([BENCH, "token_norm_dist", *LENGTHS, *target, *load], capture_output=True, text=True)
    assert result.returncode in (0, 3), result.stderr
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    assert summary["requests"]["failed"] == 0, summary["requests"]
    return summary


def cpu_s(supervisor: int) -> tuple[float, float]:
    """CPU time so far of Triton with its models, and of the proxy."""
    processes = read_processes()
    tree = tree_of(processes, [supervisor])
    proxy = sum(processes[pid].cpu_ns for pid in tree if processes[pid].name == PROCESS_NAME)
    return (sum(processes[pid].cpu_ns for pid in tree) - proxy) / 1e9, proxy / 1e9


def measure_round(
    addresses: ServerAddresses, supervisor: int, protocol: str, folder: Path, arguments: argparse.Namespace
) -> Row:
    requests = ["--num_requests", str(arguments.requests)]
    before = cpu_s(supervisor)
    closed = measure(addresses, protocol, folder / "closed", "--concurrency", str(arguments.concurrency), *requests)
    triton_s, proxy_s = (after - start for after, start in zip(cpu_s(supervisor), before, strict=True))
    opened = measure(addresses, protocol, folder / "open", "--request_rate", str(arguments.rate), *requests)
    latencies, tokens = opened["metrics"], 64 * arguments.requests
    return {
        "TTFT p50 ms": latencies["ttft_ms"]["sent"]["p50"],
        "TTFT p99 ms": latencies["ttft_ms"]["sent"]["p99"],
        "E2E p50 ms": latencies["e2e_ms"]["sent"]["p50"],
        "E2E p99 ms": latencies["e2e_ms"]["sent"]["p99"],
        "tokens/s": closed["metrics"]["output_token_throughput"]["value"],
        "Triton µs/token": triton_s / tokens * 1e6,
        "proxy µs/token": proxy_s / tokens * 1e6,
        "CPU µs/token": (triton_s + proxy_s) / tokens * 1e6,
    }


def print_protocol(protocol: str, rows: dict[str, list[Row]]) -> None:
    """Medians of both ways, and their ratio with its range."""
    print(f"\n{protocol:16} {'direct':>10} {'proxy':>10}   ratio")
    for key in rows["direct"][0]:
        direct, proxy = ([row[key] for row in rows[way]] for way in WAYS)
        line = f"{key:16} {statistics.median(direct):10,.2f} {statistics.median(proxy):10,.2f}"
        if key != "proxy µs/token":
            ratios = [through / without for through, without in zip(proxy, direct, strict=True)]
            line += f"   {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--rate", type=float, default=10.0)
    arguments = parser.parse_args()
    rows: dict[str, dict[str, list[Row]]] = {protocol: {way: [] for way in WAYS} for protocol in ("grpc", "http")}
    with tempfile.TemporaryDirectory() as name, proxied_server(Path(name)) as (addresses, supervisor):
        for number in range(arguments.rounds + 1):  # the first is the warm-up and is not counted
            for protocol, ways in rows.items():
                for way in WAYS if number % 2 else WAYS[::-1]:
                    folder = Path(name) / f"{number}-{protocol}-{way}"
                    row = measure_round(addresses[way], supervisor, protocol, folder, arguments)
                    if number:
                        ways[way].append(row)
                        print(
                            f"round {number}, {protocol}, {way}: {', '.join(f'{k} {v:,.1f}' for k, v in row.items())}",
                            flush=True,
                        )
    for protocol, ways in rows.items():
        print_protocol(protocol, ways)


if __name__ == "__main__":
    main()
