"""Coverage of the 95 % intervals of ``bench report`` over simulated runs with correlated latencies.

Each process yields the first-token latencies of a run; the true value is that of one very long run, or known. Requirement: an
interval contains the true value in 90 % to 99 % of the runs that have it. A run too short for its correlation has no interval,
or only a lower limit of p99; if most runs of a process have no interval, the others underestimate its variance, and then wrong
statements must be at most 10 % of all runs.

Run: python benchmarks/interval_coverage.py [--runs 200] [--seeds 13 14 15 16 17]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.signal import lfilter
from tabulate import tabulate

from reports.metrics.latency import latencies_ms
from reports.metrics.requests import Requests
from reports.metrics.windows import whole_window
from reports.statistics.arrays import FloatArray
from reports.statistics.percentiles import summarise

TOKENS = 3
GAP_S = 0.01  # mean gap between arrivals; the true rate is its inverse
MEASURES = ("mean TTFT", "p50 TTFT", "p99 TTFT", "requests/s", "tokens/s")
LONG_RUN = 10_000_000

Simulate = Callable[[int, np.random.Generator], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Process:
    """A simulated target: arrival times (s) and first-token latencies (ms) of ``requests`` requests."""

    name: str
    requests: int
    simulate: Simulate


@dataclass(frozen=True)
class Statement:
    """A report's statement about one number: an interval, a lower limit (no ``high``), or none (neither)."""

    low: float | None = None
    high: float | None = None

    def holds(self, truth: float) -> bool:
        return self.low is not None and self.low <= truth and (self.high is None or truth <= self.high)


