"""Tests of what probes show without a curve."""

from __future__ import annotations

import numpy as np

from reports.capacity.curve import Points
from reports.capacity.monotone import Known, exceeded_alone, falls, held_alone, highest_held, lowest_exceeded


def _points(shares: dict[float, float], n: float = 20_000.0, effect: float = 5.0) -> Points:
    load = np.array(list(shares))
    return Points(load, np.full(load.size, n), np.round(n * np.array(list(shares.values()))), np.full(load.size, effect))


def _known(met_effect: float = 1.0) -> Known:
    return Known(lambda _: True, lambda _: met_effect)


_KEEPS_UP = _known()


def test_highest_load_with_few_beyond_the_limit_is_held() -> None:
    points = _points({10.0: 0.001, 20.0: 0.002, 30.0: 0.05})

    assert highest_held(points, 0.01, 0.02, _KEEPS_UP) == 20.0
    assert highest_held(points, 0.01, 0.02, Known(lambda load: load < 20.0, lambda _: 1.0)) == 10.0
    assert lowest_exceeded(points, 0.01, 0.02) == 30.0


def test_none_beyond_the_limit_shows_little_of_what_comes_in_large_clusters() -> None:
    points = _points({10.0: 0.0}, n=15_000.0)

    assert highest_held(points, 0.01, 0.02, _known(30.0)) == 10.0
    assert highest_held(points, 0.01, 0.02, _known(300.0)) is None
    assert held_alone(points, 0.01, 0.02, _known(300.0)) is None


def test_neighbouring_loads_count_together() -> None:
    apart, together = _points({10.0: 0.0, 20.0: 0.0}, n=8_000.0), _points({10.0: 0.0, 10.5: 0.0, 10.9: 0.0}, n=8_000.0)

    assert highest_held(apart, 0.01, 0.001, _KEEPS_UP) is None
    assert highest_held(together, 0.01, 0.001, _KEEPS_UP) == 10.0


def test_little_evidence_decides_nothing() -> None:
    assert highest_held(_points({10.0: 0.0}, n=300.0), 0.01, 0.02, _KEEPS_UP) is None
    assert lowest_exceeded(_points({10.0: 0.02}, n=300.0), 0.01, 0.02) is None


def test_share_that_falls_beyond_chance_falls() -> None:
    assert falls(_points({10.0: 0.001, 20.0: 0.05, 30.0: 0.002}), 0.01)
    assert not falls(_points({10.0: 0.001, 20.0: 0.05, 30.0: 0.06}), 0.01)
    assert not falls(_points({10.0: 0.001, 20.0: 0.05, 30.0: 0.002}, effect=500.0), 0.01)


def test_probes_that_differ_at_the_same_load_explain_a_fall() -> None:
    scattered = {10.0: 0.002, 10.1: 0.03, 10.2: 0.002, 10.3: 0.03, 10.4: 0.002, 12.0: 0.004, 12.1: 0.03}

    assert not falls(_points(scattered), 0.01)


def test_where_the_share_may_fall_each_load_decides_for_itself() -> None:
    points = _points({10.0: 0.001, 20.0: 0.001, 30.0: 0.05, 40.0: 0.001})

    assert held_alone(points, 0.01, 0.02, _KEEPS_UP) == 20.0
    assert exceeded_alone(points, 0.01, 0.02) == 30.0


def test_short_probe_at_a_higher_load_shows_no_fall() -> None:
    # 848 of 4,097 requests at 233 requests/s, and then none of 981 at 253, before the queue had reached the limit: recorded.
    loads, n, above, effect = [125.0, 233.0, 253.0], [658, 4_097, 981], [0, 848, 0], [11.0, 60.0, 12.0]
    short = Points(*(np.array(each, dtype=float) for each in (loads, n, above, effect)))
    long = Points(*(np.array(each, dtype=float) for each in (loads, [658, 4_097, 3_981], above, effect)))

    assert not falls(short, 0.01)
    assert falls(long, 0.01)


def test_probes_that_differ_at_one_load_explain_a_fall() -> None:
    disturbed = Points(np.array([10.0, 12.0]), np.full(2, 4_000.0), np.array([800.0, 0.0]), np.full(2, 20.0))
    again = Points(np.array([10.0, 10.0, 10.0, 12.0]), np.full(4, 4_000.0), np.array([800.0, 0.0, 0.0, 0.0]), np.full(4, 20.0))

    assert falls(disturbed, 0.01)
    assert not falls(again, 0.01)
