"""When a run has been precise for long enough to end: the interval of its number, and the looks at it."""

from __future__ import annotations

import numpy as np
import pytest

from reports.criteria import parse_until
from reports.metrics.catalogue import TTFT
from reports.metrics.metric import Anchored
from reports.metrics.precision import LooksInTurn, PrecisionGoal, half_width, looks
from reports.statistics.estimate import Estimate
from reports.statistics.percentiles import summarise


def _estimate(half_width: float | None) -> Estimate:
    return Estimate(100.0, None if half_width is None else (100.0 * (1.0 - half_width), 100.0 * (1.0 + half_width)))


@pytest.mark.parametrize(
    ("widths", "ends_at"),
    [
        ({700: 0.04, 875: 0.04, 1_400: 0.04}, 1_400),  # since it has had an interval for half of its length
        ({300: 0.2, 700: 0.04, 875: 0.04}, 875),
        ({300: 0.2, 600: 0.04, 700: 0.04}, 700),
        ({300: 0.2, 700: 0.04, 875: 0.06, 1_094: 0.04, 1_368: 0.04}, 1_368),
        ({300: 0.2, 700: None, 875: 0.04, 1_094: 0.04, 1_750: 0.04}, 1_750),
        ({300: 0.04, 375: 0.04, 600: 0.04, 699: 0.04}, None),
        ({300: 0.2, 700: 0.049, 875: 0.049}, None),  # the whole run is a little longer
    ],
)
def test_an_interval_that_is_narrow_or_exists_by_chance_ends_no_run(
    widths: dict[int, float | None], ends_at: int | None
) -> None:
    looks_in_turn = LooksInTurn(parse_until("mean_ttft±5%"))
    ends = [requests for requests, width in widths.items() if looks_in_turn.may_end(requests, _estimate(width))]
    assert ends == ([] if ends_at is None else [ends_at])


def test_looks_grow_by_a_quarter() -> None:
    at = looks()
    assert [next(at) for _ in range(4)] == [300, 375, 469, 586]


@pytest.mark.parametrize("interval", [None, (90.0, float("inf")), (float("-inf"), 110.0)])
def test_an_interval_that_is_open_to_one_side_has_no_half_width(interval: tuple[float, float] | None) -> None:
    assert half_width(Estimate(100.0, interval)) is None
    assert half_width(Estimate(100.0, (90.0, 130.0))) == pytest.approx(0.2)
    assert half_width(Estimate(0.0, (0.0, 1.0))) is None


def test_a_number_is_precise_whose_interval_is_twice_its_share_wide() -> None:
    """At a look it has to be 3 % narrower."""
    goal = PrecisionGoal(TTFT, None, 0.5, "mean_ttft")
    exact, wider = Estimate(2.0, (1.0, 3.0)), Estimate(2.0, (1.0, 3.001))
    assert (goal.is_met(exact, margin=1.0), goal.is_met(wider, margin=1.0)) == (True, False)
    assert goal.is_met(Estimate(2.0, (1.0, 3.001)), margin=1.1)
    assert [goal.is_met(Estimate(2.0, (2.0 - half, 2.0 + half))) for half in (0.969, 0.971)] == [True, False]
    assert not goal.is_met(Estimate(2.0), margin=1e9)


def test_a_goal_names_its_number_and_its_share_in_per_cent() -> None:
    assert str(PrecisionGoal(TTFT, 0.99, 0.05, "p99_ttft")) == "p99_ttft±5%"
    assert str(PrecisionGoal(TTFT, None, 0.025, "mean_ttft")) == "mean_ttft±2.5%"


def test_the_number_of_a_goal_is_a_mean_or_a_percentile_from_the_schedule() -> None:
    scheduled, sent = (summarise(np.arange(900.0) + first) for first in (100.0, 50.0))
    assert scheduled is not None
    mean, p99 = (PrecisionGoal(TTFT, q, 0.05, "ttft") for q in (None, 0.99))
    for latency in (Anchored(scheduled, sent), scheduled):
        assert mean.estimate(latency) == scheduled.mean
        assert p99.estimate(latency) == scheduled.percentile(0.99)
    assert mean.estimate(Anchored(None, None)) == Estimate(None)
