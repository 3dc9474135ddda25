"""How often a search for capacity with a budget of time is right: searches of simulated fast servers of known capacity.

Each search is the product's, by the clock: its probes, their sizes in seconds, what each takes beside its sending, and its end.
A probe of a fast server has many requests in few seconds, less than an answer takes when many are in flight.

Per target (``FAST_TARGETS`` of benchmarks/capacity_targets.py): certified above the truth, and refused below it, in at most
6.5 % of the searches each.

Run: python -m benchmarks.timed_search [--searches 100] [--seed 31] [--budget 180] [--only NAME …] [--show]
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, replace

import numpy as np
from tabulate import tabulate

from bench_cli.experiments.search_plan import Spent, next_step, seconds_of
from bench_records.search import PlannedProbe, PlannedTier, Search
from benchmarks.capacity_honesty import early_end
from benchmarks.capacity_targets import FAST_TARGETS, CapacityTarget, Truth
from benchmarks.interval_coverage import as_requests
from benchmarks.serving_processes import Run
from reports.capacity.reading import MeasuredProbe, evidence, goals_of, probe_of, sets_of
from reports.capacity.result import Ended, LoadUnit, ProbeRun, Verdict
from reports.capacity.search import Bracket, bracket
from reports.metrics.configuration import ConfiguredLoad

_CLOSED_LOOP_S, _OVERHEAD_S = 15.0, 5.0  # beside the sending of a probe: a client's start, its warm-up and its report
_LAST_OVERHEADS = 3


@dataclass(frozen=True)
class State:
    """A search before a probe."""

    plan: Search
    spent: Spent


@dataclass(frozen=True)
class Found:
    """A search's bracket, its probes, the seconds that it took, and where it was before each probe."""

    bracket: Bracket
    probes: tuple[MeasuredProbe, ...]
    seconds: float
    ended: Ended
    states: tuple[State, ...] = ()

    @property
    def longest_series(self) -> int:
        """The most probes at one load that did not show how the queue moves."""
        loads = [each.run.probe.load for each in self.probes if each.run.probe.queue is None and not each.run.probe.gave_up]
        return max((loads.count(load) for load in loads), default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=100, help="simulated searches of each target")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--budget", type=float, default=180.0, help="seconds of a search")
    parser.add_argument("--only", nargs="+", default=None, metavar="NAME", help="targets whose names contain one of these")
    parser.add_argument("--show", action="store_true", help="print the probes of the first search of each")
    options = parser.parse_args()
    rows = []
    for target in FAST_TARGETS:
        if options.only is not None and not any(part in target.name for part in options.only):
            continue
        start_s, truth = time.monotonic(), target.truth()
        found = [search(target, options.budget, np.random.default_rng([options.seed, k])) for k in range(options.searches)]
        rows.append((target.name, f"{truth.capacity:.4g}", *_judged(truth, found)))
        print(f"{target.name}: {time.monotonic() - start_s:.0f} s", flush=True)
        if options.show:
            _show(found[0])
    headers = ("", "capacity", "above", "below", "certified", "ratio p50", "p80", "≤ 1.2", "none", "probes", "lost", "s")
    print(tabulate(rows, headers=headers, disable_numparse=True))


def _judged(truth: Truth, found: list[Found]) -> tuple[str, ...]:
    margin = 2.0 * truth.error + 0.0005 * truth.capacity
    certified = np.array([each.bracket.certified or 0.0 for each in found])
    refused = np.array([each.bracket.refused or math.inf for each in found])
    ratios = np.array([each.bracket.ratio or math.inf for each in found])
    known = certified[certified > 0.0]
    return (
        f"{(certified > truth.capacity + margin).mean():.1%}",
        f"{(refused < truth.capacity - margin).mean():.1%}",
        f"{np.median(known) / truth.capacity - 1.0:+.1%}" if known.size else "–",
        f"{np.quantile(ratios, 0.5, method='higher'):.2f}",
        f"{np.quantile(ratios, 0.8, method='higher'):.2f}",
        f"{(ratios <= 1.2001).mean():.0%}",
        f"{(certified == 0.0).mean():.0%}",
        f"{np.mean([len(each.probes) for each in found]):.1f}",
        f"{np.mean([each.longest_series for each in found]):.1f}, {max(each.longest_series for each in found)}",
        f"{np.mean([each.seconds for each in found]):.0f}, {max(each.seconds for each in found):.0f}",
    )


