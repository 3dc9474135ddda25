"""Why a run alone cannot show that its load changes slowly: runs of two processes that look alike, and what is true of each.

Of two processes and a length, the first holds what its intervals say, the second does not. Whatever a rule looks at, it has to
keep an interval in most runs of the first; the runs of the second in which the same statistic is no larger keep theirs, too.
Three statistics are tried, each with the limit that nine tenths of the first one's runs keep: the design effect that a run
shows, the one that is allowed for, and the correlation of neighbours.

Run: python -m benchmarks.calm_runs [--runs 1000] [--seed 11]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from tabulate import tabulate

from benchmarks.interval_coverage import true_values
from benchmarks.serving_processes import PROCESSES
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import Mean, mean_of

PAIRS = (
    ("independent", "slow load, noise", 300),
    ("M/M/1 at 50 %", "slow load, noise", 300),
    ("M/M/1 at 50 %", "slow spells", 300),
    ("in-flight batching at 60 %", "in-flight batching at 85 %", 300),
    ("in-flight batching at 60 %", "in-flight batching at 85 %", 2_000),
)
STATISTICS: dict[str, Callable[[Mean], float]] = {
    "effect shown": lambda mean: mean.long_run.effect,
    "effect allowed for": lambda mean: mean.long_run.allowed_effect,
    "correlation of neighbours": lambda mean: -mean.independent,
}
_KEPT = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000, help="simulated runs of each process and length")
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    rows = []
    for holds, fails, size in PAIRS:
        (calm, _), (found, right) = (_means(name, size, options.runs, options.seed) for name in (holds, fails))
        given = np.array([mean.no_interval_reason is None for mean in found])
        rows.append((fails, holds, f"{size:,}", "as it is", f"{given.mean():.0%}", f"{right[given].mean():.1%}"))
        for name, statistic in STATISTICS.items():
            limit = np.quantile([statistic(mean) for mean in calm], _KEPT)
            alike = given & np.array([statistic(mean) <= limit for mean in found])
            correct = f"{right[alike].mean():.1%}" if alike.any() else "–"
            rows.append((fails, holds, f"{size:,}", name, f"{alike.mean():.0%}", correct))
    headers = ("process", "looks like", "requests", "limit on", "runs within it", "of which the mean's interval is right")
    print(tabulate(rows, headers=headers, disable_numparse=True))


def _means(name: str, size: int, runs: int, seed: int) -> tuple[list[Mean], FloatArray]:
    """The mean TTFT of each run, and whether its interval contains the true value (0 or 1), shape [runs]."""
    number = next(k for k, process in enumerate(PROCESSES) if process.name == name)
    process, truth, means = PROCESSES[number], float(true_values((number, None))[0]), []
    for k in range(runs):
        rng = np.random.default_rng([seed, number, size, k])
        means.append(mean_of(process.run(process.work(size, rng), rng).ttft_ms))
    intervals = [mean.interval(0.95) for mean in means]
    return means, np.array([i is not None and i[0] <= truth <= i[1] for i in intervals], dtype=np.float64)


if __name__ == "__main__":
    main()
