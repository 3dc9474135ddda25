"""How often a search for capacity is right, and what it costs: searches of simulated servers whose capacity is known.

Per target (benchmarks/capacity_targets.py): certified above the truth, by more than two of its standard errors, and refused
below it, in at most 6.5 % of the searches each (heavy tails: certified in at most 12 %). The ratio of the two is at most 1.2 in
80 % of the searches with at most 150,000 requests in all of M/M/1 and of in-flight batching with 60 ms, and 70,000 of M/D/1.

Beside it, with as many requests: the searches of AIPerf 0.13 (doubles the load to the first failure, three probes between, then
an isotonic fit of the percentile with a monotone cubic, and probes at its root, to 5 %) and of GuideLLM 0.8 (doubles, then
bisects to 5 %), which both judge a probe by its own share or percentile and answer with the highest load that passed. Both
raise the concurrency; here they raise the rate.

Run: python -m benchmarks.capacity_honesty [--searches 200] [--seed 31] [--only NAME …] [--budget 150000] [--no_peers]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq, isotonic_regression
from tabulate import tabulate

from benchmarks.capacity_targets import TARGETS, CapacityTarget, Truth
from reports.capacity.probe import Probe
from reports.capacity.search import Bracket, Goal, bracket, next_probe
from reports.capacity.violations import violations
from reports.statistics.arrays import FloatArray

_RAMP, _END = 0.1, 0.02  # of a probe's requests, that are left out
_ABSORBED = 0.3  # of the requests of a probe: with more violations it ends
_ALLOWED, _ALLOWED_HEAVY = 0.065, 0.12
_RATIO, _DECIDED = 1.2, 0.8
_BUDGETS = {"M/D/1": 70_000}
_MUST_DECIDE = ("M/M/1", "M/D/1", "in-flight batching, 60 ms")
_PEER_PRECISION = 0.05
_PEER_PROBES = {"AIPerf": 8, "GuideLLM": 6}  # about that many share the requests
_MOST_PEER_PROBES = 20
_ROUNDING = 1.0005


@dataclass(frozen=True)
class Search:
    """A search's result, and the first estimate of its requests in all, once half of them were spent."""

    found: Bracket
    requests: int
    probes: int
    estimate_at_half: int | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=200, help="simulated searches of each target")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--only", nargs="+", default=None, metavar="NAME", help="targets whose names contain one of these")
    parser.add_argument("--budget", type=int, default=150_000, help="requests of a search, at most")
    parser.add_argument("--no_peers", action="store_true", help="leave out the searches of other tools")
    options = parser.parse_args()
    chosen = [each for each in TARGETS if options.only is None or any(part in each.name for part in options.only)]
    failures = []
    for target in chosen:
        budget = min(options.budget, _BUDGETS.get(target.name, options.budget))
        failures += _check(target, budget, options.searches, options.seed, not options.no_peers)
    print(f"\nNot as required: {len(failures)}.")
    print("\n".join(failures))
    sys.exit(1 if failures else 0)


