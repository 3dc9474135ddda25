"""The search for capacity: the highest load at which the limits hold, from what all probes show together.

Everything here is a function of the probes so far: a search that was cut short goes on where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from reports.capacity.curve import LARGEST_RATIO, USUAL_EFFECT, Fit, Points, fit, is_usable
from reports.capacity.monotone import (
    FEWEST_EXPECTED,
    WINDOW,
    Known,
    exceeded_alone,
    falls,
    held_alone,
    highest_held,
    lowest_exceeded,
)
from reports.capacity.probe import ONE_PROBE, Probe
from reports.capacity.stability import falls_behind, keeps_up, likely_falls_behind
from reports.metrics.in_flight import QueueCourse
from reports.statistics.autocorrelation import mean_cluster_size
from reports.statistics.probability import at_least, f_quantile

_SPENT = 0.8  # of the allowed error: the rest is for the looks, after each of which the search may end
_FEWEST_CLUSTERS = 10.0  # at the crossing, to certify by the curve
_MANY_CLUSTERS = 20.0  # with which a search may end: fewer may be those of a calm time, or of a bad one
_BEYOND = 1.2  # times the loads of all points: a crossing farther out is no estimate
_FLAT = 3.0  # a slope below: a tenth more load makes less than a third more requests exceed the limit
_LEAST_FLAT = 1.0  # a slope below which no number of requests is known to place the crossing
_DEGREES = 12  # of freedom, of an interval that has reached its goal
_SPREAD_OUT = 3.0  # times the requests that all probes would need, were they at the crossing

_BLOCK = 6_000  # requests of a probe
_PILOTS = 4  # that cost as much as a probe
BLOCKS = 15
"""Probes that a budget holds, about."""

FEWEST_REQUESTS = 100
"""Requests of a probe: fewer show nothing of how violations cluster."""

_STEP = 1.6  # between the first loads
_MOST_STEPS = 12  # to one side
_MOST_PILOTS = 20
_ROUNDING = 1.000001
_DIGITS = 4  # of a load, which a probe's folder and command show
_CLIFF = 1.06
_MARGIN = 1.05  # below a load that exceeds a limit, where no curve is known: nearer, times beyond it are rare, and long
_LOW, _HIGH = 0.2, 10.0  # times the allowed share: outside, a load is clearly below the crossing, or above it
_FEWEST_PROBES = 6  # of full length
_UNSTABLE = 0.01  # of loads at which a target does not keep up may seem to be such that it does
_NEAREST = (1, 5, 10)  # probes that show together that a target keeps up
_MOST_DISPUTED = 3  # probes at a load with more requests beyond a limit than a higher one has
_MOST_LONGER, _LONGER = 3, 1.25  # probes at a load that are too short, and how much longer than needed the next one is
_CONFIRMATIONS = 5  # probes about the certified load, where no curve is known
_TRIES, _ABOUT = 3, 1.045  # probes at a load, or up to this many times it, that are to certify it
_STEPS_BELOW = 4
_ENOUGH_TO_FORESEE = 0.3  # of the requests, from which on their clusters show how many there will be
_SHORT = 0.4  # of the longest probe: the queue of shorter ones is noise
_OFFSETS = (0.6, -1.0, 1.0, -0.6)
_OFFSETS_BELOW = (-1.5, -1.0)  # while a load is refused and none is certified; what a control explains shows by its events
_SPREAD = 2.5  # by which the share differs from the allowed one at the loads that are probed
_LEAST_SLOPE = 3.0
_LOWEST_OFFSET, _HIGHEST_OFFSET = -0.15, 0.1
_BELOW_OVERLOAD = 0.99
_FARTHEST_BELOW, _FARTHEST_ABOVE = 0.8, 1.25  # from the loads that were probed


class Shape(StrEnum):
    """How the share beyond a limit depends on the load.

    CROSSING: it rises through the allowed share. FLAT: it rises so little near there that the limit does not decide. CLIFF: the
    limit is met until the queue grows. NOT_MONOTONE: it is lower at a higher load than chance explains. ALWAYS_HELD: no
    load that was tried is too high. NEVER_HELD: the lowest load that was tried is too high. UNKNOWN: too few probes.
    """

    CROSSING = "crossing"
    FLAT = "flat"
    CLIFF = "cliff"
    NOT_MONOTONE = "not monotone"
    ALWAYS_HELD = "always held"
    NEVER_HELD = "never held"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Goal:
    """What a search is to find: the load at which each limit is exceeded by at most its ``allowed`` share of the requests.

    ``limits`` are their positions in ``Probe.violations``. The bracket of the search as a whole, over all its looks, is right
    with probability ``confidence``; it is to have at most ``ratio`` between its ends (1.2 for ±10 %). Loads are multiples of
    ``step`` where it is not 0: 1 of users. The bracket then ends, too, where no load lies between its ends.
    """

    limits: tuple[int, ...]
    allowed: tuple[float, ...]
    confidence: float = 0.95
    ratio: float = 1.2
    step: float = 0.0

    def reached(self, certified: float | None, refused: float | None) -> bool:
        """Whether a bracket of these ends is as narrow as it is to be, or as it can be."""
        if not certified or refused is None:
            return False
        return refused <= self.ratio * certified or refused - certified <= _ROUNDING * self.step


@dataclass(frozen=True, slots=True)
class Curve:
    """The share beyond one limit at a load, as fitted: exp(intercept + slope · ln load).

    ``crossing`` is the load at which it is the allowed share, within ``low`` and ``high``; an end is None where the probes give
    none. ``clusters`` is how many independent events beyond the limit the probes near the crossing hold.
    """

    shape: Shape
    intercept: float | None = None
    slope: float | None = None
    crossing: float | None = None
    low: float | None = None
    high: float | None = None
    clusters: float | None = None


@dataclass(frozen=True, slots=True)
class Bracket:
    """What the probes show: the highest load ``certified`` to hold every limit, and the lowest ``refused``; None is unknown.

    ``estimate`` is never below the one nor above the other: the crossing of the binding limit's curve, or if that is outside,
    since the queue grows first or the curve rests on few clusters, the middle of the two.

    ``binding`` is the position among the goal's limits of the one that decides. ``more_requests`` is an estimate of the further
    requests that the goal's ratio needs; None where no number is known to reach it.
    """

    curves: tuple[Curve, ...]
    certified: float | None
    refused: float | None
    estimate: float | None
    binding: int | None
    shape: Shape
    more_requests: int | None

    @property
    def ratio(self) -> float | None:
        """refused / certified; None where an end is unknown."""
        return None if not self.certified or self.refused is None else self.refused / self.certified


@dataclass(frozen=True, slots=True)
class NextProbe:
    """The probe that teaches most: its load, and its number of requests, ramp included."""

    load: float
    requests: int


def bracket(probes: Sequence[Probe], goal: Goal) -> Bracket:
    """What ``probes`` show together. Works with any loads that were measured, as those of a sweep, too."""
    overloaded = overloaded_from(probes, goal.limits)
    found = [_of_limit(probes, goal, place, overloaded) for place in range(len(goal.limits))]
    curves = tuple(limit.curve for limit in found)
    certified = None if any(curve.low is None for curve in curves) else _least(*(curve.low for curve in curves))
    refused = _least(*(curve.high for curve in curves))
    if goal.step:
        certified = None if certified is None else math.floor(_ROUNDING * certified / goal.step) * goal.step or None
        refused = None if refused is None else math.ceil(refused / goal.step / _ROUNDING) * goal.step
    binding = _binding(curves, probes, goal) if probes else None
    shape = Shape.UNKNOWN if binding is None else curves[binding].shape
    crossing = None if binding is None else curves[binding].crossing
    estimate = None if crossing is None else _within(crossing, _Ends(certified, refused))
    needed = None if binding is None else found[binding].more_requests
    if goal.reached(certified, refused):
        needed = 0
    return Bracket(curves, certified, refused, estimate, binding, shape, needed)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The ends of a bracket; None is unknown."""

    certified: float | None
    refused: float | None

    def hold(self, load: float) -> bool:
        """Whether a load is neither below the certified one nor above the refused one."""
        return (self.certified or 0.0) <= load <= (math.inf if self.refused is None else self.refused)


