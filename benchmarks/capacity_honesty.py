"""How often a search for capacity is right, and what it costs: searches of simulated servers whose capacity is known.

Per target (benchmarks/capacity_targets.py): certified above the truth, by more than two of its standard errors, and refused
below it, in at most 6.5 % of the searches each (heavy tails: certified in at most 12 %). The ratio of the two is at most 1.2 in
80 % of the searches with at most 150,000 requests in all of M/M/1 and of in-flight batching with 60 ms, and 70,000 of M/D/1.

Beside it, with as many requests: the searches of AIPerf 0.13 (doubles the load to the first failure, three probes between, then
an isotonic fit of the percentile with a monotone cubic, and probes at its root, to 5 %) and of GuideLLM 0.8 (doubles, then
bisects to 5 %), which both judge a probe by its own share or percentile and answer with the highest load that passed. Both
raise the concurrency; here they raise the rate.

Run: python -m benchmarks.capacity_honesty [--searches 200] [--seed 31] [--only NAME …] [--budget 150000] [--no_peers]
                                           [--processes 1]
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq, isotonic_regression
from tabulate import tabulate

from benchmarks.capacity_targets import TARGETS, CapacityTarget, Truth
from benchmarks.interval_coverage import as_requests
from benchmarks.serving_processes import Run, Times
from reports.capacity.limits import LimitSet, hopeless
from reports.capacity.probe import Probe
from reports.capacity.reading import probe_of
from reports.capacity.search import Bracket, Goal, bracket, next_probe
from reports.criteria import parse_stop_if
from reports.metrics.catalogue import TTFT
from reports.metrics.configuration import ConfiguredLoad
from reports.statistics.arrays import FloatArray
from reports.statistics.quantile_curve import nearest_rank_of

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
    parser.add_argument("--processes", type=int, default=1, help="that search beside each other")
    options = parser.parse_args()
    chosen = [each for each in TARGETS if options.only is None or any(part in each.name for part in options.only)]
    failures = []
    with ProcessPoolExecutor(options.processes) as pool:
        for target in chosen:
            failures += _check(target, options, pool)
    print(f"\nNot as required: {len(failures)}.")
    print("\n".join(failures))
    sys.exit(1 if failures else 0)


def _check(target: CapacityTarget, options: argparse.Namespace, pool: Executor) -> list[str]:
    truth, start_s, seeds = target.truth(), time.monotonic(), range(options.searches)
    budget = min(options.budget, _BUDGETS.get(target.name, options.budget))
    jobs = [(TARGETS.index(target), budget, options.seed, k) for k in seeds]
    found = list(pool.map(_search, jobs, chunksize=5))
    requests = int(np.mean([each.requests for each in found]))
    row, failures = _judged(target, truth, found)
    rows = [row]
    if not options.no_peers:
        for name, a_search in (("AIPerf", _aiperf), ("GuideLLM", _guidellm)):
            jobs = [(TARGETS.index(target), requests // _PEER_PROBES[name], options.seed, k) for k in seeds]
            rows.append(_peer_row(name, truth, list(pool.map(a_search, jobs, chunksize=5))))
    headers = ("", "above", "below", "certified", "estimate", "ratio p50", "p80", "≤ 1.2", "none", "requests")
    print(f"\n{target.name}: capacity {truth.capacity:.4g} ± {truth.error:.2g}, {options.searches} searches,", end=" ")
    print(f"{time.monotonic() - start_s:.0f} s")
    print(tabulate(rows, headers=headers, disable_numparse=True), flush=True)
    return failures


_Job = tuple[int, int, int, int]
"""A target's number, requests in all or of a probe, and the two parts of a seed."""


def _search(job: _Job) -> Search:
    number, budget, *seeds = job
    return search(TARGETS[number], budget, np.random.default_rng(seeds))


def _aiperf(job: _Job) -> tuple[float | None, int]:
    number, requests, seed, k = job
    return aiperf(TARGETS[number], requests, seed * 1_000_000 + k)


def _guidellm(job: _Job) -> tuple[float | None, int]:
    number, requests, seed, k = job
    return guidellm(TARGETS[number], requests, seed * 1_000_000 + k)


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


def search(target: CapacityTarget, budget: int, rng: np.random.Generator, confidence: float = 0.95) -> Search:
    goal = Goal(tuple(range(len(target.limits))), tuple(limit.allowed for limit in target.limits), confidence)
    probes, spent = list[Probe](), 0
    while (asked := next_probe(probes, goal, target.first_load, budget - spent)) is not None:
        probes.append(probe(target, asked.load, asked.requests, rng))
        spent += probes[-1].requests
    sums = np.cumsum([each.requests for each in probes])
    half = int(np.searchsorted(sums, spent / 2.0))
    more = bracket(probes[: half + 1], goal).more_requests
    return Search(bracket(probes, goal), spent, len(probes), None if more is None else int(sums[half]) + more)


def probe(target: CapacityTarget, load: float, requests: int, rng: np.random.Generator) -> Probe:
    """A run of this many requests, read as the product reads it, which ends early where the product would end it."""
    times = target.draw(load, requests, rng)
    sent = early_end(target, times)
    tokens = np.full(sent, 3)
    run = as_requests(Run(times.arrivals_s[:sent], times.ttft_ms[:sent], times.e2e_ms[:sent], tokens, tokens))
    found = probe_of(load, sent, run, ConfiguredLoad(rate_per_s=load), target.limits)
    return replace(found, gave_up=sent < requests)


def early_end(target: CapacityTarget, times: Times) -> int:
    """The requests that are due before more are known to be beyond the limit of --stop_if than may be."""
    rule = hopeless([LimitSet(None, target.limits)])
    if rule is None:
        return times.arrivals_s.size
    beyond, requests = parse_stop_if(rule), times.arrivals_s.size
    values_ms = times.ttft_ms if beyond.metric is TTFT else times.e2e_ms
    known_s = np.sort(times.arrivals_s[values_ms > beyond.limit] + beyond.limit / 1e3)
    may_be = requests - nearest_rank_of(beyond.q or 0.0, requests)
    return requests if known_s.size <= may_be else int(np.searchsorted(times.arrivals_s, known_s[may_be]))


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
    values_ms = target.values_ms(target.draw(load, requests, np.random.default_rng([seed, requests])))
    return np.array(
        [
            np.quantile(each, 1.0 - limit.allowed) / limit.requirement.limit - 1.0
            for each, limit in zip(values_ms, target.limits, strict=True)
        ]
    )


if __name__ == "__main__":
    main()
