"""Findings about the load over time, on simulated runs: overload, cold start, and how often they are false.

Overload: of runs of 3,000 requests at 1.05 of capacity at least 80 % have the finding ``queue_growing``; at 0.9 at most 2 %.
Beside it, how often ``bench compare`` calls two such runs of equal servers different: at most 5 %.
Cold start: of runs of 100 s whose first 5 or 20 s take three times as long, the steady window's mean TTFT is within 5 % of that
of a run without a cold start, or the run has the finding ``cold_start`` or ``not_steady``; without a cold start at most 2 %
have ``cold_start``. So do at most 2 % of runs of a load that falls, or begins with a burst.

Run: python -m benchmarks.load_findings [--runs 200] [--seed 31] [--processes 2]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from tabulate import tabulate

from benchmarks.compare_honesty import differences, measured
from benchmarks.interval_coverage import as_requests
from benchmarks.serving_processes import ENGINES, GAP_S, Engine, Process, Run, Times, Work, queue
from reports.compare.measures import Measured
from reports.metrics.cold_start import find_cold_start
from reports.metrics.configuration import ConfiguredLoad
from reports.metrics.in_flight import queue_growth
from reports.metrics.output_events import completions
from reports.metrics.steady_state import find_steady
from reports.statistics.arrays import FloatArray

_LOADS = (0.8, 0.9, 0.95, 1.05, 1.2)
_SIZES = (700, 3_000, 10_000)
_COLD_S, _COLD_RATIO, _COLD_RUN_S = (0.0, 5.0, 20.0), 3.0, 100.0
_LOADS_OF_COLD_STARTS = (0.5, 0.7)
_STEADY_TOLERANCE = 0.05
_FALLING_SIZE = 3_000  # requests
_BURST_SHAPE = 1.5  # of the Gamma distribution of the gaps between deliveries


@dataclass(frozen=True)
class Target:
    """Processes of one target at any load, from an idle start; ``offered_per_s`` is the rate of the arrivals at a load."""

    name: str
    at: Callable[[float], Process]
    offered_per_s: Callable[[float], float]


def queue_target(name: str, variation: float) -> Target:
    """A queue, whose load lies in its services."""
    return Target(name, lambda load: replace(queue("", load, variation), settle=0), lambda _: 1.0 / GAP_S)


def _engine(name: str, engine: Engine) -> Target:
    return Target(name, lambda load: replace(engine.at("", load), settle=0), lambda load: load * engine.capacity_per_s)


def _in_bursts(target: Target, requests: float) -> Target:
    """``target`` behind a front end that delivers the ends of answers at random times, of ``requests`` each at capacity."""
    gap_s = requests / target.offered_per_s(1.0)

    def latencies(process: Process, work: Work, rng: np.random.Generator) -> Times:
        times = process.latencies(work, rng)
        ends_s = times.arrivals_s + times.e2e_ms / 1e3
        gaps_s = rng.gamma(_BURST_SHAPE, gap_s / _BURST_SHAPE, int(2 * ends_s.max() / gap_s) + 100)
        deliveries_s = np.append(np.cumsum(gaps_s), np.inf)
        delivered_s = np.minimum(deliveries_s[np.searchsorted(deliveries_s, ends_s)], ends_s.max() + gap_s)
        return replace(times, e2e_ms=(delivered_s - times.arrivals_s) * 1e3)

    def at(load: float) -> Process:
        process = target.at(load)
        return replace(process, latencies=partial(latencies, process))

    return replace(target, name=f"bursts of {requests:g}", at=at)


TARGETS = (
    queue_target("M/M/1", 1.0),
    queue_target("M/D/1", 0.0),
    queue_target("M/lognormal 0.3/1", 0.3),
    _engine("in-flight batching", Engine()),
    *(_engine(name, engine) for name, engine in ENGINES),
    *(_in_bursts(_engine("in-flight batching", Engine()), requests) for requests in (30, 100)),
)

_FIRST_ENGINE = 3  # of the targets
_SHAPES: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "falls to 0": lambda even: 1.0 - np.sqrt(1.0 - even),
    "half in a quarter": lambda even: np.where(even < 0.5, even / 2, 0.25 + 1.5 * (even - 0.5)),
    "burst first": lambda even: np.where(even < 0.15, even / 100, (even - 0.15) / 0.85),
}
"""The share of the sending after which so large a share of the arrivals has come, by the share at an even load."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="simulated runs of each target and load")
    parser.add_argument("--processes", type=int, default=2, help="that simulate beside each other")
    parser.add_argument("--seed", type=int, default=31)
    options = parser.parse_args()
    start_s = time.monotonic()
    jobs = [(k, load, size, options.seed, options.runs) for k in range(len(TARGETS)) for load in _LOADS for size in _SIZES]
    cold_jobs = [
        (k, load, seconds, options.seed, options.runs)
        for k in range(len(TARGETS))
        for load in _LOADS_OF_COLD_STARTS
        for seconds in _COLD_S
    ]
    engines = range(_FIRST_ENGINE, _FIRST_ENGINE + 1 + len(ENGINES))
    falling_jobs = [(k, load, _FALLING_SIZE, options.seed, options.runs) for k in engines for load in _LOADS_OF_COLD_STARTS]
    with ProcessPoolExecutor(options.processes) as pool:
        _print(jobs, pool.map(overload, jobs), ("requests", "queue_growing", "any finding", "A/A, two schedules", "one"))
        _print(cold_jobs, pool.map(cold_start, cold_jobs), ("cold, s", "cold_start", "steady TTFT right, or a finding"))
        _print(falling_jobs, pool.map(falling_load, falling_jobs), ("requests", *(f"cold_start, {name}" for name in _SHAPES)))
    print(f"{time.monotonic() - start_s:.0f} s, {options.runs} runs a cell")