def _within(crossing: float, ends: _Ends) -> float | None:
    """The best estimate between the ``ends``: the ``crossing`` of the curve, or where it lies outside, their middle; None where
    there is none.
    """
    if ends.hold(crossing):
        return crossing
    return None if not ends.certified or ends.refused is None else math.sqrt(ends.certified * ends.refused)


def overloaded_from(probes: Sequence[Probe], limits: Sequence[int]) -> float | None:
    """The lowest load from which on the target does not keep up. A load at which it did not, while probes at higher loads show
    that it does, was disturbed.
    """
    for load in sorted({probe.load for probe in probes}):
        here = [probe for probe in probes if probe.load == load]
        behind = falls_behind(_queues(here), ONE_PROBE) or any(probe.gave_up for probe in here)
        if behind and not _keeps_up([probe for probe in probes if probe.load > load], limits):
            return load
    return None


def grows_from(probes: Sequence[Probe], limits: Sequence[int]) -> float:
    """The lowest load from which on the queue grows; infinite where there is none. As ``overloaded_from``, without the probes
    that gave up in a stall, which comes at a load that the target keeps up with, too.
    """
    load = overloaded_from([probe for probe in probes if not gave_up_in_stall(probe, limits)], limits)
    return math.inf if load is None else load


def gave_up_in_stall(probe: Probe, limits: Sequence[int]) -> bool:
    """Whether a probe ended early, and the target stalled for longer than one of the ``limits``."""
    return probe.gave_up and any(probe.violations[limit].stalled for limit in limits)


