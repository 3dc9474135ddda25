"""How far the width of the bracket that a search forecasts is from the width that it ends with: searches of simulated servers.

The width is refused / certified − 1. Two forecasts of each search are compared with it: the one before its last probe, and the
first one after half of its time. The searches are those of benchmarks/timed_search.py.

Run: python -m benchmarks.forecast_honesty [--searches 100] [--seed 31] [--only NAME …]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence

import numpy as np
from tabulate import tabulate

from bench_cli.experiments.forecast import forecast
from benchmarks.capacity_targets import FORECAST_TARGETS
from benchmarks.timed_search import Found, search
from reports.capacity.result import Ended
from reports.statistics.arrays import FloatArray

_NEAR = 0.3  # of the width, and of the ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=100, help="simulated searches of each target and budget")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--only", nargs="+", default=None, metavar="NAME", help="targets whose names contain one of these")
    options = parser.parse_args()
    rows = list[tuple[str, ...]]()
    for target, budgets_s in FORECAST_TARGETS:
        if options.only is not None and not any(part in target.name for part in options.only):
            continue
        for budget_s in budgets_s:
            start_s, seeds = time.monotonic(), range(options.searches)
            found = [search(target, budget_s, np.random.default_rng([options.seed, k])) for k in seeds]
            rows += _judged(f"{target.name}, {budget_s:g} s", [each for each in found if len(each.probes) > 1])
            print(f"{rows[-2][0]}: {time.monotonic() - start_s:.0f} s", flush=True)
    headers = ("", "±10 %", "width", "", "both", "neither", "other", "width near", "ratio near", "p10", "p50", "p90", "ms")
    print(tabulate(rows, headers=headers, disable_numparse=True))


def _judged(name: str, found: Sequence[Found]) -> list[tuple[str, ...]]:
    """A row for each of the two forecasts, of searches with at least two probes."""
    precise = np.mean([each.ended is Ended.PRECISE for each in found])
    widths = _widths([each.bracket.ratio for each in found])
    head = (name, f"{precise:.0%}", f"{np.nanmedian(widths):.3f}")
    last = [len(each.states) - 1 for each in found]
    return [
        (*head, "last", *_compared(widths, found, last)),
        ("", "", "", "at half", *_compared(widths, found, [_half(each) for each in found])),
    ]


def _half(found: Found) -> int:
    """The first state in the second half of the search's time, at most the last one."""
    left_s = [state.spent.left_s or 0.0 for state in found.states]
    begins_s, ends_s = left_s[0], left_s[0] - found.seconds
    return next((k for k, at_s in enumerate(left_s) if at_s <= (begins_s + ends_s) / 2.0), len(left_s) - 1)


def _compared(widths: FloatArray, found: Sequence[Found], at: Sequence[int]) -> tuple[str, ...]:
    """How the forecasts made in the states ``at`` compare with the widths, NaN where the search ended without a bracket."""
    ratios, took_s = list[float | None](), list[float]()
    for each, k in zip(found, at, strict=True):
        state, start_s = each.states[k], time.process_time()
        made = forecast(state.plan, each.probes[:k], state.spent)
        took_s.append(time.process_time() - start_s)
        ratios.append(None if made is None else made.ratios[0])
    forecasts = _widths(ratios)
    both = np.isfinite(widths) & np.isfinite(forecasts)
    neither = np.isnan(widths) & np.isnan(forecasts)
    off = forecasts[both] / widths[both]
    off_ratio = (1.0 + forecasts[both]) / (1.0 + widths[both])
    return (
        f"{both.mean():.0%}",
        f"{neither.mean():.0%}",
        f"{1.0 - both.mean() - neither.mean():.0%}",
        *(f"{(np.abs(each - 1.0) <= _NEAR).mean():.0%}" for each in (off, off_ratio)),
        *(f"{np.quantile(off, q):.2f}" for q in (0.1, 0.5, 0.9)),
        f"{1e3 * np.median(took_s):.0f}, {1e3 * max(took_s):.0f}",
    )


def _widths(ratios: Sequence[float | None]) -> FloatArray:
    """NaN where there is no bracket."""
    return np.array([math.nan if ratio is None else ratio - 1.0 for ratio in ratios])


if __name__ == "__main__":
    main()
