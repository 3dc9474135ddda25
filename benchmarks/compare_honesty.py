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
from reports.compare.difference import Difference, Verdict, compare_measures
from reports.compare.measures import MEASURES, measure_run
from reports.statistics.arrays import FloatArray

_STEP = 0.05
_NOISE = 0.1  # of paired requests: standard deviation of the logarithm

Simulate = Callable[[int, np.random.Generator], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Kind:
    """A kind of pair of runs. ``paired`` runs have the same schedule, hence the same arrivals and lengths."""

    name: str
    simulate: Simulate
    requests: int
    paired: bool


KINDS = (
    Kind("independent", autoregressive(0.0), 700, paired=False),
    Kind("independent", autoregressive(0.0), 10_000, paired=False),
    Kind("autoregressive 0.9, one schedule", autoregressive(0.9), 2_000, paired=True),
    Kind("M/M/1 at 50 %", queue(0.5), 5_000, paired=False),
    Kind("M/M/1 at 70 %, one schedule", queue(0.7), 5_000, paired=True),
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
    arrivals_s, ttft_ms = kind.simulate(kind.requests, rng)
    other_arrivals_s, other_ttft_ms = (arrivals_s, ttft_ms) if kind.paired else kind.simulate(kind.requests, rng)
    if kind.paired:
        ttft_ms, other_ttft_ms = (values * rng.lognormal(0.0, _NOISE, values.size) for values in (ttft_ms, other_ttft_ms))
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
