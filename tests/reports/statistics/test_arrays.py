"""Arrays in which NaN is an unknown value."""

from __future__ import annotations

import numpy as np
import pytest

from reports.statistics.arrays import known, mean_of_known


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
