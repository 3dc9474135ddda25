"""Coverage of the 95 % intervals of runs that ended by ``--until``, beside fixed runs of the same length.

Runs are simulated (benchmarks/serving_processes.py), and end by the looks of reports/metrics/precision.py at TTFT, or at the
bound. Requirement: where at least 90 % of the intervals of fixed runs, of the length that was the median, contain the true
value, at least 90 % of those of the runs that ended do. The true value is that of three very long runs.

Run: python -m benchmarks.until_coverage [--runs 200] [--seed 41] [--bound 60000] [--processes NAME …] [--goals GOAL …]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from tabulate import tabulate

from benchmarks.interval_coverage import LONG_RUN, LONG_RUNS, as_requests
from benchmarks.serving_processes import PROCESSES, Process, Run
from reports.criteria import parse_until
from reports.metrics.metric import MeasuredRun
from reports.metrics.precision import LooksInTurn, PrecisionGoal, half_width, looks
from reports.statistics.estimate import Estimate

_LEAST = 0.90
_NAMES = ("independent", "M/M/1 at 80 %", "in-flight batching at 60 %")
_GOALS = ("mean_ttft±20%", "p99_ttft±20%", "p99_ttft±40%")


@dataclass(frozen=True)
class Cell:
    """The share of ``runs`` that ended before the bound, the share of those with a correct interval, and the median of their
    requests; of fixed runs of that length the shares with an interval, and of those with a correct one.
    """

    runs: int
    ended: float
    correct: float
    requests: float
    fixed_given: float
    fixed_correct: float

    @property
    def fails(self) -> bool:
        return self.ended > 0.1 and self.fixed_correct >= _LEAST > self.correct

    @property
    def texts(self) -> tuple[str, ...]:
        shares = (f"{self.correct:.1%}", f"{self.requests:,.0f}", f"{self.fixed_given:.0%}", f"{self.fixed_correct:.1%}")
        return (f"{self.ended:.0%}", *(shares if self.ended else ("–",) * 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="simulated runs of each process and goal")
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--bound", type=int, default=60_000, help="requests at which a run ends, precise or not")
    parser.add_argument("--processes", nargs="+", default=_NAMES, metavar="NAME")
    parser.add_argument("--goals", nargs="+", default=_GOALS, metavar="GOAL")
    options = parser.parse_args()
    start_s, rows, failed = time.monotonic(), [], []
    for process in (process for process in PROCESSES if process.name in options.processes):
        for goal in map(parse_until, options.goals):
            cell = coverage(process, goal, options.runs, options.bound, options.seed)
            rows.append((process.name, str(goal), *cell.texts))
            if cell.fails:
                failed.append(" ".join(rows[-1]))
            print(f"{time.monotonic() - start_s:.0f} s: {' '.join(rows[-1])}", file=sys.stderr)
    headers = ("process", "goal", "ended", "correct", "requests", "fixed: with interval", "fixed: correct")
    print(tabulate(rows, headers=headers, disable_numparse=True))
    print(f"\n{time.monotonic() - start_s:.0f} s, {options.runs} runs a cell. Not as required: {len(failed)} of {len(rows)}.")
    print("\n".join(failed))
    sys.exit(1 if failed else 0)


def coverage(process: Process, goal: PrecisionGoal, runs: int, bound: int, seed: int) -> Cell:
    """The runs of one process that end by ``goal``."""
    truth = true_value(process, goal)
    rng = np.random.default_rng([seed, bound])
    whole = [process.run(process.work(bound, rng), rng) for _ in range(runs)]
    ends = [end for end in (ended(run, goal, bound) for run in whole) if end is not None]
    if not ends:
        return Cell(runs, 0.0, 0.0, 0.0, 0.0, 0.0)
    requests = int(np.median([requests for requests, _ in ends]))
    fixed = [interval for interval in (estimate_of(run, requests, goal).interval for run in whole) if interval is not None]
    return Cell(
        runs=runs,
        ended=len(ends) / runs,
        correct=_correct([estimate for _, estimate in ends], truth),
        requests=requests,
        fixed_given=len(fixed) / runs,
        fixed_correct=sum(low <= truth <= high for low, high in fixed) / max(1, len(fixed)),
    )


def ended(run: Run, goal: PrecisionGoal, bound: int) -> tuple[int, Estimate] | None:
    """The requests after which a run ended and its number then; None where it came to its bound."""
    looked = LooksInTurn(goal)
    for requests in _until_bound(bound):
        estimate = estimate_of(run, requests, goal)
        if looked.may_end(requests, estimate):
            return requests, estimate
    return None


def _until_bound(bound: int) -> Iterator[int]:
    for requests in looks():
        if requests > bound:
            return
        yield requests


def estimate_of(run: Run, count: int, goal: PrecisionGoal) -> Estimate:
    """The number of the first ``count`` requests, as a report shows it."""
    requests = as_requests(
        Run(
            run.arrivals_s[:count],
            run.ttft_ms[:count],
            run.e2e_ms[:count],
            run.input_tokens[:count],
            run.output_tokens[:count],
            None if run.progress is None else run.progress[:count],
            None if run.session is None else run.session[:count],
        )
    )
    return goal.estimate(goal.metric.latency_of(MeasuredRun(requests, streaming=True)))


def true_value(process: Process, goal: PrecisionGoal) -> float:
    """The number of very long runs, in ms."""
    found = []
    for k in range(LONG_RUNS):
        rng = np.random.default_rng([2**32, k])
        ttft_ms = process.run(process.work(LONG_RUN, rng), rng).ttft_ms
        found.append(float(ttft_ms.mean() if goal.q is None else np.quantile(ttft_ms, goal.q)))
    return float(np.mean(found))


def _correct(estimates: list[Estimate], truth: float) -> float:
    assert all(half_width(estimate) is not None for estimate in estimates)
    intervals = [estimate.interval for estimate in estimates if estimate.interval is not None]
    return sum(low <= truth <= high for low, high in intervals) / len(estimates)


if __name__ == "__main__":
    main()