def queue(load: float, service_variation: float = 1.0, shape: float = 1.0) -> Simulate:
    """One server, first come first served: time in the system, by Lindley's recursion.

    Gaps are gamma with ``shape`` (1: Poisson arrivals), services lognormal with this squared coefficient of variation
    (1: exponential, 0: constant).
    """

    def simulate(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        settle = min(20_000, max(1_000, round(60 / (1 - load) ** 2)))
        gaps = rng.gamma(shape, GAP_S / shape, n + settle)
        services = load * GAP_S * _services(service_variation, n + settle, rng)
        steps = np.concatenate([[0.0], np.cumsum(services[:-1] - gaps[1:])])
        waits = steps - np.minimum.accumulate(steps)
        return np.cumsum(gaps[settle:]), (waits + services)[settle:] * 1e3

    return simulate


def _services(variation: float, n: int, rng: np.random.Generator) -> FloatArray:
    if variation == 0:
        return np.ones(n)
    if variation == 1:
        return rng.exponential(1.0, n)
    sigma = np.sqrt(np.log(1 + variation))
    return rng.lognormal(-sigma * sigma / 2, sigma, n)


def autoregressive(correlation: float) -> Simulate:
    """Latencies whose logarithms are a first-order autoregression: median 20 ms, with a long tail."""

    def simulate(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        noise = rng.normal(size=n + 1_000) * np.sqrt(1 - correlation**2)
        logarithms: FloatArray = lfilter([1.0], [1.0, -correlation], noise)[1_000:]
        return np.cumsum(rng.exponential(GAP_S, n)), 20.0 * np.exp(0.6 * logarithms)

    return simulate


def spells(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Alternating spells: 200 requests on average, then 50 with four times the latency, and so on."""
    rounds = n // 100 + 100
    lengths = np.stack([rng.geometric(1 / 200, rounds), rng.geometric(1 / 50, rounds)], axis=1).ravel()
    slow = np.repeat(np.tile([1.0, 4.0], rounds), lengths)
    start = int(rng.integers(0, 5_000))
    return np.cumsum(rng.exponential(GAP_S, n)), 20.0 * rng.lognormal(0.0, 0.4, n) * slow[start : start + n]


PROCESSES = (
    Process("independent", 700, autoregressive(0.0)),
    Process("independent", 5_000, autoregressive(0.0)),
    Process("autoregressive, 0.5", 2_000, autoregressive(0.5)),
    Process("autoregressive, 0.9", 2_000, autoregressive(0.9)),
    Process("autoregressive, 0.9", 10_000, autoregressive(0.9)),
    Process("autoregressive, 0.98", 10_000, autoregressive(0.98)),
    Process("M/M/1 at 50 % load", 700, queue(0.5)),
    Process("M/M/1 at 50 % load", 5_000, queue(0.5)),
    Process("M/M/1 at 70 % load", 2_000, queue(0.7)),
    Process("M/M/1 at 70 % load", 10_000, queue(0.7)),
    Process("M/M/1 at 80 % load", 2_000, queue(0.8)),
    Process("M/M/1 at 80 % load", 10_000, queue(0.8)),
    Process("M/M/1 at 80 % load", 40_000, queue(0.8)),
    Process("M/M/1 at 90 % load", 2_000, queue(0.9)),
    Process("M/M/1 at 90 % load", 10_000, queue(0.9)),
    Process("M/D/1 at 80 % load", 5_000, queue(0.8, service_variation=0.0)),
    Process("M/G/1 at 50 % load", 10_000, queue(0.5, service_variation=4.0)),
    Process("M/G/1 at 70 % load", 10_000, queue(0.7, service_variation=4.0)),
    Process("bursts (G/M/1) at 50 % load", 2_000, queue(0.5, shape=0.25)),
    Process("bursts (G/M/1) at 70 % load", 10_000, queue(0.7, shape=0.25)),
    Process("slow spells", 5_000, spells),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="per process and seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[13, 14, 15, 16, 17])
    options = parser.parse_args()
    start_s = time.monotonic()
    rows, outside = [], []
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        truths = list(pool.map(true_values, range(len(PROCESSES))))
        for number, process in enumerate(PROCESSES):
            jobs = [(number, seed, run) for seed, run in product(options.seeds, range(options.runs))]
            statements = list(pool.map(statements_of_run, jobs, chunksize=10))
            by_seed = [statements[k : k + options.runs] for k in range(0, len(statements), options.runs)]
            for measure, (name, truth) in enumerate(zip(MEASURES, truths[number], strict=True)):
                cells = [coverage(truth, [run[measure] for run in runs]) for runs in by_seed]
                rows.append((process.name, f"{process.requests:,}", name, *summary_cells(cells)))
                outside += [
                    f"seed {seed}: {process.name}, {process.requests:,}, {name}: {cell.share:.1%} of {cell.given}"
                    for seed, cell in zip(options.seeds, cells, strict=True)
                    if not cell.meets_requirement
                ]
    print(f"95 % intervals over {options.runs} runs for each of the seeds {options.seeds}:\n")
    headers = ("process", "requests", "of", "with interval", "correct", "by seed", "lower limit only", "wrong, of all runs")
    print(tabulate(rows, headers=headers, disable_numparse=True))
    cells_judged = len(rows) * len(options.seeds)
    print(f"\n{time.monotonic() - start_s:.0f} s. Outside of 90 % to 99 %: {len(outside)} of {cells_judged} cells.")
    print("\n".join(outside))
    sys.exit(1 if outside else 0)


def true_values(process: int) -> tuple[float, ...]:
    """Mean, p50 and p99 of one very long run, and the known rates."""
    _, latencies = PROCESSES[process].simulate(LONG_RUN, np.random.default_rng([2**32, process]))
    p50, p99 = np.quantile(latencies, [0.50, 0.99])
    return float(latencies.mean()), float(p50), float(p99), 1 / GAP_S, TOKENS / GAP_S


def statements_of_run(job: tuple[int, int, int]) -> tuple[Statement, ...]:
    """The five statements of the report of one simulated run (process, seed, run)."""
    process, seed, run = job
    simulated = PROCESSES[process]
    arrivals_s, ttft_ms = simulated.simulate(simulated.requests, np.random.default_rng([seed, process, run]))
    requests = as_requests(arrivals_s, ttft_ms)
    ttft = summarise(latencies_ms(requests, requests.first_token_ns, requests.scheduled_ns))
    whole = whole_window(requests, ttft, None)
    assert ttft is not None
    assert whole is not None
    assert whole.request_throughput is not None
    assert whole.output_token_throughput is not None
    percentiles = (
        Statement(*one.interval) if one.interval is not None else Statement(one.at_least)
        for one in (ttft.percentile(0.50), ttft.percentile(0.99))
    )
    throughputs = (whole.request_throughput.interval, whole.output_token_throughput.interval)
    return (
        Statement(*(ttft.mean.interval or ())),
        *percentiles,
        *(Statement(*(interval or ())) for interval in throughputs),
    )


def as_requests(arrivals_s: FloatArray, ttft_ms: FloatArray) -> Requests:
    """A run without slip; the tokens of a request are 1 ms apart."""
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
        requested_input_tokens=np.full(n, 8.0),
        server_counted_input=np.zeros(n, dtype=np.bool_),
        output_tokens=np.full(n, float(TOKENS)),
        requested_output_tokens=np.full(n, float(TOKENS)),
        ignore_eos=np.zeros(n, dtype=np.bool_),
        prompt_echoed=np.zeros(n, dtype=np.bool_),
        token_times_ns=tokens_ns.ravel(),
        token_counts=np.ones(n * TOKENS),
        token_starts=np.arange(n + 1) * TOKENS,
        text_tokens=np.full(n, np.nan),
        errors=(None,) * n,
        output_tokens_sources=("ids",),
        worker=np.zeros(n),
        has_reasoning=np.zeros(n, dtype=np.bool_),
        first_output_ns=np.full(n, np.nan),
    )


@dataclass(frozen=True)
class Coverage:
    """Of ``runs`` runs: those with an interval (``given``), with a correct one, with a lower limit only, and with a wrong
    interval or limit.
    """

    runs: int
    given: int
    right: int
    lower_alone: int
    wrong: int

    @property
    def share(self) -> float:
        return self.right / self.given if self.given else float("nan")

    @property
    def meets_requirement(self) -> bool:
        if self.given >= self.runs / 2:
            return 0.90 <= self.share <= 0.99
        return self.wrong / self.runs <= 0.10


def coverage(truth: float, statements: list[Statement]) -> Coverage:
    intervals = [statement for statement in statements if statement.high is not None]
    lower = [statement for statement in statements if statement.high is None and statement.low is not None]
    return Coverage(
        runs=len(statements),
        given=len(intervals),
        right=sum(statement.holds(truth) for statement in intervals),
        lower_alone=len(lower),
        wrong=sum(not statement.holds(truth) for statement in intervals + lower),
    )


def summary_cells(cells: list[Coverage]) -> tuple[str, ...]:
    """Table cells: all seeds together, and the range over the seeds."""
    runs, given, right, lower, wrong = (
        sum(getattr(cell, name) for cell in cells) for name in ("runs", "given", "right", "lower_alone", "wrong")
    )
    shares = [cell.share for cell in cells if cell.given]
    if not given:
        return "none", "–", "–", f"{lower / runs:.0%}", f"{wrong / runs:.1%}"
    by_seed = f"{min(shares):.1%} – {max(shares):.1%}"
    return f"{given / runs:.0%}", f"{right / given:.1%}", by_seed, f"{lower / runs:.0%}", f"{wrong / runs:.1%}"


if __name__ == "__main__":
    main()
