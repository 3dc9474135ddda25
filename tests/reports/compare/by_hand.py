"""Comparisons whose differences are written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reports.compare.comparison import Arm, ArmComparison
from reports.compare.difference import Difference, Verdict
from reports.compare.measures import Measure
from reports.compare.spread import Evidence, Spread
from reports.metrics.catalogue import E2E, FAILED_SHARE, REQUEST_THROUGHPUT, TTFT
from reports.run_report import RunReport

P99, P50 = Measure(TTFT, 0.99), Measure(TTFT, 0.50)
P99_E2E, P50_E2E = Measure(E2E, 0.99), Measure(E2E, 0.50)
FAILED, RATE = Measure(FAILED_SHARE), Measure(REQUEST_THROUGHPUT)


def difference(measure: Measure, verdict: Verdict = Verdict.NONE, **replaced: Any) -> Difference:
    """A rise of 25 %, from 100 to 125."""
    spread = Spread(0.2, 0.05, 8.0, Evidence.RUNS)
    found = Difference(
        measure, 100.0, 125.0, 0.25, (0.1, 0.4), 0.5, 0.01, 0.04, Evidence.RUNS, verdict, None, spread
    )  # fmt: skip
    return replace(found, **replaced)


def comparison(
    run: RunReport, *differences: Difference, runs: tuple[int, int] = (1, 1), window_s: float | None = 7.0, **replaced: Any
) -> ArmComparison:
    """Two sides of copies of ``run``, each of which took ``window_s``."""
    windows = run.metrics.windows
    assert windows.whole is not None
    whole = None if window_s is None else replace(windows.whole, end_s=windows.whole.start_s + window_s)
    timed = replace(run, metrics=replace(run.metrics, windows=replace(windows, whole=whole)))
    a, b = (Arm(name, (timed,) * count) for name, count in zip("AB", runs, strict=True))
    return replace(ArmComparison(a, b, differences, (), None, (), ()), **replaced)
