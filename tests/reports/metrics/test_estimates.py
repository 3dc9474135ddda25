"""Numbers with intervals, of one run and of several."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.metrics.estimates import of_percentile, over_runs
from reports.statistics.estimate import UNKNOWN, Cause, Estimate, TooFew
from reports.statistics.percentiles import Distribution


def test_one_run_keeps_its_own_interval() -> None:
    estimate = Estimate(10.0, (9.0, 11.0))
    assert over_runs([estimate]) is estimate


def test_several_runs_have_student_s_interval() -> None:
    found = over_runs([Estimate(value, None, TooFew(9, 100)) for value in (9.0, 10.0, 11.0)])
    assert found.value == pytest.approx(10.0)
    assert found.interval == pytest.approx((10.0 - 4.30265 / 3**0.5, 10.0 + 4.30265 / 3**0.5), rel=1e-4)


def test_a_run_without_the_number_leaves_the_mean_without_one_and_gives_the_reason() -> None:
    failed = Estimate(None, None, Cause.AMONG_FAILURES)
    assert over_runs([Estimate(1.0), failed]) == failed
    assert over_runs([Estimate(1.0), Estimate(None)]) == UNKNOWN


@pytest.mark.parametrize("value", [2.0, 0.003, 0.99, 21.4])
@pytest.mark.parametrize("repeats", [2, 3, 7])
def test_equal_runs_have_no_spread(value: float, repeats: int) -> None:
    """The sum of three times 21.4 is rounded, and had an interval of 21.399999999999984 to 21.400000000000006."""
    assert over_runs([Estimate(value)] * repeats) == Estimate(value, None, Cause.NO_SPREAD)


@given(st.lists(st.floats(0.0, 1e9), min_size=2, max_size=9))
def test_the_mean_lies_within_its_interval_and_nothing_lies_below_0(values: list[float]) -> None:
    found = over_runs([Estimate(value) for value in values])
    assert found.value is not None
    if found.interval is not None:
        low, high = found.interval
        assert 0.0 <= low <= found.value <= high


def test_a_percentile_of_no_values_is_unknown() -> None:
    percentiles = {0.5: Estimate(7.0, (6.0, 8.0)), 0.99: Estimate(40.0, None, TooFew(200, 368), 30.0)}
    distribution = Distribution(Estimate(9.0, (8.5, 9.5)), percentiles, 41.0, 200, 0)
    assert of_percentile(distribution, 0.99) is percentiles[0.99]
    assert of_percentile(None, 0.99) == UNKNOWN
