"""The answer of a search for capacity in sentences, the same in every format: what holds, what fails, and what is not known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reports.capacity.control import controlled, explained
from reports.capacity.probe import Probe
from reports.capacity.result import Capacity, Ended, LoadUnit, ProbeRun, Tier
from reports.capacity.search import Bracket, Goal, Shape, gave_up_in_stall, grows_from, overloaded_from, points_of
from reports.capacity.shares import fitted_share
from reports.capacity.words import (
    allowed_text,
    certified_number,
    confidence_text,
    count_text,
    counted_text,
    limit_text,
    limits_text,
    load_number,
    load_text,
    precision_text,
    refused_number,
    requests_text,
    share_text,
    time_text,
    width_text,
)
from reports.criteria import Requirement
from reports.render.plain_text import printable
from reports.statistics.autocorrelation import SHORT_RUN

FEWEST_CLUSTERS = 10.0
"""Independent times beyond the limit near the crossing, below which a bracket may be wrong more often than it says."""

_FAR = 5.0  # times the allowed share
_CLEARLY = 1.25  # times a load, or what a target answers: nearer to a cliff, probes are calm or not by chance
_GO_ON = "bench capacity --experiment_dir with this folder continues it"
_PROBE_S = 30.0  # of sending, about, where a probe sends as many requests as it may
_WORTH = 1.05  # times the requests: less rounds to 1
_UNSEEN = 3.0  # events that are expected in a time without one, at 95 %: −ln 0.05


@dataclass(frozen=True, slots=True)
class Searched:
    """What a sentence is made of: the valid probes, what they were to hold, and what they show."""

    unit: LoadUnit
    limits: tuple[Requirement, ...]
    goal: Goal
    bracket: Bracket
    probes: tuple[Probe, ...]

    @property
    def required(self) -> tuple[Requirement, ...]:
        """The limits of the goal."""
        return tuple(self.limits[k] for k in self.goal.limits)

    @property
    def certified(self) -> str | None:
        """The certified load in words."""
        load = self.bracket.certified
        return None if load is None else load_text(certified_number(load, self.unit), self.unit)

    @property
    def refused(self) -> str | None:
        """The refused load in words."""
        load = self.bracket.refused
        return None if load is None else load_text(refused_number(load, self.unit), self.unit)

    @property
    def deciding(self) -> int:
        """The position in the goal of the limit that decides; the first where that is unknown."""
        return self.bracket.binding or 0


def searched(capacity: Capacity, tier: Tier) -> Searched:
    """The search for one tier."""
    probes = tuple(run.probe for run in capacity.probes if run.valid)
    return Searched(capacity.unit, capacity.limits, tier.goal, tier.bracket, probes)


def answer(capacity: Capacity) -> str:
    """The first line of every format: one sentence for each tier, and why the search ended where that limits them."""
    if not capacity.probes and capacity.ended is Ended.BUDGET and capacity.budget_s is not None:
        return f"Undecided: the budget of {time_text(capacity.budget_s)} leaves no time for a probe."
    if capacity.probes and not any(run.valid for run in capacity.probes):
        return " ".join([f"Undecided: no probe is valid. {_why_not_valid(capacity)}", *_target_failed(capacity)])
    sentences = [named(tier, tier_answer(searched(capacity, tier))) for tier in capacity.tiers]
    return " ".join([*sentences, *early_ends(capacity)])


def named(tier: Tier, text: str) -> str:
    """A sentence of a tier, after its name."""
    return text if tier.name is None else printable(f"{tier.name}: {text}")


def tier_answer(search: Searched) -> str:
    """What holds and what fails, in one sentence."""
    match search.bracket.shape:
        case Shape.NOT_MONOTONE:
            return _not_monotone(search)
        case Shape.FLAT:
            return _flat(search)
        case Shape.CLIFF:
            return _cliff(search)
        case Shape.NEVER_HELD:
            return _never_held(search)
        case _:
            return _bracket(search)


def details(capacity: Capacity, tier: Tier) -> tuple[str, ...]:
    """The sentences after the answer: how wide the bracket is and what would narrow it, which limit decides, what the target
    does at the certified load, and what the search cannot know.
    """
    search = searched(capacity, tier)
    parts = (
        _width(capacity, search),
        _forecast(capacity, tier),
        _deciding(search),
        _unsteady(capacity, search),
        _calm_above_a_bad_probe(search),
        _stalls(search),
        _explained(search),
        _at_certified(capacity, tier),
        _unmet(capacity, search),
    )
    return tuple(part for part in parts if part)


def cost(capacity: Capacity) -> str:
    """What was spent, and why no more."""
    probes = len(capacity.probes)
    seconds = capacity.seconds if capacity.spent_s is None else capacity.spent_s
    spent = f"{probes} {'probe' if probes == 1 else 'probes'}, {capacity.requests:,} requests, {time_text(seconds)}"
    budget = "" if capacity.budget_s is None else f" of {time_text(capacity.budget_s)}"
    match capacity.ended:
        case Ended.BUDGET if capacity.budget_s is not None and seconds < capacity.budget_s:
            return f"{spent}: what is left of the budget{budget} is too short for a probe."
        case Ended.BUDGET:
            return f"{spent}: the budget{budget} is spent."
        case None:
            return f"{spent}: the search has not ended; {_GO_ON}."
        case Ended.INTERRUPTED:
            return f"{spent}: the search was stopped; {_GO_ON}."
        case Ended.TARGET_FAILED:
            return f"{spent}: {capacity.ended}; {_GO_ON}."
        case _:
            return f"{spent}: {capacity.ended}."


def early_ends(capacity: Capacity) -> Iterator[str]:
    """Why the search ended, where that limits its answer."""
    if capacity.ended is Ended.NOT_VALID:
        yield f"The last probes are not valid, so the search ended. {_why_not_valid(capacity)}"
    yield from _target_failed(capacity)


def _target_failed(capacity: Capacity) -> Iterator[str]:
    if capacity.ended is Ended.TARGET_FAILED:
        probes = len(capacity.probes)
        after = f"stopped answering after {probes} {'probe' if probes == 1 else 'probes'}" if probes else "did not answer"
        yield f"The target {after}."


def _why_not_valid(capacity: Capacity) -> str:
    """The problem of the last probe that is not valid, and what to do."""
    problems = [run.problem for run in capacity.probes if not run.valid and run.problem]
    return f"{problems[-1]}." if problems else "Their findings say why."


# ---- the sentence of each shape


def _bracket(search: Searched) -> str:
    certified, refused, of_limits = search.certified, search.refused, limits_text(search.required)
    sure = f"({confidence_text(search.goal.confidence)})"
    if certified and refused:
        return f"Holds {certified} with {of_limits} {sure}; fails at {refused}."
    if certified:
        above = "no load was high enough to fail" if search.bracket.shape is Shape.ALWAYS_HELD else "more is undecided"
        return f"Holds {certified} with {of_limits} {sure}; {above}."
    if refused:
        return f"Does not hold {refused} with {of_limits} {sure}; no lower load is certified."
    if not search.probes:
        return "Undecided: no load was measured."
    never = _never_counted(search)
    if never is not None:
        shown = f"the {_requests(search)} have no {never.metric.label}"
        return f"Undecided: {shown}, so no number of them shows whether {limit_text(never)} holds."
    hold = "holds" if len(search.required) == 1 else "hold"
    return f"Undecided: {_requests(search)} at {_loads(search)} are too few to show whether {of_limits} {hold}."


def _never_held(search: Searched) -> str:
    if search.refused is None:  # too few requests to be sure that it fails
        return _bracket(search)
    sure = f"({confidence_text(search.goal.confidence)})"
    fail = "fail" if search.unit is LoadUnit.USERS and search.bracket.refused != 1.0 else "fails"
    return f"No load that was tried holds {limits_text(search.required)}: even {search.refused} {fail} {sure}."


def _cliff(search: Searched) -> str:
    in_stall = any(p.load == search.bracket.refused and gave_up_in_stall(p, search.goal.limits) for p in search.probes)
    if search.unit is LoadUnit.USERS or in_stall:  # users wait for their answers, so no queue grows
        return _bracket(search)
    certified, refused = search.certified, search.refused
    grows = f"the queue grows at {refused}" if refused else "the queue grows above it"
    why = "capacity is where it begins to grow, whatever the limit"
    if certified:
        sure = f"({confidence_text(search.goal.confidence)})"
        return f"Holds {certified} with {limits_text(search.required)} {sure}; {grows}, and {why}."
    return f"{_capital(grows)}, and no lower load is certified; {why}."


def _flat(search: Searched) -> str:
    """The range of loads over which the share hardly changes, with the shares there."""
    limit, low, high = search.required[search.deciding], *_flat_range(search)
    shares = [_share_at(search, load) for load in (low, high)]
    counted = counted_text(limit)
    rises = (
        f"the share of {counted} beyond it hardly rises"
        if None in shares
        else f"the share of {counted} beyond it goes{_as_fitted(search)} from {share_text(shares[0] or 0.0)} to "
        f"{share_text(shares[1] or 0.0)}"
    )
    allowed = allowed_text(search.goal.allowed[search.deciding])
    between = f"from {load_number(low)} to {load_text(high, search.unit)} {rises}, with {allowed} allowed; read the curve"
    if search.certified is None and search.refused is None:
        return f"{_capital(limit_text(limit))} does not decide: {between}."
    subject = "the limit" if len(search.required) == 1 else limit_text(limit)
    certified, refused, sure = search.certified, search.refused, f"({confidence_text(search.goal.confidence)})"
    if certified and refused:
        return f"{_bracket(search)[:-1]}, but between them {subject} does not decide: {between}."
    known = f"Holds {certified}" if certified else f"Does not hold {refused}"
    where = "above it" if certified else "below it"
    return f"{known} with {limits_text(search.required)} {sure}, but {where} {subject} does not decide: {between}."


def _not_monotone(search: Searched) -> str:
    """The two probes with the largest fall of the share at a rising load."""
    fall = _largest_fall(search)
    limit = search.required[search.deciding]
    seen = "" if fall is None else f": {share_text(fall[0].share)} at {load_text(fall[0].load, search.unit)}, "
    seen += "" if fall is None else f"{share_text(fall[1].share)} at {load_text(fall[1].load, search.unit)}"
    sentence = f"the share of {counted_text(limit)} beyond {limit_text(limit)} falls at a higher load{seen}"
    wanted = "something other than the load changed between the probes"
    if search.certified and search.refused:
        return f"{_bracket(search)[:-1]}, but {sentence}; {wanted}."
    return f"Undecided: {sentence}; {wanted}."


# ---- the sentences after it


def _width(capacity: Capacity, search: Searched) -> str:
    """The best estimate, the width of the bracket, and what a narrower one needs."""
    bracket, goal = search.bracket, search.goal
    ratio = bracket.ratio
    parts = [] if bracket.estimate is None else [f"the best estimate is {load_text(bracket.estimate, search.unit)}"]
    parts += [] if ratio is None else [f"the bracket is {width_text(ratio)}"]
    if ratio is None or ratio > goal.ratio * (1.0 + 1e-9):
        needed = _needed(capacity, search)
        parts += [needed] if needed else []
    return f"{_capital('; '.join(parts))}." if parts else ""


def _forecast(capacity: Capacity, tier: Tier) -> str:
    """The width that was expected before the last probe, of a search that came to its end."""
    if capacity.ended not in (Ended.PRECISE, Ended.BUDGET, Ended.DECIDED_BY_NOTHING):
        return ""
    last = capacity.forecasts.get(capacity.probes[-2].folder) if len(capacity.probes) > 1 else None
    ratio = None if last is None else last.ratios[capacity.tiers.index(tier)]
    return "" if ratio is None else f"Before the last probe a bracket of {width_text(ratio)} was expected."


def _needed(capacity: Capacity, search: Searched) -> str:
    """How many requests and how much time the precision needs, at the pace of the probe nearest to the crossing."""
    wanted = precision_text(search.goal.ratio)
    if search.bracket.shape in (Shape.FLAT, Shape.NOT_MONOTONE, Shape.NEVER_HELD):
        return ""
    if search.bracket.more_requests == 0:
        return ""
    if capacity.probes and (not search.probes or _never_counted(search) is not None):
        return ""  # more of the same would not be valid either, or not have what is limited
    if search.bracket.more_requests is None:
        if search.bracket.ratio is not None:
            return f"no number of requests is known that reaches {wanted}"
        return "a longer --budget would show more" if capacity.ended in (Ended.BUDGET, Ended.INTERRUPTED, None) else ""
    requests = requests_text(search.bracket.more_requests)
    near = search.bracket.estimate or search.bracket.certified or search.bracket.refused
    pace = min(
        capacity.probes,
        key=lambda run: abs(run.probe.load - near) if near is not None else -run.probe.load,
        default=None,
    )
    if pace is None or not pace.probe.requests or pace.seconds <= 0:
        return f"{wanted} needs about {requests} more requests"
    between_s = 0.0 if capacity.spent_s is None else max(0.0, capacity.spent_s - capacity.seconds) / len(capacity.probes)
    seconds = needed_s(search.bracket.more_requests, pace.probe.requests / pace.seconds, between_s)
    return f"{wanted} needs about {time_text(seconds)} more ({requests} requests)"


def needed_s(requests: int, per_s: float, overhead_s: float) -> float:
    """The time of this many more ``requests`` at ``per_s`` a second; a probe takes ``overhead_s`` beside its sending."""
    sending_s = requests / per_s
    return sending_s * (1.0 + overhead_s / max(overhead_s, min(sending_s, _PROBE_S), 1.0))


def _deciding(search: Searched) -> str:
    decides = search.bracket.shape in (Shape.CROSSING, Shape.NEVER_HELD)
    if search.bracket.binding is None or len(search.required) == 1 or not decides:
        return ""
    return f"The limit that decides is {limit_text(search.required[search.bracket.binding])}."


def _unsteady(capacity: Capacity, search: Searched) -> str:
    """That the target was clearly slower in an overloaded probe than in one that held: no one load is then its capacity."""
    runs = [run for run in capacity.probes if run.valid and run.probe.requests >= SHORT_RUN]
    slow = [run for run in runs if run.probe.overloaded and not gave_up_in_stall(run.probe, search.goal.limits)]
    fast = [run for run in runs if _is_within(search, run.probe)]
    of_users = search.unit is LoadUnit.USERS
    return _too_many_users(slow, fast) if of_users else _slower_with_a_queue(search.unit, slow, fast)


def _slower_with_a_queue(unit: LoadUnit, slow: Sequence[ProbeRun], fast: Sequence[ProbeRun]) -> str:
    least = min((run for run in slow if _answered_per_s(run)), key=_answered_per_s, default=None)
    most = max(fast, key=_answered_per_s, default=None)
    if least is None or most is None or _answered_per_s(most) < _CLEARLY * _answered_per_s(least):
        return ""
    slower, faster = (load_text(_answered_per_s(run), LoadUnit.REQUESTS_PER_S) for run in (least, most))
    return (
        f"The target answered {slower} while its queue grew at {load_text(least.probe.load, unit)}, and {faster} in a probe at "
        f"{load_text(most.probe.load, unit)} that met the limits: either its speed changed between the probes, and another "
        "search may answer otherwise, or a growing queue makes it slower."
    )


def _answered_per_s(run: ProbeRun) -> float:
    return run.request_throughput or 0.0


def _too_many_users(slow: Sequence[ProbeRun], fast: Sequence[ProbeRun]) -> str:
    """By the number of users: they wait for their answers, so the answers a second rise with it."""
    least = min((run.probe.load for run in slow), default=None)
    most = max((run.probe.load for run in fast), default=None)
    if least is None or most is None or most < _CLEARLY * least:
        return ""
    loads = f"{load_text(least, LoadUnit.USERS)} were too many, but {load_text(most, LoadUnit.USERS)} were not"
    return f"{loads}: something other than the load changed between the probes."


def _calm_above_a_bad_probe(search: Searched) -> str:
    """That the probe at the lowest load with far more requests beyond the limit than allowed had more than a calm one at a
    clearly higher load: a single spell of a target can keep loads from being certified.
    """
    if search.bracket.shape is Shape.NOT_MONOTONE:
        return ""  # the answer says it
    position = search.goal.limits[search.deciding]
    far = _FAR * search.goal.allowed[search.deciding]
    shares = [(probe, probe.violations[position].share or 0.0) for probe in search.probes if probe.requests >= SHORT_RUN]
    bad = min(((p, share) for p, share in shares if share > far and not p.overloaded), key=lambda of: of[0].load, default=None)
    calm = max((probe for probe, _ in shares if _is_within(search, probe)), key=lambda probe: probe.load, default=None)
    if bad is None or calm is None or calm.load < _CLEARLY * bad[0].load:
        return ""
    probe, share = bad
    deciding = search.required[search.deciding]
    limit = "the limit" if len(search.required) == 1 else limit_text(deciding)
    return (
        f"{share_text(share)} of the {counted_text(deciding)} of a probe at {load_text(probe.load, search.unit)} were beyond "
        f"{limit}, and {share_text(calm.violations[position].share or 0.0)} of one at {load_text(calm.load, search.unit)}: "
        "look at what the target did in the first."
    )


def _stalls(search: Searched) -> str:
    """That most requests beyond the limit came in few probes that met a stall, too few to show how often stalls come. Loads at
    which the queue grows do not count, nor does a target that is too slow for the limit at any load: it answers as late always.
    """
    if search.bracket.shape is Shape.NEVER_HELD:
        return ""
    position, grows = search.goal.limits[search.deciding], grows_from(search.probes, search.goal.limits)
    beyond = [v for v in (p.violations[position] for p in search.probes if p.load < grows) if v.above]
    stalled = [violations.above for violations in beyond if violations.stalled]
    total = sum(violations.above for violations in beyond)
    if not stalled or len(stalled) >= FEWEST_CLUSTERS or 2 * sum(stalled) < total:
        return ""
    probes = f"{len(stalled)} {'probe' if len(stalled) == 1 else 'probes'}"
    unsure = "" if search.certified is None else f", so {search.certified} may be too high"
    return (
        f"{sum(stalled):,} of the {total:,} requests beyond {limit_text(search.required[search.deciding])} came in {probes} in "
        f"which the target answered nothing for longer than the limit. {FEWEST_CLUSTERS:.0f} such stalls would show how often "
        f"they come{unsure}."
    )


def _explained(search: Searched) -> str:
    """What the model of --model was worth."""
    if not any(probe.controls for probe in search.probes):
        return ""
    share = explained(search.probes, search.goal.limits[search.deciding])
    if share is None:
        return (
            "Too few requests were beyond the limit to know what the model explains of them, so it makes the answer no surer."
        )
    if share <= 0.0:
        return "The model explains nothing of when requests are beyond the limit, so it makes the answer no surer."
    times = _times_as_many(search)
    worth = (
        f"without it the search would need {f'{times:,.0f}' if times >= 9.95 else f'{times:.2g}'} times as many"
        if times >= _WORTH
        else "too little to save requests"
    )
    return (
        f"The model explains {share:.0%} of the variance of the requests beyond the limit, as far as the probes show: {worth}."
    )


def _times_as_many(search: Searched) -> float:
    """How many times the requests a search needs whose probes count as they were measured: the variance of those beyond the
    limit that decides, over that which the search reckons with. It is never less than that of independent requests, however
    much the model explains.
    """
    place, allowed = search.goal.limits[search.deciding], search.goal.allowed[search.deciding]
    overloaded = overloaded_from(search.probes, search.goal.limits)
    measured, left = (
        points_of(probes, place, overloaded).dispersion(allowed) for probes in (search.probes, controlled(search.probes))
    )
    return measured / left


def _is_within(search: Searched, probe: Probe) -> bool:
    """Whether a probe of many requests was within all limits."""
    within = all(
        (probe.violations[position].share or 0.0) <= allowed
        for position, allowed in zip(search.goal.limits, search.goal.allowed, strict=True)
    )
    return within and not probe.overloaded and probe.requests >= SHORT_RUN


def _at_certified(capacity: Capacity, tier: Tier) -> str:
    certified = tier.bracket.certified
    if certified is None:
        return ""
    at = load_text(certified_number(certified, capacity.unit), capacity.unit)
    is_open = capacity.unit is not LoadUnit.USERS
    parts = [f"about {count_text(tier.users, 'user')} at once (Little's law)"] if is_open and tier.users is not None else []
    parts += [] if tier.goodput is None else [f"goodput {load_text(tier.goodput, LoadUnit.REQUESTS_PER_S)}"]
    parts += [] if tier.output_token_throughput is None else [f"{load_number(tier.output_token_throughput)} output tokens/s"]
    return f"At {at}: {', '.join(parts)}." if parts else ""


def _unmet(capacity: Capacity, search: Searched) -> str:
    """What no probe can have seen at the certified load: events that are rarer there than the probes from it on are long.

    Probes below it may be without what comes with more load, and an overloaded one hides it.
    """
    certified = search.bracket.certified
    if certified is None:
        return ""
    whole = (run for run in capacity.probes if run.valid and not run.probe.overloaded)
    seen_s = sum(run.seconds for run in whole if run.probe.load >= certified)
    rarer = (
        f"what happens less often than once in {time_text(seen_s / _UNSEEN)} would not show"
        if seen_s > 0.0
        else "no whole probe ran at this load or above, so what is rare there is unknown"
    )
    clusters = search.bracket.curves[search.deciding].clusters if search.bracket.curves else None
    if clusters is None or clusters >= FEWEST_CLUSTERS:
        return f"{_capital(rarer)}."
    times = f"{math.floor(clusters)} independent {'time' if math.floor(clusters) == 1 else 'times'}"
    return f"The probes near the limit met only {times} beyond it; {FEWEST_CLUSTERS:.0f} would be sure, and {rarer}."


# ---- parts of sentences


@dataclass(frozen=True, slots=True)
class _Seen:
    load: float
    share: float


def _seen(search: Searched) -> list[_Seen]:
    """The shares beyond the deciding limit, by rising load, of the probes that are points of the curve."""
    position = search.goal.limits[search.deciding]
    shares = ((probe.load, probe.violations[position].share) for probe in search.probes if not probe.overloaded)
    return sorted((_Seen(load, share) for load, share in shares if share is not None), key=lambda seen: seen.load)


def _largest_fall(search: Searched) -> tuple[_Seen, _Seen] | None:
    seen = _seen(search)
    falls = [(a, b) for k, a in enumerate(seen) for b in seen[k + 1 :] if b.load > a.load and b.share < a.share]
    return max(falls, key=lambda pair: pair[0].share - pair[1].share, default=None)


def _flat_range(search: Searched) -> tuple[float, float]:
    """The undecided loads, as far as they were measured."""
    loads = [seen.load for seen in _seen(search)] or [probe.load for probe in search.probes] or [0.0]
    low, high = search.bracket.certified, search.bracket.refused
    return (min(loads) if low is None else low), (max(loads) if high is None else min(high, max(loads)))


def _share_at(search: Searched, load: float) -> float | None:
    """The share beyond the deciding limit by the curve, else at the nearest probe."""
    curve = search.bracket.curves[search.deciding] if search.bracket.curves else None
    fitted = None if curve is None else fitted_share(curve, load)
    nearest = min(_seen(search), key=lambda seen: abs(seen.load - load), default=None)
    return fitted if fitted is not None or nearest is None else nearest.share


def _as_fitted(search: Searched) -> str:
    """After "goes", that shares are those of the curve through all probes: single ones may differ from it."""
    curve = search.bracket.curves[search.deciding] if search.bracket.curves else None
    return ", as fitted," if curve is not None and curve.slope is not None else ""


def _never_counted(search: Searched) -> Requirement | None:
    """A limit of which no request of any probe has a value, as one on TPOT where answers have one token."""
    places = zip(search.required, search.goal.limits, strict=True)
    limits = ((limit, place) for limit, place in places if limit.metric.unit == "ms")
    return next((limit for limit, place in limits if not any(p.violations[place].n for p in search.probes)), None)


def _requests(search: Searched) -> str:
    probes = len(search.probes)
    return f"{sum(p.requests for p in search.probes):,} requests in {probes} {'probe' if probes == 1 else 'probes'}"


def _loads(search: Searched) -> str:
    loads: Sequence[float] = sorted({probe.load for probe in search.probes})
    if len(loads) == 1:
        return load_text(loads[0], search.unit)
    return f"{load_number(loads[0])} to {load_text(loads[-1], search.unit)}"


def _capital(text: str) -> str:
    """A sentence's first letter; a name such as p99 stays."""
    is_name = text[:1] == "p" and text[1:2].isdigit()
    return text if is_name else text[:1].upper() + text[1:]