def _keeps_up(probes: Sequence[Probe], limits: Sequence[int]) -> bool:
    """Whether the target keeps up with the lowest load of ``probes``, by those at it or by the nearest ones: by how steady
    their queues are, or since at capacity they would not all have been without a request beyond one of the ``limits``.
    """
    longest = max((probe.requests for probe in probes), default=0)
    whole = sorted((probe for probe in probes if probe.requests >= _SHORT * longest), key=lambda probe: probe.load)
    at_lowest = sum(probe.load == whole[0].load for probe in whole)
    nearest = [whole[:size] for size in {max(at_lowest, size) for size in _NEAREST}]
    tail = _UNSTABLE / (len(_NEAREST) * (1 + len(limits)))
    return any(
        keeps_up(_queues(some), tail) or any(_chance_at_capacity(some, limit) <= tail for limit in limits) for some in nearest
    )


def _chance_at_capacity(probes: Sequence[Probe], limit: int) -> float:
    """The probability, at a load of capacity or more, that as many of these probes are without a request beyond a limit."""
    violations = [probe.violations[limit] for probe in probes]
    without = sum(each.above + each.explained == 0 for each in violations)
    return at_least(without, [each.none_at_capacity for each in violations])


def _queues(probes: Sequence[Probe]) -> list[QueueCourse]:
    return [probe.queue for probe in probes if probe.queue is not None]