Job = tuple[int, float, float, int, int]  # target, load, requests or seconds of a cold start, seed, runs


def _print(jobs: Sequence[Job], found: Iterable[Sequence[float]], headers: Sequence[str]) -> None:
    rows = [
        (TARGETS[k].name, f"{load:g}", f"{size:,}", *(f"{share:.1%}" for share in shares))
        for (k, load, size, *_), shares in zip(jobs, found, strict=True)
    ]
    print(tabulate(rows, headers=("target", "load", *headers), disable_numparse=True), end="\n\n", flush=True)


def overload(job: Job) -> Sequence[float]:
    """The shares of runs with ``queue_growing``, and with that or no steady state; and of pairs of runs of two
    schedules, and of one, those that are called different in any measure.
    """
    number, load, size, seed, runs = job
    target, growing, unsteady, different = TARGETS[number], 0, 0, np.zeros(2)
    process, configured = target.at(load), ConfiguredLoad(rate_per_s=target.offered_per_s(load))
    for k in range(runs):
        rng = np.random.default_rng([seed, int(size), k])
        work = process.work(int(size), rng)
        run, same, other = process.run(work, rng), process.run(work, rng), process.run(process.work(int(size), rng), rng)
        requests = as_requests(run)
        grows = queue_growth(requests, configured.rate_per_s) is not None
        growing += grows
        unsteady += grows or find_steady(requests, completions(requests), configured).window_ns is None
        of_run = measured(run)
        different += [_differ(of_run, other, False), _differ(of_run, same, True)]
    return growing / runs, unsteady / runs, *(float(count) / runs for count in different)


def _differ(a: dict[str, Measured], b: Run, one_schedule: bool) -> bool:
    return any(found.verdict.differs for found in differences([a], [measured(b)], one_schedule))


def cold_start(job: Job) -> Sequence[float]:
    """The shares of runs with ``cold_start``, and with it, no steady state, or a steady TTFT near that without a cold start."""
    number, load, seconds, seed, runs = job
    target, found, right = TARGETS[number], 0, 0
    process, size = target.at(load), int(target.offered_per_s(load) * _COLD_RUN_S)
    for k in range(runs):
        rng = np.random.default_rng([seed, k])
        plain = process.run(process.work(size, rng), rng)
        cold = plain.arrivals_s < seconds
        run = replace(
            plain,
            ttft_ms=plain.ttft_ms * np.where(cold, _COLD_RATIO, 1.0),
            e2e_ms=plain.e2e_ms + plain.ttft_ms * np.where(cold, _COLD_RATIO - 1.0, 0.0),
        )
        requests = as_requests(run)
        finding = find_cold_start(requests) is not None
        steady = find_steady(requests, completions(requests)).window_ns
        found += finding
        right += finding or steady is None or _near(run, plain, steady)
    return found / runs, right / runs


def falling_load(job: Job) -> Sequence[float]:
    """For each shape of a load, the shares of runs with ``cold_start``, of a target that is as fast early as later."""
    number, load, size, seed, runs = job
    target, found = TARGETS[number], np.zeros(len(_SHAPES))
    process, length_s = target.at(load), size / target.offered_per_s(load)
    for k in range(runs):
        rng = np.random.default_rng([seed, k])
        work = process.work(int(size), rng)
        even = np.sort(rng.random(int(size)))
        for n, shape in enumerate(_SHAPES.values()):
            run = process.run(replace(work, arrivals_s=np.sort(shape(even)) * length_s), rng)
            found[n] += find_cold_start(as_requests(run)) is not None
    return list(map(float, found / runs))


def _near(run: Run, plain: Run, window_ns: tuple[float, float]) -> bool:
    due_ns = run.arrivals_s * 1e9
    within = (due_ns >= window_ns[0]) & (due_ns <= window_ns[1])
    true_ms = float(plain.ttft_ms[within].mean())
    return abs(float(run.ttft_ms[within].mean()) - true_ms) <= _STEADY_TOLERANCE * true_ms


if __name__ == "__main__":
    main()
