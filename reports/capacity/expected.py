"""What a further probe of a search is expected to show, by what the probes so far show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reports.capacity.curve import USUAL_EFFECT
from reports.capacity.probe import Probe, Violations
from reports.capacity.search import Curve, Goal, bracket, overloaded_from, points_of
from reports.capacity.shares import fitted_share


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is known of a target, for further probes: ``probes`` are not empty; ``curves`` are the fitted ones by the positions
    of their limits, ``effects`` the design effects of the requests beyond each limit, and the target does not keep up from
    ``overloaded`` on, None where that is unknown.
    """

    probes: tuple[Probe, ...]
    curves: dict[int, Curve]
    effects: tuple[float, ...]
    overloaded: float | None

    def probe(self, load: float, requests: int) -> Probe:
        """The probe at ``load`` as it would be without chance: its shares are those of the curves, or of the probes at the
        nearest load where there is no curve; its queue moves as at the nearest load.
        """
        near = self._nearest(load)
        found = tuple(self._violations(place, load, requests, near) for place in range(len(near.violations)))
        return Probe(load, requests, found, near.queue, near.gave_up)

    def _nearest(self, load: float) -> Probe:
        """The longest probe at the nearest load on the same side of where the queue grows."""
        grows = self.overloaded is not None and load >= self.overloaded
        side = [probe for probe in self.probes if (self.overloaded is not None and probe.load >= self.overloaded) == grows]
        return min(side or self.probes, key=lambda probe: (abs(math.log(probe.load / load)), -probe.requests))

    def _violations(self, place: int, load: float, requests: int, near: Probe) -> Violations:
        curve, known = self.curves.get(place), near.violations[place]
        n = round(requests * known.n / near.requests)
        share = None if curve is None or near.overloaded else fitted_share(curve, load)
        if share is None:
            here = [probe.violations[place] for probe in self.probes if probe.load == near.load]
            share = sum(each.above for each in here) / max(1, sum(each.n for each in here))
        return Violations(n, round(share * n), self.effects[place], known.none_at_capacity, known.remaining)


def expectation(probes: Sequence[Probe], goals: Sequence[Goal]) -> Expectation | None:
    """What ``probes`` show for further ones; None before a limit of each goal was exceeded at any load, while capacity may be
    anywhere above.
    """
    whole = tuple(probe for probe in probes if probe.requests and all(each.n for each in probe.violations))
    if not all(any(_exceeds(probe, goal) for probe in whole) for goal in goals):
        return None
    curves = dict[int, Curve]()
    effects = [USUAL_EFFECT] * len(whole[0].violations)
    for goal in goals:
        for place, allowed, curve in zip(goal.limits, goal.allowed, bracket(probes, goal).curves, strict=True):
            curves |= {} if curve.crossing is None else {place: curve}
            effects[place] = points_of([probe for probe in whole if not probe.overloaded], place, None).dispersion(allowed)
    grows = [load for goal in goals if (load := overloaded_from(probes, goal.limits)) is not None]
    return Expectation(whole, curves, tuple(effects), min(grows, default=None))


def _exceeds(probe: Probe, goal: Goal) -> bool:
    shares = (probe.violations[place].share or 0.0 for place in goal.limits)
    return probe.overloaded or any(share > allowed for share, allowed in zip(shares, goal.allowed, strict=True))
