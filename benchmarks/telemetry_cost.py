"""Cost of telemetry: effect of metric scrapes on the server's tokens/s and the client's slip, and CPU time of the sampler.

    python benchmarks/telemetry_cost.py [--rounds 5] [--periods 1 0.1] [--requests 400] [--concurrency 32] [--rate 40]

One server, measured alternately without and with scrapes of its metrics. A closed loop yields tokens/s, an open one the
client's slip and event loop lag. The result is the median over the rounds of the ratio to the run without scrapes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from bench_records.run_folder import RunFolder
from harness.host.clock import now_ns
from harness.observation.event_loop_sampler import PERIOD_NS, LoopSampler
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec

BENCH = str(Path(sys.executable).parent / "bench")
LENGTHS = ["--input_mean", "64", "--input_stdev", "8", "--output_mean", "64", "--output_stdev", "8"]
PROBE_S = 5.0
Row = dict[str, float | None]


def measure(server: Server, folder: Path, period_s: float, requests: int, *load: str) -> dict[str, Any]:
    """Summary of one run, with the mean duration of a scrape."""
    target = ["--url", server.addresses.grpc, "--metrics_url", server.addresses.metrics, "--run_dir", str(folder)]
    telemetry = ["--telemetry_period", str(period_s), "--num_requests", str(requests)]
    result = subprocess.run([BENCH, "token_norm_dist", *LENGTHS, *target, *telemetry, *load], capture_output=True, text=True)
    assert result.returncode in (0, 3), result.stderr
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    assert summary["requests"]["failed"] == 0, summary["requests"]
    table = RunFolder(folder).read_server()
    summary["scrape_ms"] = None if table is None else statistics.mean(set(table["scrape_ns"].to_pylist())) / 1e6
    return summary


def measure_round(server: Server, folder: Path, period_s: float, requests: int, loads: tuple[str, str]) -> Row:
    """One closed loop and one open loop; ``loads`` are its concurrency and its rate."""
    concurrency, rate = loads
    closed = measure(server, folder.with_name(f"{folder.name}-c"), period_s, requests, "--concurrency", concurrency)
    opened = measure(server, folder.with_name(f"{folder.name}-o"), period_s, requests, "--request_rate", rate)
    return {
        "tokens/s": closed["metrics"]["output_token_throughput"]["value"],
        "slip p99 ms": opened["metrics"]["slip_ms"]["p99"],
        "lag p99 ms": opened["client"]["lag"]["p99_ms"],
        "TTFT p50 ms": opened["metrics"]["ttft_ms"]["sent"]["p50"],
        "scrape ms": closed["scrape_ms"],
    }


def sampler_cpu_us() -> float:
    """CPU time of one sample of the worker's sampler in µs: an idle event loop with it against one without."""

    async def idle(path: Path | None) -> float:
        before = time.thread_time()
        if path is None:
            await asyncio.sleep(PROBE_S)
        else:
            async with LoopSampler(path, 0, now_ns()):
                await asyncio.sleep(PROBE_S)
        return time.thread_time() - before

    with tempfile.TemporaryDirectory() as folder:
        used_s: float = uvloop.run(idle(Path(folder) / "samples")) - uvloop.run(idle(None))
    return used_s * 1e6 / (PROBE_S * 1e9 / PERIOD_NS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--periods", type=float, nargs="+", default=[1.0, 0.1])
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--rate", type=float, default=40.0)
    arguments = parser.parse_args()
    periods = [0.0, *arguments.periods]
    rows: dict[float, list[Row]] = {period: [] for period in periods}
    # The prompts are the same in each round.
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, engine_options=EngineOptions(enable_kv_cache_reuse=False))
    with tempfile.TemporaryDirectory() as name, deploy(spec, choose_addresses(), Path(name) / "log") as server:
        for number in range(arguments.rounds + 1):  # the first is the warm-up and is not counted
            order = periods if number % 2 else periods[::-1]  # so that no period is always first in a round
            for period in order:
                loads = (str(arguments.concurrency), str(arguments.rate))
                row = measure_round(server, Path(name) / f"{number}-{period}", period, arguments.requests, loads)
                if number:
                    rows[period].append(row)
                    values = ", ".join(f"{key} {value:,.2f}" for key, value in row.items() if value is not None)
                    print(f"round {number}, {label(period)}: {values}", flush=True)
    for period in periods:
        print_period(period, rows)
    sample_us = sampler_cpu_us()
    print(f"\nsampler of a worker: {sample_us:.0f} µs of CPU per sample, {sample_us * 1e-6 / (PERIOD_NS / 1e9):.2%} of a core")


def label(period_s: float) -> str:
    return f"scrapes every {period_s:g} s" if period_s else "no scrapes"


def print_period(period_s: float, rows: dict[float, list[Row]]) -> None:
    """Medians and ranges over the rounds, and ratios to the runs without scrapes."""
    print(f"\n{label(period_s)}")
    for key in rows[period_s][0]:
        values = [value for row in rows[period_s] if (value := row[key]) is not None]
        if not values:
            continue
        line = f"  {key:12} {statistics.median(values):10,.3f} ({min(values):,.3f} to {max(values):,.3f})"
        if period_s and key != "scrape ms":
            without = [value for row in rows[0.0] if (value := row[key]) is not None]
            ratios = [value / baseline for value, baseline in zip(values, without, strict=True)]
            line += f"; ratio to none {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        print(line)


if __name__ == "__main__":
    main()
