"""False positives and power of ``bench compare``: equal runs reported as different, and detection of a TTFT 5 % longer.

Runs are simulated: one server with a queue (M/M/1) or with autocorrelated latencies (autoregressive), streaming three tokens
per request. Equal runs (A/A) share the process, not the noise; in some of the kinds they also share the schedule, like two runs
with one ``--seed``. In A/B the first token is 5 % later. Requirements: at most 5 % of the A/A comparisons report any measure as
different; at least 80 % of the A/B comparisons report a worse TTFT, on runs that are long enough to show 5 % according to
``bench compare`` itself.

Run: python -m benchmarks.compare_honesty [--comparisons 40]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tabulate import tabulate

from benchmarks.interval_coverage import as_requests, autoregressive, queue
from benchmarks.serving_processes import InFlightBatching
from reports.compare.difference import Difference, Verdict, compare_measures
from reports.compare.measures import MEASURES, measure_run
from reports.statistics.arrays import FloatArray

_STEP = 0.05
_NOISE = 0.1  # of paired requests: standard deviation of the logarithm

Simulate = Callable[[int, np.random.Generator], tuple[FloatArray, FloatArray]]
SimulatedPair = tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
"""Arrivals (s) and latencies (ms), shape [requests] each, of two runs of equal servers."""


@dataclass(frozen=True)
class Kind:
    """A kind of pair of runs. ``paired`` runs have the same schedule, hence the same arrivals and lengths."""

    name: str
    simulate: Callable[[int, np.random.Generator], SimulatedPair]
    requests: int
    paired: bool


def two_schedules(simulate: Simulate) -> Callable[[int, np.random.Generator], SimulatedPair]:
    return lambda requests, rng: (simulate(requests, rng), simulate(requests, rng))


def one_schedule(simulate: Simulate) -> Callable[[int, np.random.Generator], SimulatedPair]:
    """Latencies that the schedule explains, but for independent noise of each request."""

    def pairs(requests: int, rng: np.random.Generator) -> SimulatedPair:
        arrivals_s, latencies_ms = simulate(requests, rng)
        a, b = (latencies_ms * rng.lognormal(0.0, _NOISE, latencies_ms.size) for _ in range(2))
        return (arrivals_s, a), (arrivals_s, b)

    return pairs


def one_schedule_in_flight(load: float) -> Callable[[int, np.random.Generator], SimulatedPair]:
    """An engine with in-flight batching, whose steps differ between the runs: what remains of a queue is shared by all."""

    def pairs(requests: int, rng: np.random.Generator) -> SimulatedPair:
        engine = InFlightBatching()
        work = engine.work(requests, load, rng)
        a, b = (engine.latencies_ms(work, rng) for _ in range(2))
        return (work.arrivals_s, a), (work.arrivals_s, b)

    return pairs


KINDS = (
    Kind("independent", two_schedules(autoregressive(0.0)), 700, paired=False),
    Kind("independent", two_schedules(autoregressive(0.0)), 10_000, paired=False),
    Kind("autoregressive 0.9, one schedule", one_schedule(autoregressive(0.9)), 2_000, paired=True),
    Kind("M/M/1 at 50 %", two_schedules(queue(0.5)), 5_000, paired=False),
    Kind("M/M/1 at 70 %, one schedule", one_schedule(queue(0.7)), 5_000, paired=True),
    Kind("in-flight batching at 60 %, one schedule", one_schedule_in_flight(0.6), 700, paired=True),
    Kind("in-flight batching at 85 %, one schedule", one_schedule_in_flight(0.85), 2_000, paired=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=40, help="per kind")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start_s, rows = time.monotonic(), []
    false_positives = equal_pairs = detected = detectable = 0
    for number, kind in enumerate(KINDS):
        rng = np.random.default_rng([options.seed, number])
        equal = [pair(kind, 1.0, rng) for _ in range(options.comparisons)]
        slower = [pair(kind, 1.0 + _STEP, rng) for _ in range(options.comparisons)]
        wrong = sum(any(_is_different(d) for d in differences) for differences in equal)
        able = [differences for differences in slower if _could_show(differences)]
        hits = sum(_ttft_is_worse(differences) for differences in able)
        false_positives, equal_pairs = false_positives + wrong, equal_pairs + len(equal)
        detected, detectable = detected + hits, detectable + len(able)
        schedule = "one" if kind.paired else "two"
        power = f"{hits} of {len(able)}" if able else "–"
        rows.append((kind.name, kind.requests, schedule, f"{wrong} of {len(equal)}", len(able), power))
    headers = ("process", "requests", "schedules", "A/A reported as different", "A/B that could show 5 %", "detected")
    print(tabulate(rows, headers=headers, disable_numparse=True))
    false_share, power_share = false_positives / equal_pairs, detected / detectable if detectable else 0.0
    print(f"\nA/A reported as different: {false_share:.1%} of {equal_pairs} (limit: 5 %)")
    print(f"A/B of +5 % TTFT detected: {power_share:.1%} of {detectable} (required: 80 %)")
    print(f"{time.monotonic() - start_s:.0f} s")
    sys.exit(0 if false_share <= 0.05 and power_share >= 0.80 else 1)


def pair(kind: Kind, factor: float, rng: np.random.Generator) -> tuple[Difference, ...]:
    """Compare two simulated runs; the second run's TTFT is multiplied by ``factor``."""
    (arrivals_s, ttft_ms), (other_arrivals_s, other_ttft_ms) = kind.simulate(kind.requests, rng)
    runs = (as_requests(arrivals_s, ttft_ms), as_requests(other_arrivals_s, other_ttft_ms * factor))
    a, b = ([measure_run(run, streaming=True)] for run in runs)
    return compare_measures(MEASURES, a, b, requests_paired=kind.paired, runs_paired=False)


def _is_different(difference: Difference) -> bool:
    return difference.verdict in (Verdict.BETTER, Verdict.WORSE)


def _could_show(differences: tuple[Difference, ...]) -> bool:
    return any(
        d.measure.name.endswith("ttft") and d.smallest_shown is not None and d.smallest_shown <= _STEP for d in differences
    )


def _ttft_is_worse(differences: tuple[Difference, ...]) -> bool:
    return any(d.measure.name.endswith("ttft") and d.verdict is Verdict.WORSE for d in differences)


if __name__ == "__main__":
    main()
