"""Intervals under correlation: the laws that every interval keeps, and what correlation does to it.

How often they hold the truth is measured by benchmarks/interval_coverage.py; here a smaller version of it.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.signal import lfilter

from reports.resampling import BLOCKS, resample_ratios
from reports.statistics import summarise

_SEEDS = st.integers(0, 2**32 - 1)


def _correlated(n: int, correlation: float, seed: int) -> NDArray[np.float64]:
    noise = np.random.default_rng(seed).normal(size=n + 200) * np.sqrt(1 - correlation**2)
    values: NDArray[np.float64] = np.exp(lfilter([1.0], [1.0, -correlation], noise)[200:])
    return values


def _intervals(series: NDArray[np.float64], confidence: float = 0.95) -> dict[str, tuple[float, float] | None]:
    d = summarise(series, confidence)
    assert d is not None
    return {"mean": d.mean_interval, "p50": d.p50_interval, "p99": d.p99_interval}


def _width(interval: tuple[float, float] | None) -> float:
    assert interval is not None
    return interval[1] - interval[0]


@settings(deadline=None, max_examples=25)
@given(_SEEDS, st.integers(100, 3_000), st.floats(0.0, 0.95))
def test_an_interval_holds_its_estimate_and_lies_within_the_values(seed: int, n: int, correlation: float) -> None:
    series = _correlated(n, correlation, seed)
    d = summarise(series)
    assert d is not None
    for name, estimate in (("mean", d.mean), ("p50", d.p50), ("p99", d.p99)):
        interval = {"mean": d.mean_interval, "p50": d.p50_interval, "p99": d.p99_interval}[name]
        assert (interval is None) == (name in d.reasons)
        if interval is not None and estimate is not None:
            assert series.min() <= interval[0] <= estimate <= interval[1] <= series.max()


@settings(deadline=None, max_examples=15)
@given(_SEEDS, st.floats(0.0, 0.9))
def test_more_confidence_is_never_narrower(seed: int, correlation: float) -> None:
    series = _correlated(2_000, correlation, seed)
    less, more = _intervals(series, 0.8), _intervals(series, 0.95)
    for name, narrow in less.items():
        wide = more[name]
        if narrow is not None and wide is not None:
            assert wide[0] <= narrow[0]
            assert narrow[1] <= wide[1]


@settings(deadline=None, max_examples=15)
@given(_SEEDS, st.floats(0.0, 0.8))
def test_the_order_read_backwards_tells_nearly_the_same(seed: int, correlation: float) -> None:
    series = _correlated(4_000, correlation, seed)
    forwards, backwards = _intervals(series), _intervals(series[::-1])
    for name in ("mean", "p50"):
        assert (forwards[name] is None) == (backwards[name] is None)
        if forwards[name] is not None:
            assert _width(backwards[name]) == pytest.approx(_width(forwards[name]), rel=0.35)  # resamples are drawn anew


@settings(deadline=None, max_examples=10)
@given(_SEEDS, st.floats(0.1, 1_000.0))
def test_another_unit_is_the_same_interval_in_that_unit(seed: int, factor: float) -> None:
    series = _correlated(1_500, 0.5, seed)
    for name, interval in _intervals(series).items():
        scaled = _intervals(series * factor)[name]
        assert (scaled is None) == (interval is None)
        if interval is not None:
            assert scaled == pytest.approx([bound * factor for bound in interval])


def test_the_same_series_has_the_same_intervals_every_time() -> None:
    series = _correlated(1_000, 0.7, 3)
    assert _intervals(series) == _intervals(series.copy())


def test_alike_neighbours_widen_every_interval() -> None:
    alike = _correlated(20_000, 0.95, seed=1)
    shuffled = np.random.default_rng(0).permutation(alike)
    for name in ("mean", "p50"):
        assert _width(_intervals(alike)[name]) > 3 * _width(_intervals(shuffled)[name])


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_intervals_hold_the_truth_about_as_often_as_they_say(correlation: float) -> None:
    runs, truth = 100, {"mean": np.exp(0.5), "p50": 1.0, "p99": np.exp(2.3263)}
    found = [_intervals(_correlated(5_000, correlation, seed)) for seed in range(runs)]
    for name, true in truth.items():
        held = [low <= true <= high for low, high in filter(None, (intervals[name] for intervals in found))]
        assert len(held) > 0.5 * runs
        assert np.mean(held) > 0.88  # 95 % less three standard errors of 100 runs


@pytest.mark.parametrize(
    ("series", "reason"),
    [
        (np.arange(99.0), "n too small"),
        (np.arange(1_000.0), "drifts, or run too short"),
        (np.repeat(np.random.default_rng(0).exponential(size=50), 20), "n as good as"),
    ],
)
def test_a_mean_that_cannot_be_bounded_says_why(series: NDArray[np.float64], reason: str) -> None:
    d = summarise(series)
    assert d is not None
    assert d.mean_interval is None
    assert d.reasons["mean"].startswith(reason)
    assert d.interval_text("mean") == d.reasons["mean"]


def test_constant_values_are_known_exactly() -> None:
    assert _intervals(np.full(500, 7.0)) == {"mean": (7.0, 7.0), "p50": (7.0, 7.0), "p99": (7.0, 7.0)}


def test_a_ratio_s_variance_is_that_of_independent_values_where_they_are_independent() -> None:
    values = np.random.default_rng(0).normal(10.0, 2.0, 50_000)
    resampled = resample_ratios([(values, None)])
    assert resampled.variance(0) == pytest.approx(4.0 / values.size, rel=0.8)  # 19 degrees of freedom
    assert resampled.replicates.shape == (1_000, 1)


def test_failures_thin_out_the_mean_s_denominator() -> None:
    series = np.random.default_rng(0).exponential(1.0, 2_000)
    series[::4] = np.inf
    d = summarise(series)
    assert d is not None
    assert d.mean_interval is not None
    assert d.mean_interval[0] < 1.0 < d.mean_interval[1]


def test_there_are_enough_blocks_for_a_spread_and_few_enough_to_be_long() -> None:
    assert 10 <= BLOCKS <= 30  # Schmeiser 1982: more than 30 batches gain little