def _check(target: CapacityTarget, budget: int, searches: int, seed: int, with_peers: bool) -> list[str]:
    truth, start_s = target.truth(), time.monotonic()
    found = [search(target, budget, np.random.default_rng([seed, k])) for k in range(searches)]
    requests = int(np.mean([each.requests for each in found]))
    row, failures = _judged(target, truth, found)
    rows = [row]
    if with_peers:
        for name, method in (("AIPerf", aiperf), ("GuideLLM", guidellm)):
            answers = [method(target, requests // _PEER_PROBES[name], int(seed * 1_000_000 + k)) for k in range(searches)]
            rows.append(_peer_row(name, truth, answers))
    headers = ("", "above", "below", "certified", "estimate", "ratio p50", "p80", "≤ 1.2", "none", "requests")
    print(f"\n{target.name}: capacity {truth.capacity:.4g} ± {truth.error:.2g}, {searches} searches,", end=" ")
    print(f"{time.monotonic() - start_s:.0f} s")
    print(tabulate(rows, headers=headers, disable_numparse=True), flush=True)
    return failures


def _judged(target: CapacityTarget, truth: Truth, found: list[Search]) -> tuple[tuple[str, ...], list[str]]:
    margin = 2.0 * truth.error + (_ROUNDING - 1.0) * truth.capacity
    certified = np.array([each.found.certified or 0.0 for each in found])
    refused = np.array([each.found.refused or np.inf for each in found])
    estimates = np.array([each.found.estimate or np.nan for each in found]) / truth.capacity
    above = float((certified > truth.capacity + margin).mean())
    below = float((refused < truth.capacity - margin).mean())
    ratios = np.array([np.inf if each.found.ratio is None else each.found.ratio for each in found])
    decided = float((ratios <= _RATIO * _ROUNDING).mean())
    known = certified[certified > 0.0]
    half = [each.estimate_at_half / each.requests for each in found if each.estimate_at_half is not None]
    row = (
        "bench capacity",
        f"{above:.1%}",
        f"{below:.1%}",
        f"{np.median(known) / truth.capacity - 1.0:+.1%}" if known.size else "–",
        f"{np.nanmedian(estimates) - 1.0:+.1%} ± {np.nanstd(estimates):.1%}" if np.isfinite(estimates).any() else "–",
        f"{np.quantile(ratios, 0.5, method='higher'):.2f}",
        f"{np.quantile(ratios, 0.8, method='higher'):.2f}",
        f"{decided:.0%}",
        f"{(certified == 0.0).mean():.0%}, {np.isinf(refused).mean():.0%}",
        f"{np.mean([each.requests for each in found]):,.0f}, {np.mean([each.probes for each in found]):.0f} probes",
    )
    print(f"{target.name}: requests by the estimate at half of them, over those spent: ", end="")
    print(np.round(np.quantile(half, [0.1, 0.5, 0.9]), 2) if half else "none")
    failures = []
    allowed = _ALLOWED_HEAVY if target.heavy else _ALLOWED
    if above > allowed:
        failures.append(f"{target.name}: certified above the truth in {above:.1%}")
    if below > _ALLOWED:
        failures.append(f"{target.name}: refused below the truth in {below:.1%}")
    if target.name in _MUST_DECIDE and decided < _DECIDED:
        failures.append(f"{target.name}: at most {_RATIO} in {decided:.0%}")
    return row, failures


def _peer_row(name: str, truth: Truth, answers: list[tuple[float | None, int]]) -> tuple[str, ...]:
    loads = np.array([np.nan if load is None else load for load, _ in answers]) / truth.capacity
    margin = 2.0 * truth.error / truth.capacity
    return (
        name,
        f"{(loads > 1.0 + margin).mean():.1%}, by over 2 % {(loads > 1.02 + margin).mean():.1%}",
        "",
        f"{np.nanmedian(loads) - 1.0:+.1%} ± {np.nanstd(loads):.1%}",
        *("",) * 4,
        f"{np.isnan(loads).mean():.0%}",
        f"{np.mean([requests for _, requests in answers]):,.0f}",
    )


# ---- the product's search


def search(target: CapacityTarget, budget: int, rng: np.random.Generator) -> Search:
    goal, probes, spent = Goal(tuple(range(len(target.limits))), target.allowed), list[Probe](), 0
    while (asked := next_probe(probes, goal, target.first_load, budget - spent)) is not None:
        probes.append(probe(target, asked.load, asked.requests, rng))
        spent += probes[-1].requests
    sums = np.cumsum([each.requests for each in probes])
    half = int(np.searchsorted(sums, spent / 2.0))
    more = bracket(probes[: half + 1], goal).more_requests
    return Search(bracket(probes, goal), spent, len(probes), None if more is None else int(sums[half]) + more)


def probe(target: CapacityTarget, load: float, requests: int, rng: np.random.Generator) -> Probe:
    """A run of this many requests, which ends early where more violations come than the rest could absorb."""
    values = target.draw(load, requests, rng)
    ends = [_early_end(each > limit, requests) for each, limit in zip(values, target.limits, strict=True)]
    sent = min(ends)
    kept = slice(int(_RAMP * requests), sent if sent < requests else int((1.0 - _END) * requests))
    found = [
        violations(each[kept], limit, allowed)
        for each, limit, allowed in zip(values, target.limits, target.allowed, strict=True)
    ]
    return Probe(load, sent, tuple(found), sent < requests)


def _early_end(above: NDArray[np.bool_], requests: int) -> int:
    return int(np.searchsorted(np.cumsum(above), _ABSORBED * requests))


# ---- the peers' searches


def guidellm(target: CapacityTarget, requests: int, seed: int) -> tuple[float | None, int]:
    """The highest load that passed, or None, and the requests spent."""
    passed, failed, load, probes = None, None, target.first_load, 0
    while probes < _MOST_PEER_PROBES:
        probes += 1
        if _peer_probe(target, load, requests, seed)[0] <= 0.0:
            passed = load
        else:
            failed = load
        if failed is None:
            load *= 2.0
        elif passed is None:
            load /= 2.0
        elif failed - passed <= _PEER_PRECISION * failed:
            break
        else:
            load = (passed + failed) / 2.0
    return passed, probes * requests


def aiperf(target: CapacityTarget, requests: int, seed: int) -> tuple[float | None, int]:
    """The highest load that passed, or None, and the requests spent."""
    margins: dict[float, FloatArray] = {}

    def passes(load: float) -> bool:
        margins[load] = _peer_probe(target, load, requests, seed)
        return bool((margins[load] <= 0.0).all())

    passed, load = None, target.first_load
    while passes(load) and len(margins) < _MOST_PEER_PROBES:
        passed, load = load, 2.0 * load
    if passed is None:
        return None, len(margins) * requests
    failed, queue = load, [passed + (load - passed) * share for share in (0.25, 0.5, 0.75)]
    while len(margins) < _MOST_PEER_PROBES:
        for load in queue:
            if passes(load):
                passed = max(passed, load) if load < failed else passed
            elif load > passed:
                failed = min(failed, load)
        if failed - passed < _PEER_PRECISION * failed:
            break
        queue = [_root(margins, passed, failed)]
        if queue[0] in margins:
            break
    return passed, len(margins) * requests


def _root(margins: dict[float, FloatArray], passed: float, failed: float) -> float:
    """Where the fit of the limit that is nearest to failing crosses 0, else the middle."""
    loads = sorted(margins)
    curves = []
    for place in range(next(iter(margins.values())).size):
        fitted = isotonic_regression([margins[load][place] for load in loads]).x
        curves.append(PchipInterpolator(loads, fitted))

    def worst(load: float) -> float:
        return max(float(curve(load)) for curve in curves)

    if worst(passed) < 0.0 < worst(failed):
        return float(brentq(worst, passed, failed))
    return (passed + failed) / 2.0


def _peer_probe(target: CapacityTarget, load: float, requests: int, seed: int) -> FloatArray:
    """How far each percentile is above its limit, over the limit: all requests of a run, with one seed at every load."""
    values = target.draw(load, requests, np.random.default_rng([seed, requests]))
    percentiles = [np.quantile(each, 1.0 - allowed) for each, allowed in zip(values, target.allowed, strict=True)]
    margins: FloatArray = np.array(percentiles) / np.array(target.limits) - 1.0
    return margins


if __name__ == "__main__":
    main()
