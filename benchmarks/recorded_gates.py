"""Which gates the requests of recorded runs decide: limits at multiples of each run's own p99 of TTFT and of TPOT, and limits
that are given.

Runs are folders, or ``requests.parquet`` files on their own, whose load is taken for an open loop; ``--closed`` names those of
a closed one. With --parts each run is judged in that many parts of as many requests as well: runs as short as a sweep's.

Run: python -m benchmarks.recorded_gates RUN … [--closed PART …] [--limits 'p99_ttft<=500ms' …] [--parts 1 2 4]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tabulate import tabulate

from bench_records.run_folder import RunFolder
from bench_records.table import read_table
from reports.criteria import Requirement, parse_slo
from reports.findings.checks import Validity
from reports.gates.gate import JudgedRun
from reports.gates.judge import judge
from reports.metrics.catalogue import TPOT, TTFT
from reports.metrics.configuration import OPEN_LOOP, ConfiguredLoad
from reports.metrics.requests import Requests, from_columns
from reports.metrics.run_metrics import compute_metrics

_MULTIPLES = (0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 4.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--closed", nargs="+", default=(), metavar="PART", help="of the names of runs of a closed loop")
    parser.add_argument("--limits", nargs="+", default=["p99_ttft<=500ms", "p99_tpot<=50ms"], metavar="LIMIT")
    parser.add_argument("--parts", type=int, nargs="+", default=[1], help="into which each run is divided")
    options = parser.parse_args()
    multiples, fixed = [], []
    for path in options.runs:
        load = ConfiguredLoad(closed=True) if any(part in path.name for part in options.closed) else OPEN_LOOP
        requests = recorded(path)
        for parts in options.parts:
            for number, part in enumerate(divided(requests, parts), start=1):
                name = path.name.split(".")[0] + (f", part {number} of {parts}" if parts > 1 else "")
                run = JudgedRun(part, compute_metrics(part, streaming=True, load=load, objectives=[]), load)
                multiples += list(at_multiples(name, run))
                fixed += list(at_limits(name, run, options.limits))
    print(tabulate(multiples, headers=("run", "requests", "", "ms", *(f"× {each:g}" for each in _MULTIPLES))))
    print()
    print(tabulate(fixed, headers=("run", "limit", "", "why"), maxcolwidths=[None, None, None, 90]))


def recorded(path: Path) -> Requests:
    """The requests of a run's folder, or of the file of its records."""
    if path.is_dir():
        return from_columns(RunFolder(path).read_requests)
    return from_columns(lambda columns: read_table(path, columns))


def divided(requests: Requests, parts: int) -> Iterator[Requests]:
    """The requests in parts of as many, in the order in which they were due."""
    order = np.argsort(np.argsort(requests.scheduled_ns, kind="stable"))
    return (requests.only(order * parts // order.size == part) for part in range(parts))


def at_multiples(name: str, run: JudgedRun) -> Iterator[tuple[str, ...]]:
    """A row for the p99 of TTFT and of TPOT: what a gate says whose limit is a multiple of it."""
    for metric in (TTFT, TPOT):
        values_ms = metric.values(run.requests).values_ms
        value = float(np.quantile(values_ms, 0.99, method="inverted_cdf")) if values_ms.size else None
        if value is not None:
            requirements = [Requirement(metric, 0.99, True, value * each) for each in _MULTIPLES]
            statuses = [gate.status.value for gate in judge(requirements, run, Validity.VALID)]
            yield (name, f"{run.requests.outcome.size:,}", f"p99 {metric.label}", f"{value:.3g}", *statuses)


def at_limits(name: str, run: JudgedRun, limits: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A row a limit of a percentile: what its gate says, and why."""
    for limit, gate in zip(limits, judge(_requirements(limits), run, Validity.VALID), strict=True):
        yield name, limit, gate.status.value, gate.why


def _requirements(limits: Sequence[str]) -> list[Requirement]:
    return [each for each in map(parse_slo, limits) if isinstance(each, Requirement)]


if __name__ == "__main__":
    main()
