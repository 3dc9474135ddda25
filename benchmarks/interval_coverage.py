"""How often 95 % intervals hold the truth, over simulated runs whose neighbours are correlated.

Each process gives the first-token latencies of a run; the truth is that of one very long run. The intervals are those of
``bench report``. Must: each is right in 90 % to 99 % of the runs
for which it is given. A run too short for its correlation gets none; where most runs of a process get none, the few that do
look calmer than they are, and there the wrong ones must be at most 10 % of all runs.

Run: python benchmarks/interval_coverage.py [--runs 200]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from tabulate import tabulate

from reports.latency import latencies_ms
from reports.requests import FloatArray, Requests
from reports.statistics import summarise
from reports.windows import whole_window

TOKENS = 3
GAP_S = 0.01  # mean gap between arrivals; the rate in truth is its inverse
MEASURES = ("mean TTFT", "p50 TTFT", "p99 TTFT", "requests/s", "tokens/s")

Interval = tuple[float, float] | None


@dataclass(frozen=True)
class Process:
    """A simulated target: arrival times (s) and first-token latencies (ms) of ``requests`` requests."""

    name: str
    requests: int
    simulate: Callable[[int, np.random.Generator], tuple[FloatArray, FloatArray]]


def queue(load: float) -> Callable[[int, np.random.Generator], tuple[FloatArray, FloatArray]]:
    """One server, exponential gaps and services (M/M/1), first come first served: the time in the system."""

    def simulate(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        settle = 3_000
        gaps, services = rng.exponential(GAP_S, n + settle), rng.exponential(load * GAP_S, n + settle)
        steps = np.concatenate([[0.0], np.cumsum(services[:-1] - gaps[1:])])
        waits = steps - np.minimum.accumulate(steps)  # Lindley's recursion, unrolled
        return np.cumsum(gaps[settle:]), (waits + services)[settle:] * 1e3

    return simulate


def autoregressive(correlation: float) -> Callable[[int, np.random.Generator], tuple[FloatArray, FloatArray]]:
    """Latencies whose logarithms are a first-order autoregression: 20 ms in the median, with a long tail."""

    def simulate(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        noise = rng.normal(size=n + 500) * np.sqrt(1 - correlation**2)
        logarithms: NDArray[np.float64] = lfilter([1.0], [1.0, -correlation], noise)[500:]
        return np.cumsum(rng.exponential(GAP_S, n)), 20.0 * np.exp(0.6 * logarithms)

    return simulate


PROCESSES = (
    Process("M/M/1 at 50 % load", 5_000, queue(0.5)),
    Process("M/M/1 at 70 % load", 20_000, queue(0.7)),
    Process("M/M/1 at 80 % load", 40_000, queue(0.8)),
    Process("M/M/1 at 70 % load, short", 5_000, queue(0.7)),
    Process("M/M/1 at 80 % load, short", 1_000, queue(0.8)),
    Process("autoregressive, 0.9", 5_000, autoregressive(0.9)),
    Process("independent", 5_000, autoregressive(0.0)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    runs, seed = options.runs, options.seed
    began = time.monotonic()
    rows, wrong = [], []
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for number, process in enumerate(PROCESSES):
            truth = true_values(process)
            intervals = list(pool.map(intervals_of_run, repeat(number), repeat(seed), range(runs), chunksize=5))
            for measure, value, given in zip(MEASURES, truth, zip(*intervals, strict=True), strict=True):
                row = coverage(value, given)
                rows.append((process.name, process.requests, measure, f"{value:.3f}", *row))
                wrong += [] if row[-1] == "yes" else [(process.name, measure)]
    print(f"95 % intervals over {runs} runs a process:\n")
    headers = ("process", "requests", "of", "truth", "given", "hold it", "wrong, of all runs", "as it must")
    print(tabulate(rows, headers=headers, disable_numparse=True))
    print(f"\n{time.monotonic() - began:.0f} s. " + (f"Outside: {wrong}" if wrong else "All as they must be."))
    sys.exit(1 if wrong else 0)


def true_values(process: Process) -> tuple[float, ...]:
    """Mean, p50 and p99 of one very long run; the rates are known."""
    _, latencies = process.simulate(20_000_000, np.random.default_rng(2**32))
    p50, p99 = np.quantile(latencies, [0.50, 0.99])
    return float(latencies.mean()), float(p50), float(p99), 1 / GAP_S, TOKENS / GAP_S


def intervals_of_run(process: int, seed: int, run: int) -> tuple[Interval, ...]:
    """The five intervals that the report of one simulated run gives."""
    simulated = PROCESSES[process]
    arrivals_s, ttft_ms = simulated.simulate(simulated.requests, np.random.default_rng([seed, process, run]))
    requests = as_requests(arrivals_s, ttft_ms)
    ttft = summarise(latencies_ms(requests, requests.first_token_ns, requests.scheduled_ns))
    whole = whole_window(requests, ttft, None)
    assert ttft is not None
    assert whole is not None
    assert whole.request_throughput is not None
    assert whole.output_token_throughput is not None
    throughputs = (whole.request_throughput.interval, whole.output_token_throughput.interval)
    return (ttft.mean_interval, ttft.p50_interval, ttft.p99_interval, *throughputs)


def as_requests(arrivals_s: FloatArray, ttft_ms: FloatArray) -> Requests:
    """A run that was sent on time; each request's further tokens follow its first, 1 ms apart."""
    n = arrivals_s.size
    scheduled_ns = arrivals_s * 1e9
    tokens_ns = (scheduled_ns + ttft_ms * 1e6)[:, None] + np.arange(TOKENS) * 1e6
    return Requests(
        index=np.arange(n),
        outcome=np.full(n, "done"),
        scheduled_ns=scheduled_ns,
        released_ns=scheduled_ns,
        sent_ns=scheduled_ns,
        done_ns=tokens_ns[:, -1],
        input_tokens=np.full(n, 8.0),
        output_tokens=np.full(n, float(TOKENS)),
        requested_output_tokens=np.full(n, float(TOKENS)),
        ignore_eos=np.zeros(n, dtype=np.bool_),
        prompt_echoed=np.zeros(n, dtype=np.bool_),
        token_times_ns=tokens_ns.ravel(),
        token_counts=np.ones(n * TOKENS),
        token_starts=np.arange(n + 1) * TOKENS,
        errors=(None,) * n,
        output_tokens_sources=("ids",),
    )


def coverage(truth: float, intervals: tuple[Interval, ...]) -> tuple[str, str, str, str]:
    """How many were given, the share of them that hold the truth, the wrong ones of all runs, and whether it is as must be."""
    held = [low <= truth <= high for low, high in given(intervals)]
    share = float(np.mean(held)) if held else float("nan")
    wrong = held.count(False) / len(intervals)
    right = 0.90 <= share <= 0.99 if len(held) >= len(intervals) / 2 else wrong <= 0.10
    return str(len(held)), f"{share:.1%}" if held else "–", f"{wrong:.1%}", "yes" if right else "NO"


def given(intervals: tuple[Interval, ...]) -> Iterator[tuple[float, float]]:
    return (interval for interval in intervals if interval is not None)


if __name__ == "__main__":
    main()
