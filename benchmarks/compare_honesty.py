"""How often a comparison calls equal runs different, and how often it finds a TTFT that is 5 % longer.

Runs are simulated: one server with a queue (M/M/1) or with latencies that follow each other (autoregressive), streaming
three tokens a request. Equal runs (A/A) share the process, not the noise; in half of the kinds they share the schedule too,
as two runs with one ``--seed`` do. In A/B the first token comes 5 % later. Limits: at most 5 % of A/A comparisons call any
measure different; at least 80 % of A/B comparisons call a TTFT worse, on runs long enough that ``bench compare`` itself
reports that they could show 5 %.

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
_NOISE = 0.1  # of a request that both runs send at the same time: the logarithm's standard deviation

Simulate = Callable[[int, np.random.Generator], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Kind:
    """A kind of pair. ``paired``: both runs have the same schedule, so the same arrivals and lengths."""

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
    parser.add_argument("--comparisons", type=int, default=40, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began, rows = time.monotonic(), []
    false_calls = false_of = found = could = 0
    for number, kind in enumerate(KINDS):
        rng = np.random.default_rng([options.seed, number])
        equal = [pair(kind, 1.0, rng) for _ in range(options.comparisons)]
        slower = [pair(kind, 1.0 + _STEP, rng) for _ in range(options.comparisons)]
        wrong = sum(any(_called(d) for d in differences) for differences in equal)
        able = [differences for differences in slower if _could_show(differences)]
        hits = sum(_ttft_is_worse(differences) for differences in able)
        false_calls, false_of = false_calls + wrong, false_of + len(equal)
        found, could = found + hits, could + len(able)
        schedule = "one" if kind.paired else "two"
        power = f"{hits} of {len(able)}" if able else "–"
        rows.append((kind.name, kind.requests, schedule, f"{wrong} of {len(equal)}", len(able), power))
    headers = ("process", "requests", "schedules", "A/A called different", "A/B that could show 5 %", "found")
    print(tabulate(rows, headers=headers, disable_numparse=True))
    false_share, power_share = false_calls / false_of, found / could if could else 0.0
    print(f"\nA/A called different: {false_share:.1%} of {false_of} (must be at most 5 %)")
    print(f"A/B of +5 % TTFT found: {power_share:.1%} of {could} (must be at least 80 %)")
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(0 if false_share <= 0.05 and power_share >= 0.80 else 1)


def pair(kind: Kind, factor: float, rng: np.random.Generator) -> tuple[Difference, ...]:
    """Compare two simulated runs; the second's first tokens take ``factor`` as long."""
    arrivals_s, ttft_ms = kind.simulate(kind.requests, rng)
    other_arrivals_s, other_ttft_ms = (arrivals_s, ttft_ms) if kind.paired else kind.simulate(kind.requests, rng)
    if kind.paired:
        ttft_ms, other_ttft_ms = (values * rng.lognormal(0.0, _NOISE, values.size) for values in (ttft_ms, other_ttft_ms))
    runs = (as_requests(arrivals_s, ttft_ms), as_requests(other_arrivals_s, other_ttft_ms * factor))
    a, b = ([measure_run(run, streaming=True)] for run in runs)
    return compare_measures(MEASURES, a, b, requests_paired=kind.paired, runs_paired=False)


def _called(difference: Difference) -> bool:
    return difference.verdict in (Verdict.BETTER, Verdict.WORSE)


def _could_show(differences: tuple[Difference, ...]) -> bool:
    return any(
        d.measure.name.endswith("ttft") and d.smallest_shown is not None and d.smallest_shown <= _STEP for d in differences
    )


def _ttft_is_worse(differences: tuple[Difference, ...]) -> bool:
    return any(d.measure.name.endswith("ttft") and d.verdict is Verdict.WORSE for d in differences)


if __name__ == "__main__":
    main()
