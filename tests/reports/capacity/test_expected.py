"""What a further probe is expected to show."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from reports.capacity.expected import Expectation, expectation
from reports.capacity.probe import Probe, Violations
from reports.capacity.search import Goal, bracket
from reports.metrics.in_flight import QueueCourse

_GOAL = Goal((0,), (0.01,))
_N, _SENT = 5_000, 6_000


def _probe(load: float, share: float, *, overloaded: bool = False, limits: int = 1) -> Probe:
    violations = (Violations(_N, round(share * _N), 4.0), Violations(_N, 0, None))[:limits]
    return Probe(load, _SENT, violations, QueueCourse(0.1, 0.2, 10.0), gave_up=overloaded)


def _rising(*loads: float) -> list[Probe]:
    """A share of 1 % at 100, and the twelfth power."""
    return [_probe(load, 0.01 * (load / 100.0) ** 12) for load in loads]


def _known(probes: list[Probe], goal: Goal = _GOAL) -> Expectation:
    found = expectation(probes, [goal])
    assert found is not None
    return found


def test_nothing_is_expected_before_a_limit_of_each_set_was_exceeded() -> None:
    assert expectation([], [_GOAL]) is None
    assert expectation(_rising(50.0, 80.0), [_GOAL]) is None
    assert expectation([*_rising(50.0, 80.0), _probe(128.0, 0.2)], [_GOAL]) is not None
    both = [_probe(load, 0.05, limits=2) for load in (100.0, 120.0)]
    assert expectation(both, [Goal((0,), (0.01,)), Goal((1,), (0.01,))]) is None


@pytest.mark.parametrize("load", [92.0, 98.0, 103.0])
def test_a_probe_is_expected_on_the_curve_with_the_clusters_of_the_others(load: float) -> None:
    probes = _rising(85.0, 90.0, 95.0, 100.0, 105.0)
    probe = _known(probes).probe(load, 1_200)
    assert (probe.load, probe.requests, probe.overloaded) == (load, 1_200, False)
    (violations,) = probe.violations
    assert violations.n == 1_000  # as many as of the others are left out as their ramp
    curve = bracket(probes, _GOAL).curves[0]
    assert curve.slope is not None
    assert curve.crossing is not None
    assert violations.above == pytest.approx(10.0 * (load / curve.crossing) ** curve.slope, abs=0.6)
    assert violations.effect is not None
    assert 4.0 < violations.effect < 30.0  # between those met and what is usual at capacity


def test_a_limit_on_tokens_is_expected_to_have_as_many_of_them() -> None:
    probes = [replace(each, violations=(*each.violations, Violations(50 * _N, 0, None))) for each in _rising(85.0, 95.0, 105.0)]
    requests, tokens = _known(probes).probe(98.0, 1_200).violations
    assert (requests.n, tokens.n) == (1_000, 50_000)


def test_a_model_that_explains_the_clusters_makes_the_expected_ones_smaller() -> None:
    def effect(remaining: float) -> float:
        found = [replace(each, effect=None, remaining=remaining) for probe in _rising(90.0, 105.0) for each in probe.violations]
        known = _known([replace(probe, violations=(each,)) for probe, each in zip(_rising(90.0, 105.0), found, strict=True)])
        return known.effects[0]

    assert effect(1.0) > 10.0
    assert effect(0.03) == 1.0


def test_a_probe_above_where_the_queue_grows_is_expected_to_grow_it_and_below_it_not() -> None:
    known = _known([_probe(60.0, 0.0), _probe(90.0, 0.0), _probe(100.0, 0.4, overloaded=True)])
    assert known.overloaded == 100.0
    assert [known.probe(load, 1_000).overloaded for load in (70.0, 99.0, 100.0, 130.0)] == [False, False, True, True]
    assert [known.probe(load, 1_200).violations[0].above for load in (70.0, 99.0, 100.0)] == [0, 0, 400]


def test_a_probe_without_a_curve_is_expected_like_those_at_the_nearest_load_together() -> None:
    known = _known([_probe(60.0, 0.0), _probe(90.0, 0.0), _probe(90.0, 0.0006), _probe(140.0, 0.5)])
    assert known.curves == {}
    assert [known.probe(load, 12_000).violations[0].above for load in (65.0, 95.0, 135.0)] == [0, 3, 5_000]
    assert math.isfinite(known.effects[0])
