"""False positives, power and cost of ``bench experiment --until decided``, which looks after each block.

Blocks are pairs of simulated runs (benchmarks/serving_processes.py) of one schedule, at most 10 an experiment. Equal servers:
at most 28 of 400 experiments call them different, in any measure and at any look. A TTFT 5 % longer: where that is more than
4.5 standard deviations of a block's difference in the measure that decides, it is found in at least 90 % of the experiments,
with a median of at most 60 % of the requests of five fixed repeats: 3 blocks. p99 TTFT and p50 TTFT are tried as that measure.
Compared are p50 and p99 of TTFT and E2E latency; with --all_measures throughput and TPOT, too, in three times the time.

Run: python -m benchmarks.until_honesty [--experiments 400] [--seed 31] [--size 1000] [--most 10] [--processes NAME …]
    [--all_measures] [--workers 1]
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from tabulate import tabulate

from benchmarks.compare_honesty import longer_ttft, measured
from benchmarks.interval_coverage import as_requests
from benchmarks.serving_processes import PROCESSES, Run
from reports.compare.difference import Difference, compare_measures
from reports.compare.looks import FIRST_LOOK, Looks
from reports.compare.measures import MEASURES, Measured, exact_percentiles
from reports.metrics.catalogue import E2E, TTFT
from reports.statistics.probability import beta_quantile

_LONGER, _DEVIATIONS = 1.05, 4.5
_MOST_CALLED, _LEAST_FOUND, _FIXED, _MOST_COST = 0.07, 0.90, 5, 0.60
_DECIDING = ("p99_ttft", "p50_ttft")

Measures = Sequence[dict[str, Measured]]


@dataclass(frozen=True)
class Ending:
    """The end of one experiment: its blocks, and whether any measure has a verdict then, or had one at any look."""

    blocks: int
    decided: bool
    called: bool
    ever_called: bool


@dataclass(frozen=True)
class Cell:
    """The experiments with one deciding measure: the standard deviation of a block's difference, how many of equal servers were
    called different at the end and ever, and of a longer TTFT the share found, and the median of blocks.
    """

    deviation: float
    experiments: int
    called: int
    ever_called: int
    found: float
    blocks: float

    @property
    def deviations(self) -> float:
        return math.log(_LONGER) / self.deviation

    @property
    def fails(self) -> bool:
        if max(self.called, self.ever_called) > _MOST_CALLED * self.experiments:
            return True
        return self.deviations > _DEVIATIONS and (self.found < _LEAST_FOUND or self.blocks > _MOST_COST * _FIXED)

    @property
    def texts(self) -> tuple[str, ...]:
        upper = beta_quantile(0.95, self.ever_called + 1.0, max(self.experiments - self.ever_called, 1e-9))
        return (
            f"{self.called}/{self.experiments}", f"{self.ever_called}", f"{upper:.1%}", f"{self.deviations:.1f}",
            f"{self.found:.0%}", f"{self.blocks:g}",
        )  # fmt: skip


Job = tuple[int, int, int, int, int, bool]  # process, size, seed, experiments, most blocks, all measures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=400, help="of each process")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--size", type=int, default=1_000, help="requests of a run")
    parser.add_argument("--most", type=int, default=10, help="blocks of an experiment")
    parser.add_argument("--processes", nargs="+", default=None, metavar="NAME", help="parts of names; all by default")
    parser.add_argument("--all_measures", action="store_true", help="compare throughput and TPOT, too")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    start_s, rows, failed = time.monotonic(), [], []
    chosen = [
        number
        for number, process in enumerate(PROCESSES)
        if options.processes is None or any(name in process.name for name in options.processes)
    ]
    sizes = (options.size, options.seed, options.experiments, options.most, options.all_measures)
    jobs = [(number, *sizes) for number in chosen]
    with ProcessPoolExecutor(options.workers) as pool:
        for (number, *_), cells in zip(jobs, pool.map(experiments, jobs), strict=True):
            for measure, cell in zip(_DECIDING, cells, strict=True):
                rows.append((PROCESSES[number].name, measure, *cell.texts))
                if cell.fails:
                    failed.append(" ".join(rows[-1]))
                print(f"{time.monotonic() - start_s:.0f} s: {' '.join(rows[-1])}", file=sys.stderr)
    headers = ("process", "decides", "A/A called", "at any look", "at most", "+5 %, deviations", "found", "median blocks")
    print(tabulate(rows, headers=headers, disable_numparse=True))
    print(
        f"\n{time.monotonic() - start_s:.0f} s, {options.size:,} requests a run. Not as required: {len(failed)} of {len(rows)}."
    )
    print("\n".join(failed))
    sys.exit(1 if failed else 0)


def experiments(job: Job) -> tuple[Cell, ...]:
    """The experiments of one process, for each measure of _DECIDING."""
    number, size, seed, count, most, all_measures = job
    measure = measured if all_measures else _latencies
    process, rng = PROCESSES[number], np.random.default_rng([seed, number, size])
    changes: dict[str, list[float]] = {name: [] for name in _DECIDING}
    endings: dict[str, list[tuple[Ending, Ending]]] = {name: [] for name in _DECIDING}
    for _ in range(count):
        a, equal, longer = [], [], []
        for _ in range(most):
            work = process.work(size, rng)
            run = process.run(work, rng)
            a.append(measure(process.run(work, rng)))
            equal.append(measure(run))
            longer.append(equal[-1] | _latencies(longer_ttft(run, _LONGER)))
        for name in _DECIDING:
            changes[name] += [math.log((y[name].value or 1.0) / (x[name].value or 1.0)) for x, y in zip(a, equal, strict=True)]
            looks = Looks(most, name)
            endings[name].append((ending(a, equal, looks, to_the_last=True), ending(a, longer, looks)))
    return tuple(
        Cell(
            deviation=float(np.std(changes[name])),
            experiments=count,
            called=sum(equal_end.called for equal_end, _ in endings[name]),
            ever_called=sum(equal_end.ever_called for equal_end, _ in endings[name]),
            found=sum(end.decided for _, end in endings[name]) / count,
            blocks=float(np.median([end.blocks for _, end in endings[name]])),
        )
        for name in _DECIDING
    )


def _latencies(run: Run) -> dict[str, Measured]:
    """The latencies of a run; its throughput takes most of the time to compute."""
    requests, chosen = as_requests(run), [measure for measure in MEASURES if measure.metric in (TTFT, E2E)]
    values = {metric: metric.by_request(requests) for metric in (TTFT, E2E)}
    return {m.name: exact_percentiles(values[m.metric], [m.q or 0.0])[0] for m in chosen}


def ending(a: Measures, b: Measures, looks: Looks, *, to_the_last: bool = False) -> Ending:
    """The end of an experiment with these blocks; ``to_the_last``: the looks go on after it, for ``ever_called`` alone."""
    found: Ending | None = None
    ever_called = False
    for blocks in range(FIRST_LOOK, looks.most + 1):
        differences = compare_measures(MEASURES, a[:blocks], b[:blocks], requests_paired=False, runs_paired=True, looks=looks)
        called = any(d.verdict.differs for d in differences)
        ever_called = ever_called or called
        decided = _is_decided(differences, looks)
        if found is None and (decided or blocks == looks.most):
            found = Ending(blocks, decided, called, ever_called)
            if not to_the_last:
                return found
    assert found is not None
    return Ending(found.blocks, found.decided, found.called, ever_called)


def _is_decided(differences: Sequence[Difference], looks: Looks) -> bool:
    return any(d.measure.name == looks.measure and d.verdict.differs for d in differences)


if __name__ == "__main__":
    main()
