"""Findings about the load over time, on simulated runs: overload, cold start, and how often they are false.

Overload: of runs of 3,000 requests at 1.05 of capacity at least 80 % have the finding ``queue_growing``; at 0.9 at most 2 %.
Cold start: of runs of 100 s whose first 5 or 20 s take three times as long, the steady window's mean TTFT is within 5 % of that
of a run without a cold start, or the run has the finding ``cold_start`` or ``not_steady``; without a cold start at most 2 %
have ``cold_start``.

Run: python -m benchmarks.load_findings [--runs 200] [--seed 31]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tabulate import tabulate

from benchmarks.interval_coverage import as_requests
from benchmarks.serving_processes import Engine, Process, Run, queue
from reports.metrics.configuration import ConfiguredLoad
from reports.metrics.in_flight import queue_growth
from reports.metrics.output_events import completions
from reports.metrics.steady_state import find_cold_start, find_steady

_LOADS = (0.8, 0.9, 0.95, 1.05, 1.2)
_SIZES = (700, 3_000, 10_000)
_COLD_S, _COLD_RATIO, _COLD_RUN_S = (0.0, 5.0, 20.0), 3.0, 100.0
_STEADY_TOLERANCE = 0.05


@dataclass(frozen=True)
class Target:
    """Processes of one target at any load; ``rate_per_s`` at full load."""

    name: str
    rate_per_s: float
    variation: float | None  # of the services of a queue; None: an engine

    def at(self, load: float) -> Process:
        if self.variation is None:
            return replace(_ENGINE.at("", load), settle=0)
        return replace(queue("", load, self.variation), settle=0)


_ENGINE = Engine()
_TARGETS = (
    Target("M/M/1", 100.0, 1.0),
    Target("M/D/1", 100.0, 0.0),
    Target("M/lognormal 0.3/1", 100.0, 0.3),
    Target("in-flight batching", _ENGINE.capacity_per_s, None),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="simulated runs of each target and load")
    parser.add_argument("--seed", type=int, default=31)
    options = parser.parse_args()
    start_s = time.monotonic()
    rows = [
        (target.name, f"{load:g}", f"{size:,}", *(f"{share:.1%}" for share in overload(target, load, size, options)))
        for target in _TARGETS
        for load in _LOADS
        for size in _SIZES
    ]
    print(tabulate(rows, headers=("target", "load", "requests", "queue_growing", "any finding"), disable_numparse=True))
    cold = [
        (target.name, f"{load:g}", f"{seconds:g} s", *(f"{share:.1%}" for share in cold_start(target, load, seconds, options)))
        for target in _TARGETS
        for load in (0.5, 0.7)
        for seconds in _COLD_S
    ]
    headers = ("target", "load", "cold", "cold_start", "steady TTFT right, or a finding")
    print(f"\n{tabulate(cold, headers=headers, disable_numparse=True)}\n{time.monotonic() - start_s:.0f} s", file=sys.stdout)


def overload(target: Target, load: float, size: int, options: argparse.Namespace) -> Sequence[float]:
    """The shares of runs with ``queue_growing``, and with that or no steady state."""
    growing, unsteady = 0, 0
    configured = ConfiguredLoad(rate_per_s=_offered_per_s(target, load))
    for k in range(options.runs):
        requests = as_requests(_run(target.at(load), size, [options.seed, size, k]))
        grows = queue_growth(requests, configured.rate_per_s) is not None
        growing += grows
        unsteady += grows or find_steady(requests, completions(requests), configured).window_ns is None
    return growing / options.runs, unsteady / options.runs


def _offered_per_s(target: Target, load: float) -> float:
    return target.rate_per_s * (load if target.variation is None else 1.0)  # a queue's load lies in its services


def cold_start(target: Target, load: float, seconds: float, options: argparse.Namespace) -> Sequence[float]:
    """The shares of runs with ``cold_start``, and with it, no steady state, or a steady TTFT near that without a cold start."""
    found, right = 0, 0
    size = int(_offered_per_s(target, load) * _COLD_RUN_S)
    for k in range(options.runs):
        plain = _run(target.at(load), size, [options.seed, k])
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
    return found / options.runs, right / options.runs


def _near(run: Run, plain: Run, window_ns: tuple[float, float]) -> bool:
    due_ns = run.arrivals_s * 1e9
    within = (due_ns >= window_ns[0]) & (due_ns <= window_ns[1])
    true_ms = float(plain.ttft_ms[within].mean())
    return abs(float(run.ttft_ms[within].mean()) - true_ms) <= _STEADY_TOLERANCE * true_ms


def _run(process: Process, size: int, seed: list[int]) -> Run:
    rng = np.random.default_rng(seed)
    return process.run(process.work(size, rng), rng)


if __name__ == "__main__":
    main()
