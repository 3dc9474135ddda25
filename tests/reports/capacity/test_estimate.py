"""Tests that the best estimate agrees with the bracket, whatever the probes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from reports.capacity.json_file import document
from reports.capacity.probe import Probe, Violations
from reports.capacity.search import Bracket, Curve, Goal, Shape, bracket
from reports.metrics.in_flight import QueueCourse
from tests.reports.capacity import recorded_points
from tests.reports.capacity.searches import capacity

_GOAL = Goal((0,), (0.01,))


def _between_ends(found: Bracket) -> bool:
    if found.estimate is None:
        return True
    return (found.certified or 0.0) <= found.estimate <= (math.inf if found.refused is None else found.refused)


def _drawn(rng: np.random.Generator, limits: int) -> list[Probe]:
    """Probes of a random target: any slope and crossing, an overload or none, clusters, and queues that move or not."""
    crossings, slope, cliff = 100.0 * rng.lognormal(0.2, 0.2, limits), rng.uniform(0.5, 40.0), 100.0 * rng.lognormal(0.1, 0.2)
    probes = list[Probe]()
    for load in np.round(100.0 * rng.lognormal(0.0, 0.3, rng.integers(1, 25)), 1):
        n, effect = int(rng.integers(150, 12_000)), float(rng.uniform(1.0, 80.0))
        shares = np.minimum(0.9, 0.01 * (load / crossings) ** slope * rng.lognormal(0.0, 1.0, limits))
        above = [min(n, int(rng.poisson(n * share / effect) * effect)) for share in shares]
        growth, gave_up = float(rng.gamma(4.0, 0.25) - 0.45 + 3.0 * (load > cliff)), bool(load > cliff and rng.random() < 0.5)
        queue = None if rng.random() < 0.2 else QueueCourse(growth, abs(growth) + 0.3, 100.0)
        probes.append(Probe(float(load), n, tuple(Violations(n, each, effect) for each in above), queue, gave_up))
    return probes


@pytest.mark.parametrize("step", [0.0, 1.0])
@pytest.mark.parametrize("limits", [1, 2])
def test_estimate_lies_between_the_ends_of_any_bracket(limits: int, step: float) -> None:
    goal, known, outside = Goal(tuple(range(limits)), (0.01,) * limits, step=step), 0, 0
    for seed in range(150 * limits):
        found = bracket(_drawn(np.random.default_rng([limits, seed]), limits), goal)
        crossing = None if found.binding is None else found.curves[found.binding].crossing
        known += found.estimate is not None
        outside += crossing is not None and not _between_ends(replace(found, estimate=crossing))
        assert _between_ends(found), f"seed {seed}: {found}"

    assert known > 40 * limits
    assert outside >= 2, "the curves alone would have been wrong"


def test_estimate_of_a_recorded_cliff_lies_below_where_its_queue_grows() -> None:
    """The curve crosses the allowed share at 299 requests/s; the queue grows at 268.7."""
    found = bracket(recorded_points.CLIFF, _GOAL)

    assert (found.shape, found.certified, found.refused) == (Shape.CLIFF, 232.0, 268.7)
    assert found.estimate == pytest.approx(math.sqrt(232.0 * 268.7))


def test_estimate_without_a_certified_load_below_the_crossing_is_unknown() -> None:
    """A curve that crosses above the refused load says nothing of where below it the load holds."""
    rising = [Probe(load, 6_000, (Violations(6_000, 70 + k, 4.0),)) for k, load in enumerate((104.0, 106.0, 108.0, 110.0))]
    found = bracket([*rising, Probe(100.0, 6_000, (Violations(6_000, 3_000, 4.0),), gave_up=True)], _GOAL)

    assert found.refused == 100.0
    assert found.estimate is None


def test_json_gives_a_crossing_outside_its_interval_no_interval() -> None:
    curve = Curve(Shape.CLIFF, -75.2, 12.4, 299.2, 232.0, 268.7, 4.7)
    cliff = Bracket((curve,), 232.0, 268.7, 264.8, 0, Shape.CLIFF, 0)
    inside = replace(cliff, curves=(replace(curve, crossing=240.0),))

    intervals = [
        document(replace(found, tiers=(replace(found.tiers[0], bracket=each),)))["tiers"][0]["limits"][0]["crossing_interval"]  # type: ignore[index]
        for each in (cliff, inside)
        for found in [capacity(each, limits=capacity().limits[:1])]
    ]

    assert intervals == [None, [232.0, 268.7]]
