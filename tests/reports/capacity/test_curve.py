"""Tests of the curve through probes: exact points, and how its interval follows from their number and clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reports.capacity.curve import Points, fit, is_usable


def _points(
    slope: float, n: float = 50_000.0, effect: float = 5.0, loads: tuple[float, ...] = (8.5, 9.0, 9.5, 10.5, 11.0)
) -> Points:
    load = np.array(loads)
    return Points(load, np.full(load.size, n), n * 0.01 * (load / 10.0) ** slope, np.full(load.size, effect))


@pytest.mark.parametrize("slope", [5.0, 12.0, 40.0])
def test_points_of_a_curve_give_it_back(slope: float) -> None:
    found = fit(_points(slope), 0.01, 0.02)

    assert found is not None
    assert found.crossing == pytest.approx(10.0, rel=0.005)
    assert found.slope == pytest.approx(slope, rel=0.1)
    assert math.exp(found.intercept + found.slope * math.log(10.0)) == pytest.approx(0.01, rel=0.05)


def test_interval_narrows_with_the_root_of_the_requests() -> None:
    few, many = fit(_points(10.0), 0.01, 0.02), fit(_points(10.0, n=200_000.0), 0.01, 0.02)

    assert few is not None and few.low is not None and few.high is not None  # noqa: PT018
    assert many is not None and many.low is not None and many.high is not None  # noqa: PT018
    assert math.log(few.high / few.low) / math.log(many.high / many.low) == pytest.approx(2.0, rel=0.3)


def test_smaller_error_widens_the_interval() -> None:
    wide, narrow = fit(_points(10.0), 0.01, 0.005), fit(_points(10.0), 0.01, 0.1)

    assert wide is not None and wide.low is not None and narrow is not None and narrow.low is not None  # noqa: PT018
    assert wide.low < narrow.low < narrow.crossing


def test_few_points_give_no_curve() -> None:
    assert fit(_points(10.0, loads=(9.0, 11.0)), 0.01, 0.02) is None
    assert fit(_points(10.0, loads=(10.0, 10.0, 10.0)), 0.01, 0.02) is None
    assert fit(_points(10.0, n=10.0), 0.01, 0.02) is None


def test_points_far_from_the_crossing_do_not_bend_the_curve() -> None:
    near = _points(10.0)
    far = Points(np.array([1.0, 2.0]), np.full(2, 50_000.0), np.full(2, 200.0), np.full(2, 5.0))
    both = Points(
        *(
            np.concatenate([a, b])
            for a, b in ((near.load, far.load), (near.n, far.n), (near.above, far.above), (near.effect, far.effect))
        )
    )

    found = fit(both, 0.01, 0.02)

    assert found is not None
    assert found.crossing == pytest.approx(10.0, rel=0.01)


def test_points_far_above_the_allowed_share_are_not_of_the_curve() -> None:
    points = Points(np.array([1.0, 2.0, 3.0]), np.full(3, 1_000.0), np.array([1.0, 140.0, 900.0]), np.full(3, 2.0))

    assert points.load[is_usable(points, 0.01)].tolist() == [1.0, 2.0]


def test_dispersion_is_between_what_is_usual_and_what_the_probes_show() -> None:
    shown = _points(10.0, effect=80.0).dispersion(0.01)
    nothing_beyond = Points(np.array([1.0]), np.array([1_000.0]), np.array([0.0]), np.array([2.0])).dispersion(0.01)

    assert 60.0 < shown < 80.0
    assert nothing_beyond == 30.0