def next_probe(
    probes: Sequence[Probe], goal: Goal, first_load: float, most_requests: int, found: Bracket | None = None
) -> NextProbe | None:
    """The probe after ``probes``, of at most ``most_requests``; None where the goal is reached, or cannot be.

    ``first_load`` is a guess from which the search starts, such as half the throughput of a closed loop. ``found`` is their
    bracket, where the caller knows it.
    """
    spent = sum(probe.requests for probe in probes)
    block = int(min(_BLOCK, (spent + most_requests) // BLOCKS))
    if min(block, most_requests) < FEWEST_REQUESTS:
        return None
    block, pilot = min(block, most_requests), min(max(FEWEST_REQUESTS, block // _PILOTS), most_requests)
    longer = _longer(probes, goal, most_requests)
    if longer is not None:
        return longer
    shares = _shares_over_allowed(probes, goal)
    load = _pilot_load(shares, goal, first_load, len(probes))
    if load is not None:
        return NextProbe(_rounded(load, goal), pilot)
    found = found or bracket(probes, goal)
    whole = sum(probe.requests >= block // 2 for probe in probes)
    if goal.reached(found.certified, found.refused) and whole >= _FEWEST_PROBES and _is_sure(probes, found, block):
        return None
    if found.shape is Shape.NOT_MONOTONE:
        return _again(probes, found, block)
    if len(probes) >= _MOST_STEPS and all(share > _HIGH for share in shares.values()):
        return None
    if len(probes) >= _MOST_STEPS and all(share < _LOW for share in shares.values()):
        certified = found.certified is not None and found.certified >= max(shares) / _ROUNDING
        return None if certified else NextProbe(max(shares), block)
    total = spent + most_requests
    return NextProbe(_rounded(_next_load(probes, found, shares, goal, total), goal), block)


def _longer(probes: Sequence[Probe], goal: Goal, most_requests: int) -> NextProbe | None:
    """The last probe again, as long as it takes to show whether its queue grows; None where it showed that, or that its load is
    too high, and after two such probes at a load.
    """
    if not probes or not probes[-1].needs or probes[-1].gave_up:
        return None
    load = probes[-1].load
    here = [probe for probe in probes if probe.load == load]
    ratio = max(_ratio_to_allowed(here, limit, allowed) for limit, allowed in zip(goal.limits, goal.allowed, strict=True))
    if ratio > _HIGH or sum(probe.needs > 0 for probe in here) >= _MOST_LONGER:
        return None
    return NextProbe(load, min(math.ceil(_LONGER * probes[-1].needs), most_requests))


def _again(probes: Sequence[Probe], found: Bracket, requests: int) -> NextProbe | None:
    """A probe at the refused load, where a higher one had fewer requests beyond a limit: whether it was disturbed shows in
    probes that differ from each other. None after enough of them.
    """
    load = found.refused
    if load is None or sum(probe.load == load for probe in probes) >= _MOST_DISPUTED:
        return None
    return NextProbe(load, requests)


def _pilot_load(shares: dict[float, float], goal: Goal, first_load: float, probes: int) -> float | None:
    """The load of a short probe, until one is near the crossing, or loads that hold and that do not are near each other."""
    if not shares:
        return first_load
    below = [load for load, share in shares.items() if share < _LOW]
    above = [load for load, share in shares.items() if share > _HIGH]
    if len(below) + len(above) < len(shares) or probes >= _MOST_PILOTS:
        return None
    if not above or not below:
        if probes >= _MOST_STEPS or (not below and min(above) <= goal.step):
            return None
        return min(above) / _STEP if not below else max(below) * _STEP + goal.step / 2.0
    return None if _are_near(max(below), min(above), goal) else math.sqrt(max(below) * min(above))


def _clusters(found: Bracket) -> float:
    """The fewest near the crossing of the limits that decide the bracket; infinite where they are known without a curve."""
    lowest = _least(*(curve.low for curve in found.curves))
    deciding = (curve for k, curve in enumerate(found.curves) if k == found.binding or curve.low == lowest)
    return min((curve.clusters for curve in deciding if curve.clusters is not None), default=math.inf)


def _is_sure(probes: Sequence[Probe], found: Bracket, block: int) -> bool:
    """Whether enough clusters are near the crossing; at a cliff and without a curve, enough probes at the certified load."""
    clusters = _clusters(found)
    if math.isfinite(clusters) and (clusters >= _MANY_CLUSTERS or found.shape is not Shape.CLIFF):
        return clusters >= _MANY_CLUSTERS
    certified = found.certified or 0.0
    here = (probe for probe in probes if certified / _ABOUT < probe.load < certified * _ABOUT)
    return sum(probe.requests >= block // 2 for probe in here) >= _CONFIRMATIONS


def _are_near(highest: float, lowest: float, goal: Goal) -> bool:
    return lowest <= _CLIFF * highest or lowest - highest <= _ROUNDING * goal.step


def _rounded(load: float, goal: Goal) -> float:
    """The load that a probe can have."""
    return max(1.0, round(load / goal.step)) * goal.step if goal.step else float(f"{load:.{_DIGITS}g}")


@dataclass(frozen=True, slots=True)
class _Limit:
    """What is known of one limit."""

    curve: Curve
    more_requests: int | None


def _of_limit(probes: Sequence[Probe], goal: Goal, place: int, overloaded: float | None) -> _Limit:
    allowed = goal.allowed[place]
    tail = _SPENT * (1.0 - goal.confidence) / 2.0
    upper_tail = tail / len(goal.limits)
    every = points_of(probes, goal.limits[place], overloaded)
    below = math.inf if overloaded is None else overloaded
    exceeded_at = float(every.load[every.above > allowed * every.n].min(initial=below))

    def keeps_up_at(load: float) -> bool:
        from_there = [probe for probe in probes if probe.load >= load]
        if load * _MARGIN > exceeded_at or likely_falls_behind(_queues([probe for probe in probes if probe.load == load])):
            return False
        return _keeps_up(from_there, goal.limits) or not any(probe.queue is not None or probe.needs for probe in from_there)

    grows = grows_from(probes, goal.limits)
    before_it_grows = [probe for probe in probes if probe.load * _MARGIN <= grows]  # nearer, clusters are those of the queue
    met = _met_points(before_it_grows, goal.limits[place], allowed)
    known = Known(keeps_up_at, lambda load: 1.0 if met is None else _clusters_at(load, met, grows).dispersion(allowed))

    if every.size == 0:
        return _Limit(Curve(Shape.UNKNOWN if overloaded is None else Shape.NEVER_HELD, high=overloaded), None)
    stationary = every.chosen(every.load < below)
    if falls(every, allowed):
        held, exceeded = held_alone(stationary, allowed, tail, known), exceeded_alone(every, allowed, upper_tail)
        return _Limit(Curve(Shape.NOT_MONOTONE, low=held, high=_least(exceeded, overloaded)), None)
    near = is_usable(stationary, allowed)
    points = stationary.chosen(near)
    far_beyond = float(stationary.load[~near].min(initial=math.inf))  # by its own requests, whatever others at the load have
    best = fit(points, allowed, tail)
    if best is None or not points.load.min() / _BEYOND <= best.crossing <= points.load.max() * _BEYOND:
        held, exceeded = highest_held(stationary, allowed, tail, known), lowest_exceeded(every, allowed, upper_tail)
        return _Limit(Curve(_shape_without_fit(every, allowed, overloaded), low=held, high=_least(exceeded, overloaded)), None)
    clusters = best.expected / mean_cluster_size(best.dispersion)
    is_known = clusters >= _FEWEST_CLUSTERS and best.crossing < far_beyond
    low = best.low if is_known and best.low is not None and best.low < below else None
    if low is None:
        low = highest_held(stationary, allowed, tail, known)
    upper = best if upper_tail == tail else fit(points, allowed, upper_tail)
    high = None if upper is None else upper.high
    if high is None:
        high = lowest_exceeded(every, allowed, upper_tail)
    high = _least(high, overloaded)
    flat = best.slope < _FLAT and clusters >= _FEWEST_CLUSTERS
    shape = Shape.CLIFF if best.crossing >= below else Shape.FLAT if flat else Shape.CROSSING
    curve = Curve(shape, best.intercept, best.slope, best.crossing, low, high, clusters)
    more = _more_values(best, goal, allowed)
    return _Limit(curve, None if more is None else max(_BLOCK, math.ceil(more / _values_a_request(probes, goal.limits[place]))))


def points_of(probes: Sequence[Probe], limit: int, overloaded: float | None) -> Points:
    """The points of one limit, without the probes that were overloaded from that load on."""
    below = math.inf if overloaded is None else overloaded
    kept = [probe for probe in probes if probe.load < below or not probe.overloaded]
    of = [(probe.load, probe.violations[limit]) for probe in kept if probe.load > 0.0]
    of = [(load, each) for load, each in of if each.n > 0]
    return Points(
        np.array([load for load, _ in of], dtype=np.float64),
        np.array([each.n for _, each in of], dtype=np.float64),
        np.array([each.above for _, each in of], dtype=np.float64),
        np.array([math.nan if each.effect is None else each.effect for _, each in of], dtype=np.float64),
        max(1.0, USUAL_EFFECT * float(np.mean([each.remaining for _, each in of]))) if of else USUAL_EFFECT,
    )


def _met_points(probes: Sequence[Probe], limit: int, allowed: float) -> Points | None:
    """The points of one limit in these probes, those that gave up included, at loads up to the highest at which one that is
    long enough to show it met the limit, or one gave up in a stall. Their requests beyond it may come at a lower load, too.
    None without such a probe.
    """
    shown = [p.load for p in probes if gave_up_in_stall(p, (limit,)) or _shows_it_held(p, limit, allowed)]
    below = [_as_one_cluster(probe, limit, allowed) for probe in probes if shown and probe.load <= max(shown)]
    return points_of(below, limit, None) if below else None


def _as_one_cluster(probe: Probe, limit: int, allowed: float) -> Probe:
    """A probe that gave up in a stall, with its requests beyond the limit as one cluster. It counts for the number of requests
    that may have such a cluster: those that it sent end with the stall, so their share and effect say nothing. Other probes are
    as they are.
    """
    found = probe.violations[limit]
    if not gave_up_in_stall(probe, (limit,)) or not found.above:
        return probe
    size = float(found.above)
    one = replace(found, n=max(found.n, math.ceil(size / allowed)), effect=max(found.effect or 1.0, size))
    return replace(probe, violations=(*probe.violations[:limit], one, *probe.violations[limit + 1 :]))


def _clusters_at(load: float, met: Points, grows: float) -> Points:
    """Points whose requests beyond a limit come in the clusters that they would come in at a lower ``load``. Points within a
    ``WINDOW`` of it keep their clusters. The queue ``grows`` from a load above all of them on.

    What delays a target for a time delays the requests that arrive in it, and in the time that the queue then takes to drain:
    together load · capacity / (capacity - load) a second. That load is taken to be above the capacity (infinite where none is
    known), which makes the ratio of the two larger than it is.
    """
    near = np.minimum(met.load, WINDOW * load)
    smaller = near * (1.0 - met.load / grows) / (met.load * (1.0 - near / grows))
    return replace(met, effect=1.0 + (met.effect - 1.0) * smaller)


def _shows_it_held(probe: Probe, limit: int, allowed: float) -> bool:
    """Whether it is long enough to show that it met the limit, and did."""
    found = probe.violations[limit]
    return not probe.gave_up and found.n * allowed >= FEWEST_EXPECTED and found.above <= allowed * found.n


def _shape_without_fit(points: Points, allowed: float, overloaded: float | None) -> Shape:
    exceeded = points.above > allowed * points.n
    if exceeded.all():
        return Shape.NEVER_HELD
    if exceeded.any():
        return Shape.UNKNOWN
    return Shape.ALWAYS_HELD if overloaded is None else Shape.CLIFF


def _values_a_request(probes: Sequence[Probe], limit: int) -> float:
    """How many values of a limit a request has, at least 1: more where it counts single tokens."""
    return max(1.0, sum(probe.violations[limit].n for probe in probes) / max(1, sum(probe.requests for probe in probes)))


def _more_values(best: Fit, goal: Goal, allowed: float) -> float | None:
    """The further values that the ratio needs: an interval is as narrow as the root of the clusters near the crossing."""
    if best.slope < _LEAST_FLAT:
        return None
    tail, spent = _SPENT * (1.0 - goal.confidence) / 2.0, best.expected / allowed
    width = math.log(max(goal.ratio, 1.0 + goal.step / best.crossing))
    if (
        best.low is not None
        and best.high is not None
        and best.expected >= _FEWEST_CLUSTERS * mean_cluster_size(best.dispersion)
    ):
        needed = spent * (math.log(best.high / best.low) / width) ** 2
    else:
        quantile = f_quantile(1.0 - 2.0 * tail, 1, _DEGREES)
        needed = _SPREAD_OUT * best.dispersion * quantile / (best.slope * width / 2.0) ** 2 / allowed
    return max(needed, _MANY_CLUSTERS * mean_cluster_size(best.dispersion) / allowed) - spent


def _binding(curves: Sequence[Curve], probes: Sequence[Probe], goal: Goal) -> int:
    """The limit with the lowest crossing, or lowest end; where nothing is known of any, that which most exceed."""

    def place(k: int) -> tuple[float, float, float]:
        curve = curves[k]
        return (
            next((load for load in (curve.crossing, curve.high) if load is not None), math.inf),
            math.inf if curve.low is None else curve.low,
            -_ratio_to_allowed(probes, goal.limits[k], goal.allowed[k]),
        )

    return min(range(len(curves)), key=place)


def _least(*loads: float | None) -> float | None:
    """The least that is known."""
    return min((load for load in loads if load is not None), default=None)


def _shares_over_allowed(probes: Sequence[Probe], goal: Goal) -> dict[float, float]:
    """The largest share beyond a limit, over the allowed one, by all probes at each load; infinite where the target does not
    keep up, or likely does not before requests are beyond a limit.
    """
    overloaded, shares = overloaded_from(probes, goal.limits), {}
    for load in sorted({probe.load for probe in probes}):
        here = [probe for probe in probes if probe.load == load]
        ratio = max(_ratio_to_allowed(here, limit, allowed) for limit, allowed in zip(goal.limits, goal.allowed, strict=True))
        is_cliff = ratio < _LOW and likely_falls_behind(_queues(here))
        shares[load] = math.inf if is_cliff or (overloaded is not None and load >= overloaded) else ratio
    return shares


def _ratio_to_allowed(probes: Sequence[Probe], limit: int, allowed: float) -> float:
    n = sum(probe.violations[limit].n for probe in probes)
    return sum(probe.violations[limit].above for probe in probes) / n / allowed if n else 0.0


def _next_load(probes: Sequence[Probe], found: Bracket, shares: dict[float, float], goal: Goal, total: int) -> float:
    curve = None if found.binding is None else found.curves[found.binding]
    if curve is None or curve.crossing is None or curve.slope is None or _stays_unknown(curve, probes, total):
        return _without_curve(probes, found, shares, goal)
    beyond = min((load for load, share in shares.items() if share > LARGEST_RATIO), default=math.inf)
    highest = max((load for load, share in shares.items() if share <= 1.0 and load < beyond), default=None)
    if curve.crossing >= beyond:
        return _FARTHEST_BELOW * beyond if highest is None else _between(probes, found, highest, beyond, goal)
    estimate = min(max(curve.crossing, _FARTHEST_BELOW * min(shares)), _FARTHEST_ABOVE * max(shares))
    only_refused = found.certified is None and found.refused is not None
    offsets = _OFFSETS_BELOW if only_refused and not any(probe.controls for probe in probes) else _OFFSETS
    step = offsets[len(probes) % len(offsets)] * math.log(_SPREAD) / max(curve.slope, _LEAST_SLOPE)
    load = estimate * math.exp(min(max(step, _LOWEST_OFFSET), _HIGHEST_OFFSET))
    return min(load, max(_BELOW_OVERLOAD * beyond, estimate))


def _stays_unknown(curve: Curve, probes: Sequence[Probe], total: int) -> bool:
    """Whether the clusters near the crossing will be too few for the curve when all requests, ``total``, are spent."""
    spent = sum(probe.requests for probe in probes)
    clusters = 0.0 if curve.clusters is None else curve.clusters
    return spent >= _ENOUGH_TO_FORESEE * total and clusters * total / spent < _FEWEST_CLUSTERS


def _without_curve(probes: Sequence[Probe], found: Bracket, shares: dict[float, float], goal: Goal) -> float:
    """Too little is beyond the limit for a curve, or the queue grows before anything is: the highest load that seems to hold is
    to be certified, and the next one refused.
    """
    highest = max((load for load, share in shares.items() if share <= 1.0), default=None)
    lowest = min((load for load, share in shares.items() if share > 1.0 and load > (highest or 0.0)), default=None)
    if lowest is None:
        return max(shares) * _FARTHEST_ABOVE
    if highest is None:
        return lowest * _FARTHEST_BELOW
    return _between(probes, found, highest, lowest, goal)


def _between(probes: Sequence[Probe], found: Bracket, highest: float, lowest: float, goal: Goal) -> float:
    """The load that decides more where the ``highest`` load that seems to hold and the ``lowest`` that does not are a cliff.
    A load that some probes did not certify gives way to a lower one.
    """
    if not _are_near(highest, lowest, goal):
        return math.sqrt(lowest * highest)
    step = max(_CLIFF, math.sqrt(goal.ratio))
    certifiable = min(highest, _rounded(lowest / step, goal))
    if found.certified is not None and goal.reached(found.certified, found.refused):
        return found.certified  # what is rare at it may not have come yet
    if found.certified is not None and found.certified >= certifiable / _ROUNDING:
        return lowest if found.refused is None or found.refused > lowest else math.sqrt(lowest * highest)
    loads = [_rounded(certifiable / step**k, goal) for k in range(_STEPS_BELOW)]
    return _untried(probes, loads, found.certified or 0.0)


def _untried(probes: Sequence[Probe], loads: Sequence[float], certified: float) -> float:
    """The first of falling ``loads`` above the certified one that few probes are at, or somewhat above; else the first."""
    longest = max(probe.requests for probe in probes)
    whole = [probe.load for probe in probes if probe.requests >= _SHORT * longest]
    open_loads = [load for load in loads if load > certified * _ROUNDING]
    few = (load for load in open_loads if sum(load / _ROUNDING <= other < load * _ABOUT for other in whole) < _TRIES)
    return next(few, loads[0])
