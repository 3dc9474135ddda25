"""Searches for the number of users that a simulated engine holds: how often they are wrong, and what they cost.

A closed loop of simulated in-flight batching, whose capacity is known from long simulations. Each search is the product's: its
first users from a short closed loop, its probes, their sizes, and its end. Beside it, a search that starts at 8 users.

Run: python -m benchmarks.users_search [--searches 20] [--budget 1800] [--only NAME …]
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray
from tabulate import tabulate

from bench_cli.experiments.search_plan import Spent, closed_loop_s, closed_loop_users, first_users, next_step
from bench_records.search import PlannedProbe, PlannedTier, Search
from reports.capacity.probe import Probe
from reports.capacity.reading import MeasuredProbe, evidence, goals_of, sets_of
from reports.capacity.result import Ended, LoadUnit, ProbeRun, Verdict
from reports.capacity.search import Bracket, bracket
from reports.capacity.violations import violations
from reports.statistics.arrays import FloatArray

_MOST_USERS = 400
_OVERHEAD_S = 4.0  # of a probe, beside its sending
_ALLOWED, _HOPELESS = 0.01, 0.2  # shares of the requests
_RAMP, _STARTING = 0.1, 0.2
_PROMPT_DEVIATION = 0.8  # of the logarithm
_LONG_RUN, _SEEDS, _LOOP_REQUESTS = 40_000, 4, 20_000
_GIVEN_FIRST = 8.0


@dataclass(frozen=True)
class Target:
    """An engine that advances each of at most ``slots`` sequences in a step, which takes ``step_s``, and more for each sequence
    and each prompt token. ``limit_ms`` is on TTFT, or on E2E latency.
    """

    name: str
    limit_ms: float
    of_ttft: bool = True
    slots: int = 64
    step_s: float = 0.008
    sequence_s: float = 2e-4
    prompt_token_s: float = 2e-5
    prompt_tokens: int = 100
    output_tokens: int = 100


TARGETS = (
    Target("64 slots, TTFT 500 ms", 500.0),
    Target("64 slots, E2E 5 s", 5_000.0, of_ttft=False),
    Target("long prompts, TTFT 2 s", 2_000.0, prompt_tokens=500, prompt_token_s=2e-4, output_tokens=20),
    Target("256 slots, TTFT 200 ms", 200.0, slots=256, step_s=0.005, sequence_s=2e-5, output_tokens=20),
    Target("4 slots, TTFT 1 s", 1_000.0, slots=4, step_s=0.005, output_tokens=30),
    Target("512 slots, E2E 15 s", 15_000.0, of_ttft=False, slots=512, sequence_s=1e-4),
    Target("128 fast slots, TTFT 50 ms", 50.0, slots=128, step_s=0.002, sequence_s=1e-5, prompt_token_s=5e-6, output_tokens=20),
)


@dataclass(frozen=True, eq=False)
class Answers:
    """When each request was due, when it ended, and what the limit covers: shape [requests] each."""

    due_s: FloatArray
    end_s: FloatArray
    values_ms: FloatArray

    def only(self, chosen: NDArray[np.bool_]) -> Answers:
        return Answers(self.due_s[chosen], self.end_s[chosen], self.values_ms[chosen])

    def steady(self, ramp_up_s: float) -> FloatArray:
        """The values as reports/capacity/reading.py chooses them: without the beginning and the end."""
        first_s, last_s = self.due_s.min(), self.due_s.max()
        span_s = last_s - first_s
        begin_s = max(_RAMP * span_s, min(ramp_up_s, span_s / 2.0))
        end_s = min(_RAMP * span_s, float(np.quantile(self.end_s - self.due_s, 0.9)))
        steady: FloatArray = self.values_ms[(self.due_s >= first_s + begin_s) & (self.due_s <= last_s - end_s)]
        return steady


@dataclass(frozen=True)
class Found:
    bracket: Bracket
    requests: int
    probes: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=20, help="simulated searches of each target")
    parser.add_argument("--budget", type=float, default=1_800.0, help="seconds of a search")
    parser.add_argument("--only", nargs="+", default=None, metavar="NAME", help="targets whose names contain one of these")
    options = parser.parse_args()
    headers = ("", "users", "above", "below", "within ±10 %", "probes", "requests", "s")
    rows = []
    for target in TARGETS:
        if options.only is not None and not any(part in target.name for part in options.only):
            continue
        users = capacity(target)
        for name, first_load in (("", None), (", from 8 users", _GIVEN_FIRST)):
            found = [search(target, options.budget, seed, first_load) for seed in range(options.searches)]
            rows.append((target.name + name, users, *_judged(found, users)))
    print(tabulate(rows, headers=headers, disable_numparse=True))


def _judged(found: list[Found], users: int) -> tuple[str, ...]:
    above = np.mean([(each.bracket.certified or 0.0) > users for each in found])
    below = np.mean([(each.bracket.refused or math.inf) <= users for each in found])
    narrow = np.mean([each.bracket.ratio is not None and each.bracket.ratio <= 1.2001 for each in found])
    probes, requests, seconds = np.mean([(each.probes, each.requests, each.seconds) for each in found], axis=0)
    return f"{above:.0%}", f"{below:.0%}", f"{narrow:.0%}", f"{probes:.1f}", f"{requests:,.0f}", f"{seconds:,.0f}"


def capacity(target: Target) -> int:
    """The most users with whom at most the allowed share is beyond the limit, by bisection."""
    low, high = 1, _MOST_USERS
    while high - low > 1:
        middle = min(max(round(math.sqrt(low * high)), low + 1), high - 1)
        values = [_run(target, middle, max(_LONG_RUN, 60 * middle), 5.0, seed).steady(5.0) for seed in range(_SEEDS)]
        held = np.mean(np.concatenate(values) > target.limit_ms) <= _ALLOWED
        low, high = (middle, high) if held else (low, middle)
    return low


def search(target: Target, budget_s: float, seed: int, first_load: float | None) -> Found:
    """One search, from ``first_load`` users where it is given."""
    limit = f"p99_{'ttft' if target.of_ttft else 'e2e'}<={target.limit_ms:g}ms"
    tiers = (PlannedTier(None, (limit,)),)
    plan = Search(("token_norm_dist",), tiers, LoadUnit.USERS.value, 0.95, 1.2, budget_s, float(_MOST_USERS), seed)
    plan = replace(plan, first_load=first_load)
    lasts_s = closed_loop_s(plan)
    ramp_up_s = _STARTING * lasts_s
    loop = _run(target, closed_loop_users(plan), _LOOP_REQUESTS, ramp_up_s, seed)
    loop = loop.only(loop.due_s < lasts_s)
    spent_s, requests = float(loop.end_s.max()) + _OVERHEAD_S, loop.due_s.size
    per_s = requests / float(loop.end_s.max())
    reach = float(np.quantile(loop.steady(ramp_up_s), 1.0 - _ALLOWED, method="higher")) / target.limit_ms
    plan = replace(plan, first_load=first_load or first_users(plan, per_s, reach), first_per_s=per_s)
    measured = list[MeasuredProbe]()
    while not isinstance(step := next_step(plan, measured, Spent(budget_s - spent_s, _OVERHEAD_S, _OVERHEAD_S)), Ended):
        plan = replace(plan, probes=(*plan.probes, step))
        measured.append(_probe(target, step))
        requests += measured[-1].run.probe.requests
        spent_s += measured[-1].run.seconds + _OVERHEAD_S
    (goal,) = goals_of(plan, sets_of(plan))
    return Found(bracket(evidence(measured), goal), requests, len(measured), spent_s)


def _probe(target: Target, planned: PlannedProbe) -> MeasuredProbe:
    """A probe, which ends once more of its requests are beyond the limit than --stop_if lets be."""
    answers = _run(target, int(planned.load), planned.requests, planned.ramp_up_s, planned.seed)
    in_order = np.argsort(answers.end_s)
    beyond = np.cumsum(answers.values_ms[in_order] > target.limit_ms)
    last = int(np.searchsorted(beyond, _HOPELESS * planned.requests + 1))
    gave_up = last < planned.requests
    ends_s = float(answers.end_s[in_order][min(last, planned.requests - 1)])
    sent = answers.only(answers.due_s <= ends_s)
    found = violations(sent.steady(planned.ramp_up_s), target.limit_ms, _ALLOWED)
    probe = Probe(planned.load, sent.due_s.size, (found,), gave_up=gave_up)
    per_s = sent.due_s.size / ends_s
    run = ProbeRun(probe, planned.folder, False, True, "", Verdict.UNDECIDED, ends_s, per_s, None, None, None, ())
    return MeasuredProbe(run, counts=True, target_gone=False, goodputs=(None,))


def _run(target: Target, users: int, requests: int, ramp_up_s: float, seed: int) -> Answers:
    """A closed loop of this many requests; the users start evenly over ``ramp_up_s``."""
    rng = np.random.default_rng([seed, users, requests])
    shift = _PROMPT_DEVIATION**2 / 2.0
    prompts = np.maximum(1.0, target.prompt_tokens * rng.lognormal(-shift, _PROMPT_DEVIATION, requests))
    outputs = rng.geometric(1.0 / target.output_tokens, requests)
    starts_s = np.arange(users) * ramp_up_s / users
    noise = rng.lognormal(0.0, 0.05, 40_009)
    times = (target.step_s, target.sequence_s, target.prompt_token_s)
    due_s, ttft_s, end_s = _closed_loop(starts_s, prompts, outputs, noise, target.slots, times)
    return Answers(due_s, end_s, (ttft_s if target.of_ttft else end_s - due_s) * 1e3)


# One compiled loop: numba cannot pass the state on without making it slow.
@njit(cache=True)
def _closed_loop(starts_s, prompts, outputs, noise, slots, times):  # type: ignore[no-untyped-def]
    step_s, sequence_s, prompt_token_s = times
    n, users = outputs.size, starts_s.size
    due_s, ttft_s, end_s = np.zeros(n), np.full(n, -1.0), np.zeros(n)
    batch, left = np.empty(slots, np.int64), np.empty(slots, np.int64)
    size, entered, due, started, ended, steps, now_s = 0, 0, 0, 0, 0, 0, 0.0
    while ended < n:
        if size == 0 and entered == due and started < users:
            now_s = max(now_s, starts_s[started])
        while started < users and due < n and starts_s[started] <= now_s:
            due_s[due] = starts_s[started]
            due, started = due + 1, started + 1
        prompt_tokens = 0.0
        while size < slots and entered < due:
            batch[size], left[size] = entered, outputs[entered]
            prompt_tokens += prompts[entered]
            size, entered = size + 1, entered + 1
        now_s += (step_s + sequence_s * size + prompt_token_s * prompt_tokens) * noise[steps % noise.size]
        steps += 1
        kept = 0
        for k in range(size):
            request = batch[k]
            if ttft_s[request] < 0.0:
                ttft_s[request] = now_s - due_s[request]
            left[k] -= 1
            if left[k] > 0:
                batch[kept], left[kept] = request, left[k]
                kept += 1
                continue
            end_s[request] = now_s
            ended += 1
            if due < n:
                due_s[due] = now_s
                due += 1
        size = kept
    return due_s, ttft_s, end_s


if __name__ == "__main__":
    main()