def _show(found: Found) -> None:
    for each in found.probes:
        probe = each.run.probe
        queue = "–" if probe.queue is None else f"growth {probe.queue.growth:.2f}, spread {probe.queue.spread:.2f}"
        (first, *_) = probe.violations
        took = f"{each.run.seconds:.1f} s, E2E {each.run.e2e_mean_ms:.0f} ms"
        gave_up = "gave up" if probe.gave_up else ""
        print(f"  {probe.load:8.4g} {probe.requests:6d} {first.above:5d} of {first.n:5d}  {took}  {queue} {gave_up}")
    print(f"  {found.bracket.certified} to {found.bracket.refused}, {found.bracket.shape}; {found.ended}")


def search(target: CapacityTarget, budget_s: float, rng: np.random.Generator) -> Found:
    """One search, after a closed loop that gave the first load."""
    plan = Search(
        ("token_norm_dist",), (PlannedTier(None, target.slos),), LoadUnit.REQUESTS_PER_S.value, 0.95, 1.2, budget_s, None, 0
    )
    plan = replace(plan, first_load=target.first_load, first_per_s=2.0 * target.first_load)
    measured, spent_s, beside_plan_s = list[MeasuredProbe](), _CLOSED_LOOP_S, [_OVERHEAD_S]
    states = list[State]()
    while True:
        most_s = max(_OVERHEAD_S, *beside_plan_s[-_LAST_OVERHEADS:])
        spent = Spent(budget_s - spent_s, _OVERHEAD_S, most_s)
        step = next_step(plan, measured, spent)
        if isinstance(step, Ended):
            break
        states.append(State(plan, spent))
        sending_s = seconds_of(plan, measured, step)
        plan = replace(plan, probes=(*plan.probes, step))
        measured.append(_probe(target, step, rng))
        took_s = measured[-1].run.seconds + _OVERHEAD_S
        beside_plan_s.append(took_s - sending_s)
        spent_s += took_s
    (goal,) = goals_of(plan, sets_of(plan))
    return Found(bracket(evidence(measured), goal), tuple(measured), spent_s, step, tuple(states))


def _probe(target: CapacityTarget, planned: PlannedProbe, rng: np.random.Generator) -> MeasuredProbe:
    """A probe, which ends early where the product would end it."""
    times = target.draw(planned.load, planned.requests, rng)
    sent = early_end(target, times)
    tokens = np.full(sent, 3)
    run = as_requests(Run(times.arrivals_s[:sent], times.ttft_ms[:sent], times.e2e_ms[:sent], tokens, tokens))
    probe = probe_of(planned.load, sent, run, ConfiguredLoad(rate_per_s=planned.load), target.limits)
    probe = replace(probe, gave_up=sent < planned.requests)
    ends_s = float((times.arrivals_s + times.e2e_ms / 1e3)[:sent].max())
    if probe.gave_up:  # the answers in flight are not waited for
        ends_s = min(ends_s, float(times.arrivals_s[sent - 1]))
    mean_ms = float(times.e2e_ms[:sent].mean())
    shown = ProbeRun(probe, planned.folder, False, True, "", Verdict.UNDECIDED, ends_s, sent / ends_s, None, None, mean_ms, ())
    return MeasuredProbe(shown, counts=True, target_gone=False, goodputs=(None,))


if __name__ == "__main__":
    main()
