"""The plan of a search for capacity in words, before anything is sent."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from bench_cli.experiments.budget import budget_lines
from bench_cli.experiments.search_plan import REQUESTS_OF_A_USER, TYPICAL, closed_loop_s, closed_loop_users, with_precision
from bench_records.search import PlannedTier, Search
from bench_records.settings import PlannedRanking
from reports.capacity.result import LoadUnit
from reports.capacity.words import load_number, precision_text, time_text

_RATES = (1, 10, 100, 1_000)  # requests/s, as examples


def dry_run(search: Search) -> str:
    """The plan of a search, for the console."""
    users = search.unit == LoadUnit.USERS
    if search.spent_s and search.first_load is not None:
        first = f"No closed loop: the search has begun, and took {time_text(search.spent_s)} so far"
        then = f"Further probes, after {len(search.probes):,}, where each teaches most"
    elif search.first_load is None and search.model is not None:
        first = "No closed loop: the model is simulated"
        then = "Probes from the model's own capacity on, then where each teaches most"
    elif search.first_load is None:
        count = closed_loop_users(search)
        at_most = f"{count * REQUESTS_OF_A_USER:,} requests" if search.conversations else f"{closed_loop_s(search):.0f} s"
        first = f"A closed loop of {count} users, of at most {at_most}"
        then = "Probes from half of its throughput on, then where each teaches most"
        if users:
            then = f"Probes, at first of as many users as its latencies leave room for, of at most {search.most_load:g}"
    elif users:
        first = f"A closed loop of {search.first_load:g} users, to know how many requests a second they send"
        then = f"Probes from {search.first_load:g} users on, up to {search.most_load:g}, then where each teaches most"
    else:
        first, then = "No closed loop, for the first rate is given", f"Probes from {search.first_load:g} requests/s on"
    option = "--concurrency" if users else "--request_rate"
    ends = "" if search.budget_s is None else f", or the budget of {time_text(search.budget_s)} is spent"
    least, most = (with_precision(count, search.ratio) for count in TYPICAL)
    budget = budget_lines(search)
    lines = [
        "Plan (nothing is sent):",
        f"  1. {first}.",
        f"  2. {then}, as",
        f"     bench {shlex.join(search.arguments)} {option} … --num_requests … --seed {search.seed + 1}",
        f"  3. The end: the answer is within {precision_text(search.ratio)} at {100.0 * search.confidence:.4g} %{ends}.",
        "",
        *(_limits_text(tier) for tier in search.tiers),
        "",
        *budget,
        *([""] if budget else []),
        f"{precision_text(search.ratio)} usually needs {_hundreds(least)} to {_hundreds(most)} requests near the capacity,",
        "fewer where all answers take alike, more where long prompts delay others. That is:",
        *(f"  at {per_s:>5,} requests/s {time_text(least / per_s)} to {time_text(most / per_s)}" for per_s in _RATES),
        *(() if search.budget_s is None else (_enough(search, search.budget_s, least, most),)),
    ]
    return "\n".join(lines)


def dry_run_of_settings(plan: PlannedRanking, searches: Sequence[Search]) -> str:
    """The plan of the searches of several settings, for the console."""
    count, first = len(searches), searches[0]
    each, together = (f"{100.0 * confidence:.4g} %" for confidence in (first.confidence, plan.confidence))
    share_s = None if plan.budget_s is None else plan.budget_s / count
    share = "" if share_s is None or plan.budget_s is None else f" and {time_text(share_s)} of {time_text(plan.budget_s)}"
    return "\n".join(
        [
            f"{count} settings in turns, each with a search as below, with {each}{share}.",
            f"All brackets are right together at {together}, and what a setting does not need is for the others:",
            *(f"  {setting.name}" for setting in plan.settings),
            "",
            f"{plan.settings[0].name}:",
            dry_run(replace(first, budget_s=share_s)),
        ]
    )


def _enough(search: Search, budget_s: float, least: float, most: float) -> str:
    left_s = budget_s - search.spent_s
    budget = f"The budget of {time_text(budget_s)}"
    if left_s <= 0.0:
        return f"{budget} is spent; a longer one goes on."
    what = f"What is left of the budget, {time_text(left_s)}," if search.spent_s else budget
    low, high = least / left_s, most / left_s
    return f"{what} may be enough from {load_number(low)} requests/s on, and is enough from {load_number(high)} on."


def _limits_text(tier: PlannedTier) -> str:
    name = "" if tier.name is None else f" of {tier.name}"
    return f"Limits{name}: {', '.join((*tier.limits, *tier.objectives))}"


def _hundreds(count: float) -> str:
    return f"{round(count, -2):,.0f}"
