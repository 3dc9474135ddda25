"""Tests that a search keeps back what it takes to certify some load."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from reports.capacity.foothold import footholds_below, still_needed
from reports.capacity.probe import Probe, Violations
from reports.capacity.search import Goal, bracket, next_probe
from reports.metrics.in_flight import QueueCourse
from tests.reports.capacity import recorded_points

_GOAL = Goal((0,), (0.01,))
_STEADY = QueueCourse(0.05, 0.2, 100.0)


def _clean(load: float, requests: int) -> Probe:
    return Probe(load, requests, (Violations(int(0.85 * requests), 0, 8.0),), _STEADY)


def _stalling(load: float, requests: int, rng: np.random.Generator) -> Probe:
    """Stalls that let about 100 requests wait, more often at a higher load: 1 % of the requests wait at 100."""
    n = int(0.85 * requests)
    above = min(n, int(100 * rng.poisson(n * 0.01 * (load / 100.0) ** 4 / 100.0)))
    return Probe(load, requests, (Violations(n, above, 20.0),), _STEADY, gave_up=above > 0.2 * n)


def _searched(budget: int, seed: int, goal: Goal = _GOAL) -> list[Probe]:
    rng, probes = np.random.default_rng(seed), list[Probe]()
    while (asked := next_probe(probes, goal, 62.0, budget - sum(probe.requests for probe in probes))) is not None:
        probes.append(_stalling(asked.load, asked.requests, rng))
    return probes


def test_recorded_search_that_certified_nothing_would_have_certified_a_lower_load() -> None:
    """After its eleventh probe 108 s were left, and it had seen that what exceeds the limit is rare: a load fails below a calm
    one. Six more at 152 and 167 requests/s certified nothing.
    """
    probes, left_s = list(recorded_points.STALLS[:11]), 108.0
    assert bracket(recorded_points.STALLS, _GOAL).certified is None
    while left_s > 6.0:
        found = bracket(probes, _GOAL)
        near = found.estimate or found.certified or found.refused
        assert near is not None
        asked = next_probe(probes, _GOAL, 61.76, int(0.63 * left_s * near))
        assert asked is not None
        requests = min(asked.requests, int((left_s - 5.0) * asked.load))
        probes.append(_clean(asked.load, requests))
        left_s -= 5.0 + requests / asked.load

    certified = bracket(probes, _GOAL).certified
    assert certified is not None
    assert 90.0 < certified < 150.0


def test_searches_of_a_target_with_rare_stalls_certify_a_load_below_its_capacity() -> None:
    certified = [bracket(_searched(30_000, seed), _GOAL).certified for seed in range(40)]

    assert sum(load is not None for load in certified) >= 20
    assert sum(load is not None and load > 100.0 for load in certified) <= 6


def test_foothold_that_does_not_hold_gives_way_to_a_lower_one() -> None:
    probes = [_clean(60.0, 500), _clean(96.0, 500), Probe(150.0, 500, (Violations(450, 40, 20.0),), _STEADY)]
    first = next_probe(probes, _GOAL, 60.0, 16_000)
    assert first is not None
    assert first.load < 120.0
    failed = Probe(first.load, first.requests, (Violations(first.requests, first.requests // 25, 20.0),), _STEADY)

    lower = next_probe([*probes, failed], _GOAL, 60.0, 16_000)

    assert lower is not None
    assert lower.load <= first.load / 1.25 + 0.1


def test_nothing_is_kept_back_once_a_load_is_certified_or_where_the_curve_will_certify_one() -> None:
    held = [_clean(load, 12_000) for load in (60.0, 80.0)]
    failing = Probe(150.0, 3_000, (Violations(2_700, 300, 20.0),), _STEADY)
    certified = bracket([*held, failing], _GOAL).certified
    assert certified is not None
    after = next_probe([*held, failing], _GOAL, 60.0, 12_000)
    assert after is not None
    assert after.load > certified

    rising = [
        Probe(load, 3_000, (Violations(2_700, round(27 * (load / 100.0) ** 12), 2.0),), _STEADY)
        for load in (80.0, 90.0, 95.0, 105.0)
    ]
    near = next_probe(rising, _GOAL, 60.0, 14_000)
    assert near is not None
    assert near.load > 85.0


@pytest.mark.parametrize("budget", [2_000, 5_000])
def test_nothing_is_kept_back_of_a_budget_that_certifies_nothing(budget: int) -> None:
    probes = [_clean(60.0, 300), _clean(96.0, 300), Probe(150.0, 300, (Violations(270, 30, 20.0),), _STEADY)]

    asked = next_probe(probes, _GOAL, 60.0, budget)

    assert asked is not None
    assert asked.load > 96.0


def test_foothold_lies_well_below_a_load_that_exceeds_a_limit() -> None:
    nearest, usual = footholds_below(150.0)

    assert 75.0 < usual < nearest <= 100.0


def test_requests_that_are_there_already_are_not_needed_again() -> None:
    def needed(probes: Sequence[Probe]) -> float:
        return still_needed(probes, 0, 0.01, 100.0)

    none, some = needed([_clean(60.0, 1_000), _clean(120.0, 2_000)]), needed([_clean(60.0, 1_000), _clean(105.0, 2_000)])

    assert none == pytest.approx(9_000 / 0.85)
    assert some == pytest.approx(none - 2_000)
