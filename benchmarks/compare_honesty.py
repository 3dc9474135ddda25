"""False positives and power of ``bench compare``: equal servers reported as different, and changes that are found.

Runs are simulated (benchmarks/serving_processes.py), one each, with one schedule or two. A/A: the same server twice; at most
5 % of the comparisons report any measure as different, with an upper confidence limit of 7 %, at most 5 % fail a condition
``measure > +0 %`` (or < for rates), whichever it is, and at most 5 % fail any of these given together. A/B: TTFT 5 % longer, or
its largest 3 % by 10 %. Starts that differ by 3 % (standard deviation): single runs, whose verdict is about these starts, and
five repeats of each. --seed_an_arm: five repeats of one schedule against five of another, A/A alone. --slow_changes: targets
whose load or services change slowly (benchmarks/slow_changes.py), where a pair of runs may be that of two servers to the last
digit: its chance is printed.

Run: python -m benchmarks.compare_honesty [--comparisons 200] [--seed 21] [--sizes 700 2000 10000]
    [--drawn SEED | --slow_changes] [--equal_only | --seed_an_arm] [--workers 2]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from tabulate import tabulate

from benchmarks.interval_coverage import as_requests
from benchmarks.interval_coverage import processes as named_or_drawn
from benchmarks.serving_processes import Process, Run
from benchmarks.slow_changes import SLOW_CHANGES, SPELLS
from reports.compare.conditions import check_conditions, parse_condition
from reports.compare.difference import Difference, compare_measures
from reports.compare.measures import MEASURES, Measured, measure_run
from reports.statistics.probability import beta_quantile

_CONDITIONS = tuple(
    parse_condition(f"{m.name} {'<' if m.higher_is_better else '>'} {'+0%' if m.relative else '+0pp'}") for m in MEASURES
)
_START_DEVIATION, _REPEATS = 0.03, 5
_LONGER, _LONGER_TAIL = 1.05, 1.10
_TAIL_FROM = 0.97


@dataclass(frozen=True)
class Cell:
    """How many of ``comparisons`` called equal servers different, failed a condition (the worst one), failed one of all
    conditions together; and ``changes``, where they were compared: the shares that found a TTFT 5 % longer, and a tail 10 %
    longer, and called different single runs of starts that differ, and repeats of them.
    """

    comparisons: int
    different: int
    condition: int
    conditions: int
    changes: tuple[float, ...] = ()

    @property
    def fails(self) -> bool:
        return max(self.different, self.condition, self.conditions) > 0.05 * self.comparisons

    @property
    def upper_limit(self) -> float:
        """The upper limit of the share of comparisons that called equal servers different: one-sided, 95 % (Clopper and Pearson
        1934).
        """
        return beta_quantile(0.95, self.different + 1.0, max(self.comparisons - self.different, 1e-9))

    @property
    def texts(self) -> tuple[str, ...]:
        different, *conditions = (count / self.comparisons for count in (self.different, self.condition, self.conditions))
        return tuple(f"{share:.1%}" for share in (different, self.upper_limit, *conditions, *self.changes))


# process, requests, one schedule, seed, comparisons, seed of drawn processes or SLOW
Job = tuple[int, int, bool, int, int, int | str | None]
SLOW = "slow changes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=200, help="of each process, size and number of schedules")
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--sizes", type=int, nargs="+", default=[700, 2_000, 10_000], help="requests of a run")
    parser.add_argument("--drawn", type=int, default=None, metavar="SEED", help="engines with parameters drawn from this seed")
    parser.add_argument("--slow_changes", action="store_const", const=SLOW, dest="drawn", help="loads and services that drift")
    parser.add_argument("--workers", type=int, default=2)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--equal_only", action="store_const", const=equal, dest="kind", help="A/A alone, in a third of the time")
    kind.add_argument("--seed_an_arm", action="store_const", const=seed_an_arm, dest="kind", help="A/A of five repeats each")
    options = parser.parse_args()
    start_s, rows, failed = time.monotonic(), [], []
    jobs = [
        (number, size, one_schedule, options.seed, options.comparisons, options.drawn)
        for size in options.sizes
        for number in range(len(processes(options.drawn)))
        for one_schedule in ((False,) if options.kind is seed_an_arm else (False, True))
    ]
    with ProcessPoolExecutor(options.workers) as pool:
        for job, cell in zip(jobs, pool.map(options.kind or compared, jobs), strict=True):
            number, size, one_schedule, *_ = job
            rows.append((processes(options.drawn)[number].name, f"{size:,}", "one" if one_schedule else "two", *cell.texts))
            if cell.fails:
                failed.append(" ".join(rows[-1]))
            print(f"{time.monotonic() - start_s:.0f} s: {' '.join(rows[-1])}", file=sys.stderr)
    headers = (
        "process", "requests", "schedules", "A/A different", "at most", "worst condition",
        "any condition", "+5 % TTFT found", "+10 % tail found", "other starts", "five repeats",
    )  # fmt: skip
    print(tabulate(rows, headers=headers[: len(rows[0])], disable_numparse=True))
    print(f"\n{time.monotonic() - start_s:.0f} s. A/A above 5 %: {len(failed)} of {len(rows)} cells.")
    print("\n".join(failed))
    if options.drawn == SLOW:
        for name, spells in SPELLS.items():
            chances = ", ".join(f"{spells.opposite_throughout(size):.1%} of {size:,} requests" for size in options.sizes)
            print(f"Pairs of runs in opposite spells {name} throughout: {chances}.")
    sys.exit(1 if failed else 0)


def processes(drawn: int | str | None) -> tuple[Process, ...]:
    return SLOW_CHANGES if isinstance(drawn, str) else named_or_drawn(drawn)


def seed_an_arm(job: Job) -> Cell:
    """Comparisons of equal servers, of which each arm repeats a schedule of its own."""
    number, size, _one_schedule, seed, comparisons, drawn_seed = job
    process, rng = processes(drawn_seed)[number], np.random.default_rng([seed, number, size, _REPEATS])
    found = []
    for _ in range(comparisons):
        works = [process.work(size, rng) for _ in range(2)]
        a, b = ([measured(process.run(work, rng)) for _ in range(_REPEATS)] for work in works)
        found.append(compare_measures(MEASURES, a, b, requests_paired=False, runs_paired=False, schedules_apart=True))
    return _counted(found)


def equal(job: Job) -> Cell:
    """Comparisons of equal servers alone."""
    number, size, one_schedule, seed, comparisons, drawn_seed = job
    process, rng = processes(drawn_seed)[number], np.random.default_rng([seed, number, size, one_schedule])
    pairs = (_pair(process, size, one_schedule, rng) for _ in range(comparisons))
    return _counted([differences([measured(a)], [measured(b)], one_schedule) for a, b in pairs])


def compared(job: Job) -> Cell:
    """Comparisons of equal servers, and of the same runs with changes."""
    number, size, one_schedule, seed, comparisons, drawn_seed = job
    process = processes(drawn_seed)[number]
    rng = np.random.default_rng([seed, number, size, one_schedule])
    found, singles, longer, longer_tail, starts = [], [], 0, 0, 0
    for _ in range(comparisons):
        a, b = _pair(process, size, one_schedule, rng)
        of_a = measured(a)
        found.append(differences([of_a], [measured(b)], one_schedule))
        longer += _ttft_is_worse(differences([of_a], [measured(longer_ttft(b, _LONGER))], one_schedule))
        longer_tail += _ttft_is_worse(differences([of_a], [measured(_longer_tail(b))], one_schedule))
        offset = [measured(longer_ttft(run, float(rng.lognormal(0.0, _START_DEVIATION)))) for run in (a, b)]
        singles.append(offset)
        starts += any(d.verdict.differs for d in differences(offset[:1], offset[1:], one_schedule))
    groups = [singles[k : k + _REPEATS] for k in range(0, comparisons - _REPEATS + 1, _REPEATS)]
    repeats = sum(
        any(d.verdict.differs for d in differences([pair[0] for pair in group], [pair[1] for pair in group], False))
        for group in groups
    )
    shares = (longer / comparisons, longer_tail / comparisons, starts / comparisons, repeats / len(groups))
    return replace(_counted(found), changes=shares)


def _counted(found: Sequence[tuple[Difference, ...]]) -> Cell:
    """What comparisons of equal servers reported."""
    each = [sum(check_conditions([condition], equal)[0].failed for equal in found) for condition in _CONDITIONS]
    together = sum(any(result.failed for result in check_conditions(_CONDITIONS, equal)) for equal in found)
    different = sum(any(d.verdict.differs for d in equal) for equal in found)
    return Cell(len(found), different, max(each), together)


def _pair(process: Process, size: int, one_schedule: bool, rng: np.random.Generator) -> tuple[Run, Run]:
    work = process.work(size, rng)
    return process.run(work, rng), process.run(work if one_schedule else process.work(size, rng), rng)


def measured(run: Run) -> dict[str, Measured]:
    return measure_run(as_requests(run), streaming=True)


def differences(
    a: Sequence[dict[str, Measured]], b: Sequence[dict[str, Measured]], one_schedule: bool
) -> tuple[Difference, ...]:
    return compare_measures(MEASURES, a, b, requests_paired=one_schedule, runs_paired=False)


def longer_ttft(run: Run, factor: float) -> Run:
    return replace(run, ttft_ms=run.ttft_ms * factor, e2e_ms=run.e2e_ms + run.ttft_ms * (factor - 1.0))


def _longer_tail(run: Run) -> Run:
    slow = run.ttft_ms > np.quantile(run.ttft_ms, _TAIL_FROM)
    return replace(run, ttft_ms=np.where(slow, run.ttft_ms * _LONGER_TAIL, run.ttft_ms))


def _ttft_is_worse(found: tuple[Difference, ...]) -> bool:
    return any(d.measure.name.endswith("ttft") and d.verdict.is_worse for d in found)


if __name__ == "__main__":
    main()
