"""Arrays in which NaN is an unknown value."""

from __future__ import annotations

import numpy as np
import pytest

from reports.statistics.arrays import known, mean_of_known, shifted_mean, shifted_variance


@pytest.mark.parametrize(
    ("values", "expected", "mean"),
    [
        ([3.0, np.nan, 0.0, 6.0, np.nan], [3.0, 0.0, 6.0], 3.0),
        ([1.0, np.inf, np.nan], [1.0, np.inf], np.inf),  # a failure's latency is known to have no end
        ([np.nan, np.nan], [], None),
        ([], [], None),
    ],
)
def test_what_is_unknown_is_left_out(values: list[float], expected: list[float], mean: float | None) -> None:
    assert known(np.array(values)).tolist() == expected
    assert mean_of_known(np.array(values)) == mean


@pytest.mark.parametrize("value", [1 / 300, 8.7, 318.8, -1e9 / 7])
def test_the_mean_of_equal_values_is_their_value_and_their_variance_is_0(value: float) -> None:
    for n in (1, 2, 3, 5, 7, 333, 1_000):
        assert shifted_mean(np.full(n, value)) == value
    assert [shifted_variance(np.full(n, value)) for n in (2, 3, 5, 7, 333)] == [0.0] * 5
    values = np.array([3.0, 1.0, 7.0, 5.0])
    assert (shifted_mean(values), shifted_variance(values)) == pytest.approx((4.0, np.var(values, ddof=1)))
