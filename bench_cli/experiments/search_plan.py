"""What a search for capacity does next, within its budget, and what it says meanwhile. Pure: no clock, no process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench_records.search import PlannedProbe, RecordedForecast, Search
from reports.capacity.answer import needed_s
from reports.capacity.limits import every_limit
from reports.capacity.probe import ANSWERS
from reports.capacity.reading import MeasuredProbe, evidence, goals_of, option_names, sets_of
from reports.capacity.result import Capacity, Ended, LoadUnit, Tier
from reports.capacity.search import BLOCKS, FEWEST_REQUESTS, Bracket, Goal, Shape, bracket, next_probe
from reports.capacity.words import (
    certified_number,
    load_number,
    precision_text,
    refused_number,
    requests_text,
    time_text,
    width_text,
)

CLOSED_LOOP_REQUESTS = 2_000  # at most: each is drawn before the loop starts, which takes about a millisecond
REQUESTS_OF_A_USER = 10  # of a closed loop of conversations, which end by themselves
_CLOSED_LOOP_USERS, _FIRST_USERS = 32, 16  # to start from a rate, and from a number of users
_CLOSED_LOOP_S, _CLOSED_LOOP_SHARE = 10.0, 0.05  # at most so long, and of the budget
_MOST_EXTRAPOLATION = 8.0  # times the users of the closed loop
_ROUNDS = 4  # requests of each user in a probe, at least: users that start together have other latencies at first
OVERHEAD_S = 6.0  # of a probe, beside its sending, before one shows it
_LEAST_SENDING = 0.3  # of the time left
_NEAR = 2.5  # times what a probe takes beside its sending: the least that it sends, where the crossing is about known
_LONGEST_S, _LONGEST_SHARE = 60.0, 0.25  # a probe is no longer than this many seconds, or that share of the time left
_UNLIMITED = 10_000_000  # requests
_LEAST_TIMEOUT_S, _USUAL_TIMEOUT_S = 5.0, 600.0  # of a request
_LEAST_OF_FAILURES_S = 60.0  # where a request that is not waited for would count as one
_TIMES_THE_MEAN = 4.0  # E2E latency: an answer that takes longer, and than the time left, is not to be waited for
_BEYOND_LIMIT = 1.1  # times a limit
_TIMEOUTS = {
    *("-t", "--request_timeout", "--stream_timeout"),
    *("--connection_timeout", "--first_token_timeout", "--token_gap_timeout", "--cancel"),  # shorter than a request may last
}
_WORTH_SAYING = 0.1  # of the budget, gone before the first probe
TYPICAL = (14_000, 58_000)  # requests that ±10 % needs: of an even server, and of long prompts that delay others


@dataclass(frozen=True, slots=True)
class Spent:
    """Where a search is: the seconds left of the budget, None where it is unlimited, and those that a probe takes beside its
    sending: on average, and at most, as far as is known.
    """

    left_s: float | None
    overhead_s: float = OVERHEAD_S
    most_overhead_s: float = OVERHEAD_S


def needs_closed_loop(search: Search) -> bool:
    """Whether a closed loop is to show where to start, or how many requests a second the first users send."""
    return search.first_per_s is None and (search.first_load is None or search.unit == LoadUnit.USERS)


def closed_loop_s(search: Search) -> float:
    """How long the closed loop sends whose throughput gives the first load."""
    return _CLOSED_LOOP_S if search.budget_s is None else max(1.0, min(_CLOSED_LOOP_S, _CLOSED_LOOP_SHARE * search.budget_s))


def closed_loop_users(search: Search) -> int:
    """The users of the closed loop before the first probe."""
    if search.unit != LoadUnit.USERS:
        return _CLOSED_LOOP_USERS
    return int(search.first_load or min(_FIRST_USERS, search.most_load or _FIRST_USERS))


def first_users(search: Search, requests_per_s: float, reach: float | None) -> float:
    """The users to start from, by a closed loop that had this many requests a second, and latencies of ``reach`` times their
    limits; None is unknown.

    By Little's law latencies grow with the users where the target is saturated, and less where it is not.
    """
    users = closed_loop_users(search)
    factor = 1.0 if reach is None else min(1.0 / max(reach, 1e-9), _MOST_EXTRAPOLATION)
    most = math.inf if search.most_load is None else search.most_load
    if search.budget_s is not None:  # that a probe can hold
        most = min(most, max(users, _LONGEST_SHARE * search.budget_s * requests_per_s / _ROUNDS))
    return max(1.0, float(round(min(users * factor, most))))


def next_step(search: Search, measured: Sequence[MeasuredProbe], spent: Spent) -> PlannedProbe | Ended:
    """The next probe, or why the search ends. ``search`` knows its first load."""
    assert search.first_load is not None
    probes, goals = evidence(measured), goals_of(search, sets_of(search))
    brackets = [bracket(probes, goal) for goal in goals]
    if spent.left_s is not None and spent.left_s <= spent.overhead_s:
        return _ended(search, goals, brackets, Ended.BUDGET)
    guess = _guess(search, brackets)
    most = _most_requests(search, measured, spent, guess)
    for goal, found in sorted(zip(goals, brackets, strict=True), key=lambda pair: -_width(pair[1])):
        chosen = next_probe(probes, goal, search.first_load, most, found)
        if chosen is None or _is_next_user(search, found):
            continue
        load = _possible_load(search, chosen.load)
        if load is None or (search.most_load is not None and chosen.load > search.most_load and _holds_all(search, brackets)):
            continue
        least_s = max(spent.overhead_s * (1.0 if found.estimate is None else _NEAR), _shows_queue_s(search, measured, load))
        worthwhile = max(chosen.requests, int(requests_per_s(search, measured, load) * least_s))
        ramp_up_s = _ramp_up_s(search, measured)
        fewest = max(FEWEST_REQUESTS, math.ceil(_ROUNDS * load) if ramp_up_s else 0)
        requests = _affordable(max(worthwhile, fewest), fewest, answers_per_s(search, measured, load), ramp_up_s, spent)
        if requests < fewest:
            return _ended(search, goals, brackets, Ended.BUDGET)
        planned = _planned(search, load, requests, ramp_up_s)
        return replace(planned, timeout_s=_timeout_s(search, measured, planned, spent))
    return _ended(search, goals, brackets, Ended.DECIDED_BY_NOTHING)


def requests_per_s(search: Search, measured: Sequence[MeasuredProbe], load: float) -> float:
    """How many requests are sent a second at ``load``: as many as arrive, or of users and conversations as in the probe at the
    nearest load, and before one as in the closed loop.
    """
    if search.unit == LoadUnit.REQUESTS_PER_S:
        return load
    known = [(each.run.probe.load, each.run.request_throughput) for each in measured if each.run.request_throughput]
    if not known:
        return (search.first_per_s or load) * (1.0 if search.unit == LoadUnit.USERS else 0.5)  # it starts at half the load
    near, per_s = min(known, key=lambda pair: abs(math.log(pair[0] / load)))
    assert per_s is not None
    return per_s * (min(1.0, load / near) if search.unit == LoadUnit.USERS else load / near)


def answers_per_s(search: Search, measured: Sequence[MeasuredProbe], load: float) -> float:
    """How many requests end a second at ``load``: as many as are sent, or the most so far where that is less, since more may
    overload the target.
    """
    known = [search.first_per_s, *(each.run.request_throughput for each in measured)]
    sent = requests_per_s(search, measured, load)
    return min(sent, max((per_s for per_s in known if per_s), default=sent))


def seconds_of(search: Search, measured: Sequence[MeasuredProbe], planned: PlannedProbe) -> float:
    """How long a probe sends."""
    return planned.ramp_up_s + planned.requests / answers_per_s(search, measured, planned.load)


def _shows_queue_s(search: Search, measured: Sequence[MeasuredProbe], load: float) -> float:
    """How long a probe sends at least to show whether its queue grows: ANSWERS times what an answer takes, by the probe at the
    nearest load that is not higher. 0 of users, who bound the queue, and before it is known.
    """
    known = [(each.run.probe.load, each.run.e2e_mean_ms) for each in measured if each.run.e2e_mean_ms]
    lower = [(at, e2e_ms) for at, e2e_ms in known if at <= load and e2e_ms is not None]
    if search.unit == LoadUnit.USERS or not lower:
        return 0.0
    return ANSWERS * max(lower)[1] / 1e3


def _ramp_up_s(search: Search, measured: Sequence[MeasuredProbe]) -> float:
    """Over how long the users of a probe start: about that of an answer, so that they do not send together. 0 of rates, and of
    conversations, which have no such option.
    """
    if search.unit != LoadUnit.USERS or search.conversations:
        return 0.0
    for each in reversed(measured):
        if each.run.request_throughput:
            return _rounded(each.run.probe.load / each.run.request_throughput)
    return _rounded(min(search.first_load or 1.0, _FIRST_USERS) / search.first_per_s) if search.first_per_s else 0.0


def _guess(search: Search, brackets: Sequence[Bracket]) -> float:
    """The load near which the further probes are."""
    assert search.first_load is not None
    known = [load for found in brackets for load in (found.estimate, found.certified, found.refused) if load]
    return known[0] if known else search.first_load


def _most_requests(search: Search, measured: Sequence[MeasuredProbe], spent: Spent, load: float) -> int:
    """What the time left holds, and at least what next_probe divides into probes: ``_affordable`` cuts those to the time."""
    if spent.left_s is None or search.budget_s is None:
        return _UNLIMITED
    overhead_s = spent.overhead_s * BLOCKS * spent.left_s / search.budget_s
    sending_s = max(_LEAST_SENDING * spent.left_s, spent.left_s - overhead_s)
    return max(BLOCKS * FEWEST_REQUESTS, int(requests_per_s(search, measured, load) * sending_s))


def _affordable(requests: int, fewest: int, per_s: float, ramp_up_s: float, spent: Spent) -> int:
    """``requests`` as far as the time left allows; where more than ``fewest``, one probe takes no more than a part of that."""
    if spent.left_s is None:
        return requests
    left_s = max(0.0, spent.left_s - spent.most_overhead_s - ramp_up_s)
    longest = max(fewest, int(per_s * max(_LONGEST_S, _LONGEST_SHARE * left_s)))
    return min(requests, longest, int(per_s * left_s))


def _possible_load(search: Search, load: float) -> float | None:
    """The load as it can be sent: whole users, and no more than may be tried; None below one user."""
    load = load if search.most_load is None else min(load, search.most_load)
    if search.unit == LoadUnit.USERS:
        return float(round(load)) if load >= 0.5 else None
    return float(f"{load:.4g}")


def _planned(search: Search, load: float, requests: int, ramp_up_s: float) -> PlannedProbe:
    number = len(search.probes) + 1
    return PlannedProbe(load, requests, search.seed + number, f"{number:03d}-{load:.4g}", ramp_up_s)


def _timeout_s(search: Search, measured: Sequence[MeasuredProbe], planned: PlannedProbe, spent: Spent) -> float | None:
    """How long a probe waits for an answer: a target that hangs is not to cost more than the time left after the sending. None:
    the usual time, where that is shorter, or the user gave one.
    """
    if spent.left_s is None:
        return None
    slowest_s = max((each.run.e2e_mean_ms / 1e3 for each in measured if each.run.e2e_mean_ms), default=0.0)
    return _waiting_s(search, max(_TIMES_THE_MEAN * slowest_s, spent.left_s - seconds_of(search, measured, planned)))


def closed_loop_timeout_s(search: Search) -> float | None:
    """How long the closed loop waits for an answer: warm-up and loop together no longer than the budget. None as of a probe."""
    return None if search.budget_s is None else _waiting_s(search, (search.budget_s - closed_loop_s(search)) / 2.0)


def _waiting_s(search: Search, seconds: float) -> float | None:
    """``seconds``, or as long as it takes to know that an answer is beyond every limit: one that is cut off before that does
    not count, and where failures are limited it is one.
    """
    if not _TIMEOUTS.isdisjoint(option_names(search.arguments)):
        return None
    limits = every_limit(sets_of(search))
    beyond_s = _BEYOND_LIMIT * max((limit_ms for limit in limits for limit_ms in limit.latencies_ms), default=0.0) / 1e3
    least_s = _LEAST_TIMEOUT_S if all(limit.latencies_ms for limit in limits) else _LEAST_OF_FAILURES_S
    longest_s = math.ceil(max(least_s, seconds, beyond_s))
    return float(longest_s) if longest_s < _USUAL_TIMEOUT_S else None


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.3g}")


def _is_next_user(search: Search, found: Bracket) -> bool:
    """Whether the lowest load that fails has one user more than the highest that holds."""
    if search.unit != LoadUnit.USERS or found.certified is None or found.refused is None:
        return False
    return found.refused - found.certified <= 1.0


def _holds_all(search: Search, brackets: Sequence[Bracket]) -> bool:
    """Whether every set holds at the largest load that may be tried."""
    most = search.most_load
    return most is not None and all(found.certified is not None and found.certified >= most for found in brackets)


def _width(found: Bracket) -> float:
    return math.inf if found.ratio is None else found.ratio


def _ended(search: Search, goals: Sequence[Goal], brackets: Sequence[Bracket], otherwise: Ended) -> Ended:
    """Why a search with these brackets ends, ``otherwise`` where they do not say it."""
    if all(goal.reached(found.certified, found.refused) for goal, found in zip(goals, brackets, strict=True)):
        return Ended.PRECISE
    if _holds_all(search, brackets):
        return Ended.NO_LIMIT
    if otherwise is Ended.BUDGET:
        return otherwise
    if all(found.shape is Shape.ALWAYS_HELD for found in brackets):
        return Ended.NO_LIMIT
    if any(found.shape is Shape.NEVER_HELD for found in brackets):
        return Ended.NONE_HOLDS
    return otherwise


# ---- in words


def announcement(search: Search) -> str:
    """What the search will do, once its first load is known."""
    assert search.first_load is not None
    unit = search.unit
    if search.unit == LoadUnit.USERS:
        return f"The search starts at {search.first_load:.0f} users, of at most {search.most_load:.0f}."
    of_capacity = 0.5 if search.model is None else 1.0  # where it starts: a model knows its own
    per_s = search.first_per_s or search.first_load / of_capacity
    return f"The search starts at {load_number(search.first_load)} {unit}. {reach(search, per_s)}"


def reach(search: Search, per_s: float) -> str:
    """What the rest of the budget can reach at this many requests per second, before anything is measured of the limits."""
    least_s, most_s = (with_precision(count, search.ratio) / per_s for count in TYPICAL)
    takes = f"{time_text(least_s)} to {time_text(most_s)}"
    needs = f"{precision_text(search.ratio)} usually needs {takes} at {load_number(per_s)} requests/s"
    if search.budget_s is None:
        return f"{needs}."
    left_s = max(0.0, search.budget_s - search.spent_s)
    enough = "is enough" if left_s >= most_s else "may be enough" if left_s >= least_s else "is too short"
    budget = f"the budget of {time_text(search.budget_s)}"
    if search.spent_s < _WORTH_SAYING * search.budget_s:
        return f"{needs}; {budget} {enough}."
    return f"{needs}; what is left of {budget}, {time_text(left_s)}, {enough}."


@dataclass(frozen=True, slots=True)
class SearchWords:
    """What a line calls a ``search``, and what it says ``after`` the time that the search still needs."""

    search: str
    after: str


ONLY_SEARCH = SearchWords("the search", "")
SEARCH_IN_TURN = SearchWords("the search of this setting", " of its own probes")
"""One of several that take turns: its time is not theirs."""


def progress(capacity: Capacity, search: Search, overhead_s: float, words: SearchWords = ONLY_SEARCH) -> str:
    """What is known so far, and what the search still needs, in one line. A probe takes ``overhead_s`` beside its sending."""
    probes = len(capacity.probes)
    of = "" if search.budget_s is None else f" of {time_text(search.budget_s)}"
    spent = f"{time_text(search.spent_s)}{of}"
    parts = [f"{probes} {'probe' if probes == 1 else 'probes'}, {capacity.requests:,} requests, {spent}"]
    forecast = search.forecasts.get(capacity.probes[-1].folder) if capacity.probes else None
    ratios = [None] * len(capacity.tiers) if forecast is None else forecast.ratios
    parts += [_found(tier, search, overhead_s, ratio) for tier, ratio in zip(capacity.tiers, ratios, strict=True)]
    parts += [] if forecast is None or not forecast.seconds else [_expected(forecast, capacity.tiers, words)]
    return "; ".join(parts)


def _expected(forecast: RecordedForecast, tiers: Sequence[Tier], words: SearchWords) -> str:
    """What the rest of the search is expected to reach."""
    ends = f"{words.search} is expected to end"
    more = f"after {time_text(forecast.seconds)} more{words.after}"
    if not any(forecast.ratios):
        return f"{ends} without a bracket {more}"
    widths = ["no bracket" if ratio is None else f"a bracket of {width_text(ratio)}" for ratio in forecast.ratios]
    named = [width if tier.name is None else f"{width} for {tier.name}" for width, tier in zip(widths, tiers, strict=True)]
    return f"{ends} with {', '.join(named)} {more}"


def _found(tier: Tier, search: Search, overhead_s: float, expected: float | None) -> str:
    """The bracket of a set, and what the precision needs where the search is not ``expected`` to reach it."""
    found, name = tier.bracket, "" if tier.name is None else f"{tier.name}: "
    unit = LoadUnit(search.unit)
    known = [] if found.certified is None else [f"holds {load_number(certified_number(found.certified, unit))}"]
    known += [] if found.refused is None else [f"{load_number(refused_number(found.refused, unit))} fails"]
    text = ", ".join(known) or "nothing is decided yet"
    if tier.goal.reached(found.certified, found.refused):
        return f"{name}{text}, within {precision_text(search.ratio)}"
    if found.more_requests is None or (expected is not None and expected <= search.ratio):
        return f"{name}{text}"
    at = found.estimate or found.certified or found.refused
    if not at or search.unit != LoadUnit.REQUESTS_PER_S:
        return f"{name}{text}; {precision_text(search.ratio)} needs about {requests_text(found.more_requests)} more requests"
    more_s = needed_s(found.more_requests, at, overhead_s)
    return f"{name}{text}; {precision_text(search.ratio)} needs about {time_text(more_s)} more"


def with_precision(requests: int, ratio: float) -> float:
    """Requests for ±10 % as those for another precision, with whose square they fall."""
    return requests * (math.log(1.2) / math.log(ratio)) ** 2
