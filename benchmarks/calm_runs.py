"""Why a run alone cannot show that its load changes slowly: runs of two processes that look alike, and what is true of each.

There are two processes and a length: the intervals of the first process hold, those of the second do not. Whatever a rule looks
at, it has to keep an interval in most runs of the first; the runs of the second in which the same statistic is no larger keep
theirs, too. Three statistics are tried, each with the limit that nine tenths of the first one's runs keep: the design effect
that a run shows, the one that is allowed for, and the correlation of neighbours.

Some runs do not only look alike: they are the same, to the last digit, as runs of a server whose intervals hold. A batch of 64
that was never full is one of 512, and slow spells of which a run saw no change are independent latencies. What is given to the
one is given to the other, so these runs are wrong whatever the rule, and limit how many can be right.

Run: python -m benchmarks.calm_runs [--runs 1000] [--seed 11]
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tabulate import tabulate

from benchmarks.interval_coverage import true_values
from benchmarks.serving_processes import PROCESSES, Engine, Process, Work
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import Mean, mean_of
from reports.statistics.percentiles import CONFIDENCE

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
_LARGE_BATCH = replace(Engine(), slots=512)


def _same_in_a_large_batch(process: Process, work: Work, ttft_ms: FloatArray, rng: np.random.Generator) -> bool:
    return np.array_equal(replace(process, latencies=_LARGE_BATCH.latencies).run(work, rng).ttft_ms, ttft_ms)


def _same_without_spells(_: Process, work: Work, __: FloatArray, ___: np.random.Generator) -> bool:
    return bool(np.ptp(work.demand) == 0)


SAME = (
    ("in-flight batching at 85 %", "a batch of 512", _same_in_a_large_batch),
    ("slow spells", "independent latencies", _same_without_spells),
)
_SAME_SIZES = (300, 2_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000, help="simulated runs of each process and length")
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    rows = []
    for holds, fails, size in PAIRS:
        (calm, _), (found, right) = (_means(name, size, options.runs, options.seed) for name in (holds, fails))
        given = np.array([_has_interval(mean) for mean in found])
        rows.append((fails, holds, f"{size:,}", "as it is", f"{given.mean():.0%}", f"{right[given].mean():.1%}"))
        for name, statistic in STATISTICS.items():
            limit = np.quantile([statistic(mean) for mean in calm], _KEPT)
            alike = given & np.array([statistic(mean) <= limit for mean in found])
            correct = f"{right[alike].mean():.1%}" if alike.any() else "–"
            rows.append((fails, holds, f"{size:,}", name, f"{alike.mean():.0%}", correct))
    headers = ("process", "looks like", "requests", "limit on", "runs within it", "of which the mean's interval is right")
    print(tabulate(rows, headers=headers, disable_numparse=True))
    same = [
        (name, other, f"{size:,}", *(f"{share:.1%}" for share in _same_runs(name, size, options.runs, options.seed, is_same)))
        for name, other, is_same in SAME
        for size in _SAME_SIZES
    ]
    headers = ("process", "runs that are those of", "requests", "of the runs", "with an interval, a wrong one", "right at most")
    print("\n" + tabulate(same, headers=headers, disable_numparse=True))


def _same_runs(
    name: str, size: int, runs: int, seed: int, is_same: Callable[[Process, Work, FloatArray, np.random.Generator], bool]
) -> tuple[float, float, float]:
    """The shares of runs that are those of a server that holds, and of those with a wrong interval of the mean; and how many of
    the intervals that are given could be right at most.
    """
    process, truth, same, given, wrong = PROCESSES[_number(name)], float(true_values((_number(name), None))[0]), 0, 0, 0
    for k in range(runs):
        rng = np.random.default_rng([seed, _number(name), size, k])
        work = process.work(size, rng)
        noise = copy.deepcopy(rng)
        ttft_ms = process.run(work, rng).ttft_ms
        mean, alike = mean_of(ttft_ms), is_same(process, work, ttft_ms, noise)
        same, given = same + alike, given + _has_interval(mean)
        wrong += alike and _has_interval(mean) and not _is_right(mean, truth)
    return same / runs, wrong / runs, 1.0 - wrong / max(1, given)


def _number(name: str) -> int:
    return next(k for k, process in enumerate(PROCESSES) if process.name == name)


def _means(name: str, size: int, runs: int, seed: int) -> tuple[list[Mean], FloatArray]:
    """The mean TTFT of each run, and whether its interval contains the true value (0 or 1), shape [runs]."""
    number = _number(name)
    process, truth, means = PROCESSES[number], float(true_values((number, None))[0]), []
    for k in range(runs):
        rng = np.random.default_rng([seed, number, size, k])
        means.append(mean_of(process.run(process.work(size, rng), rng).ttft_ms))
    return means, np.array([_is_right(mean, truth) for mean in means], dtype=np.float64)


def _has_interval(mean: Mean) -> bool:
    return mean.no_interval_reason is None and mean.interval(CONFIDENCE) is not None


def _is_right(mean: Mean, truth: float) -> bool:
    interval = mean.interval(CONFIDENCE)
    return interval is not None and interval[0] <= truth <= interval[1]


if __name__ == "__main__":
    main()
