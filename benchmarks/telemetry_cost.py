"""What watching costs: reading the server's metrics, its tokens/s and our slip; and the probe, the worker's CPU.

    python benchmarks/telemetry_cost.py [--rounds 5] [--periods 1 0.1] [--requests 400] [--concurrency 32] [--rate 40]

One server, asked without and with readings of its metrics, in turns. A closed loop gives tokens/s, an open one the client's
slip and how late its event loop woke. Each round gives one ratio to its own turn without readings; their median is the result.
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

from harness.host.clock import now_ns
from harness.observation.event_loop_probe import PERIOD_NS, LoopProbe
from harness.records.run_folder import RunFolder
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec

BENCH = str(Path(sys.executable).parent / "bench")
LENGTHS = ["--input_mean", "64", "--input_stdev", "8", "--output_mean", "64", "--output_stdev", "8"]
PROBE_S = 5.0


def measure(server: Server, folder: Path, period_s: float, requests: int, *load: str) -> dict[str, Any]:
    """The summary of one run, with the mean time of a reading."""
    target = ["--url", server.addresses.grpc, "--metrics_url", server.addresses.metrics, "--run_dir", str(folder)]
    telemetry = ["--telemetry_period", str(period_s), "--num_requests", str(requests)]
    result = subprocess.run([BENCH, "token_norm_dist", *LENGTHS, *target, *telemetry, *load], capture_output=True, text=True)
    assert result.returncode in (0, 3), result.stderr
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    assert found["requests"]["failed"] == 0, found["requests"]
    table = RunFolder(folder).read_server()
    found["scrape_ms"] = None if table is None else statistics.mean(set(table["scrape_ns"].to_pylist())) / 1e6
    return found


def probe_cpu_us() -> float:
    """CPU of one sample of the worker's probe, in µs: an idle loop with it against one without."""

    async def idle(path: Path | None) -> float:
        before = time.thread_time()
        if path is None:
            await asyncio.sleep(PROBE_S)
        else:
            async with LoopProbe(path, 0, now_ns()):
                await asyncio.sleep(PROBE_S)
        return time.thread_time() - before

    with tempfile.TemporaryDirectory() as folder:
        used_s: float = uvloop.run(idle(Path(folder) / "probe")) - uvloop.run(idle(None))
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
    found: dict[float, list[dict[str, Any]]] = {period: [] for period in periods}
    # The same prompts come again each round.
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, engine_options=EngineOptions(enable_kv_cache_reuse=False))
    with tempfile.TemporaryDirectory() as name, deploy(spec, choose_addresses(), Path(name) / "log") as server:
        folder = Path(name)
        for number in range(arguments.rounds + 1):  # the first warms up and is not counted
            order = periods if number % 2 else periods[::-1]  # none is always the first of a round
            for period in order:
                closed = measure(
                    server,
                    folder / f"{number}-{period}-c",
                    period,
                    arguments.requests,
                    "--concurrency",
                    str(arguments.concurrency),
                )
                opened = measure(
                    server, folder / f"{number}-{period}-o", period, arguments.requests, "--request_rate", str(arguments.rate)
                )
                row = {
                    "tokens/s": closed["metrics"]["output_token_throughput"]["value"],
                    "slip p99 ms": opened["metrics"]["slip_ms"]["p99"],
                    "lag p99 ms": opened["client"]["lag"]["p99_ms"],
                    "TTFT p50 ms": opened["metrics"]["ttft_ms"]["sent"]["p50"],
                    "reading ms": closed["scrape_ms"],
                }
                if number:
                    found[period].append(row)
                    shown = ", ".join(f"{key} {value:,.2f}" for key, value in row.items() if value is not None)
                    print(f"round {number}, {f'every {period:g} s' if period else 'no readings'}: {shown}", flush=True)
    for period in periods:
        print(f"\n{f'readings every {period:g} s' if period else 'no readings'}")
        for key in ("tokens/s", "slip p99 ms", "lag p99 ms", "TTFT p50 ms", "reading ms"):
            values = [row[key] for row in found[period] if row[key] is not None]
            if not values:
                continue
            line = f"  {key:12} {statistics.median(values):10,.3f} ({min(values):,.3f} to {max(values):,.3f})"
            if period and key != "reading ms":
                ratios = [row[key] / without[key] for row, without in zip(found[period], found[0.0], strict=True)]
                line += f"; ratio to none {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
            print(line)
    sample_us = probe_cpu_us()
    print(f"\nprobe of a worker: {sample_us:.0f} µs of CPU a sample, {sample_us * 1e-6 / (PERIOD_NS / 1e9):.2%} of a core")


if __name__ == "__main__":
    main()
