"""Numbers with intervals, of one run and of several."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.metrics.estimates import UNKNOWN, Estimate, of_mean, of_percentile, of_rate, over_runs
from reports.metrics.output_events import Rate
from reports.statistics.percentiles import Distribution, Percentile, SampleMean


def test_one_run_keeps_its_own_interval() -> None:
    estimate = of_rate(Rate(10.0, (9.0, 11.0), None))
    assert over_runs([estimate]) is estimate
    assert estimate.interval_text == "9.00 – 11.00"


def test_several_runs_have_student_s_interval() -> None:
    found = over_runs([Estimate(value, None, "n too small") for value in (9.0, 10.0, 11.0)])
    assert found.value == pytest.approx(10.0)
    assert found.interval == pytest.approx((10.0 - 4.30265 / 3**0.5, 10.0 + 4.30265 / 3**0.5), rel=1e-4)


def test_a_run_without_the_number_leaves_the_mean_without_one_and_gives_the_reason() -> None:
    assert over_runs([Estimate(1.0, None, None), Estimate(None, None, "failed")]) == Estimate(None, None, "failed")
    assert of_percentile(None, 0.99) == of_mean(None) == of_rate(None) == UNKNOWN


def test_equal_runs_have_no_spread() -> None:
    assert over_runs([Estimate(2.0, None, None)] * 2) == Estimate(2.0, None, "no spread")


@given(st.lists(st.floats(0.0, 1e9), min_size=2, max_size=9))
def test_the_mean_lies_within_its_interval_and_nothing_lies_below_0(values: list[float]) -> None:
    found = over_runs([Estimate(value, None, None) for value in values])
    assert found.value is not None
    if found.interval is not None:
        low, high = found.interval
        assert 0.0 <= low <= found.value <= high


def test_where_only_the_lower_limit_is_known_it_is_shown() -> None:
    assert Estimate(100.0, None, "n too small", at_least=80.0).interval_text == "≥ 80.00; n too small"


def _distribution() -> Distribution:
    percentiles = (Percentile(0.5, 7.0, (6.0, 8.0)), Percentile(0.99, 40.0, None, 30.0, "n too small"))
    return Distribution(SampleMean(9.0, (8.5, 9.5)), percentiles, 41.0, 200, 0)


def test_the_estimate_of_a_mean_has_its_interval_or_the_reason_for_none() -> None:
    assert of_mean(_distribution()) == Estimate(9.0, (8.5, 9.5), None)
    without = replace(_distribution(), mean=SampleMean(9.0, None, "drifts"))
    assert of_mean(without) == Estimate(9.0, None, "drifts")


def test_the_estimate_of_a_percentile_has_its_interval_or_its_lower_limit_and_the_reason() -> None:
    assert of_percentile(_distribution(), 0.5) == Estimate(7.0, (6.0, 8.0), None)
    assert of_percentile(_distribution(), 0.99) == Estimate(40.0, None, "n too small", 30.0)


def test_the_estimate_of_a_rate_has_the_reason_for_no_interval_and_a_rate_that_is_no_number_is_unknown() -> None:
    assert of_rate(Rate(10.0, None, "drifts")) == Estimate(10.0, None, "drifts")
    assert of_rate(Rate(math.inf, None, None)) == UNKNOWN
