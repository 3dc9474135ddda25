"""Means of correlated series: the laws that every interval keeps, what correlation does to it, and an oracle.

How often intervals hold the truth is measured by benchmarks/interval_coverage.py; here a smaller version of it.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.stats import norm

from reports.statistics.autocorrelation import (
    BINS,
    LongRun,
    Mean,
    fewest_independent,
    mean_cluster_size,
    mean_of,
    mean_over_groups,
    share_of,
    student_to_normal,
)
from reports.statistics.estimate import Cause, Correlated, Estimate, Reason, TooFew
from reports.statistics.percentiles import Distribution, summarise
from reports.statistics.spectrum import MOST_ORDINATES, error_of_mean

_SEEDS = st.integers(0, 2**32 - 1)
Series = NDArray[np.float64]
Intervals = dict[str, tuple[float, float] | None]


def _autoregressive(n: int, correlation: float, seed: int) -> Series:
    noise = np.random.default_rng(seed).normal(size=n + 500) * np.sqrt(1 - correlation**2)
    values: Series = lfilter([1.0], [1.0, -correlation], noise)[500:]
    return values


def _correlated(n: int, correlation: float, seed: int) -> Series:
    return np.exp(_autoregressive(n, correlation, seed))


def _intervals(series: Series, confidence: float = 0.95) -> Intervals:
    d = summarise(series, confidence)
    assert d is not None
    return {name: estimate.interval for name, estimate in _estimates(d).items()}


def _estimates(d: Distribution) -> dict[str, Estimate]:
    return {"mean": d.mean, "p50": d.percentile(0.50), "p99": d.percentile(0.99)}


def _width(interval: tuple[float, float] | None) -> float:
    assert interval is not None
    return interval[1] - interval[0]


# ---- laws of every interval


@settings(max_examples=40)
@given(_SEEDS, st.integers(100, 3_000), st.floats(0.0, 0.95))
def test_an_interval_holds_its_estimate_and_percentiles_lie_within_the_values(seed: int, n: int, correlation: float) -> None:
    series = _correlated(n, correlation, seed)
    d = summarise(series)
    assert d is not None
    for name, estimate in _estimates(d).items():
        interval, value = estimate.interval, estimate.value
        at_least = estimate.at_least
        assert (interval is None) == (estimate.reason is not None)
        assert at_least is None or estimate.reason is not None
        assert value is not None
        if interval is not None:
            assert interval[0] <= value <= interval[1]
        if at_least is not None:
            assert series.min() <= at_least <= value
        if interval is not None and name != "mean":
            assert series.min() <= interval[0]
            assert interval[1] <= series.max()


@settings(max_examples=15)
@given(_SEEDS, st.floats(0.0, 0.9))
def test_more_confidence_is_never_narrower(seed: int, correlation: float) -> None:
    series = _correlated(2_000, correlation, seed)
    less, more = _intervals(series, 0.8), _intervals(series, 0.95)
    for name, narrow in less.items():
        wide = more[name]
        if narrow is not None and wide is not None:
            assert wide[0] <= narrow[0]
            assert narrow[1] <= wide[1]


@settings(max_examples=15)
@given(_SEEDS, st.floats(0.0, 0.9), st.integers(100, 5_000))
def test_the_reversed_order_gives_the_same(seed: int, correlation: float, n: int) -> None:
    series = _correlated(n // 100 * 100, correlation, seed)
    if n > BINS:
        series = series[: n // BINS * BINS]  # equal bins, or the first would not be the last
    forwards, backwards = mean_of(series), mean_of(series[::-1])
    assert backwards.standard_error == pytest.approx(forwards.standard_error, rel=1e-6)
    assert backwards.independent == pytest.approx(forwards.independent, rel=1e-6)


@settings(max_examples=10)
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


# ---- the standard error


def test_the_error_of_a_mean_is_that_of_independent_values_where_they_are_independent() -> None:
    means = [mean_of(np.random.default_rng(seed).normal(10.0, 2.0, 50_000)) for seed in range(40)]
    errors = [mean.standard_error for mean in means]
    assert 1.0 < np.mean(errors) / (2.0 / math.sqrt(50_000)) < 1.35  # the excess is the allowance for slow changes
    assert np.mean([mean.long_run.effect for mean in means]) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("correlation", [0.5, 0.9, 0.98])
def test_the_error_of_a_mean_grows_with_the_correlation_as_in_theory(correlation: float) -> None:
    """The long-run variance of a first-order autoregression of variance 1 is (1 + φ) / (1 − φ)."""
    n, design_effect = 40_000, (1 + correlation) / (1 - correlation)
    means = [mean_of(_autoregressive(n, correlation, seed)) for seed in range(40)]
    errors = np.mean([mean.standard_error for mean in means]) / math.sqrt(design_effect / n)
    assert 1.0 < errors < 1.4  # the excess is the allowance for slow changes
    assert np.mean([mean.long_run.effect for mean in means]) == pytest.approx(design_effect, rel=0.2)
    assert np.mean([mean.independent for mean in means]) == pytest.approx(n / design_effect, rel=0.1)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_the_error_of_a_mean_agrees_with_a_block_bootstrap(correlation: float) -> None:
    from arch.bootstrap import CircularBlockBootstrap  # 0.5 s, in each process that collects this file

    ours, bootstrapped = [], []
    for seed in range(8):
        series = _correlated(20_000, correlation, seed)
        ours.append(mean_of(series).standard_error)
        bootstrapped.append(math.sqrt(CircularBlockBootstrap(400, series, seed=seed).var(np.mean, 300).item()))
    assert 1.0 < np.mean(ours) / np.mean(bootstrapped) < 1.4  # a bootstrap of short blocks allows for no slow changes


@settings(max_examples=20)
@given(_SEEDS, st.integers(200, 5_000))
def test_a_share_is_the_mean_of_noughts_and_ones(seed: int, n: int) -> None:
    chosen = np.random.default_rng(seed).random(n) < 0.3
    share, mean = share_of(chosen), mean_of(chosen.astype(np.float64))
    assert share.degrees == mean.long_run.degrees
    assert share.variance == pytest.approx((mean.standard_error * n) ** 2)
    assert share.effect == pytest.approx(mean.long_run.effect)


@settings(max_examples=20)
@given(_SEEDS, st.integers(100, 2_000))
def test_what_is_not_counted_is_as_if_it_were_not_there(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    values, counted = rng.exponential(1.0, n), rng.random(n) < 0.8
    marked = np.where(counted, values, np.inf)
    mean = mean_of(marked, counted)
    assert mean.value == pytest.approx(values[counted].mean())
    assert mean.n == counted.sum()
    assert 0 < mean.standard_error < math.inf


def test_long_series_are_walked_in_pieces_that_change_nothing() -> None:
    series = _autoregressive(600_001, 0.6, seed=1) + 5.0
    centred = series - series.mean()
    correlation = float(centred[1:] @ centred[:-1]) / float(centred @ centred)
    assert mean_of(series).independent == pytest.approx(series.size * (1 - correlation) / (1 + correlation), rel=1e-6)


def test_even_values_are_worth_no_more_than_independent_ones() -> None:
    assert mean_of(np.tile([1.0, 2.0], 500)).independent == 1_000


@pytest.mark.parametrize("value", [7.0, 0.1, 1e9 + 0.1])
def test_constant_values_are_known_exactly(value: float) -> None:
    for interval in _intervals(np.full(512, value)).values():
        assert interval == (pytest.approx(value, rel=1e-12), pytest.approx(value, rel=1e-12))


# ---- the interval of a mean


def test_the_limits_of_a_mean_grow_with_its_square() -> None:
    mean = mean_of(_correlated(2_000, 0.9, 1))
    low, high = mean.interval(0.95) or (0.0, 0.0)
    half = student_to_normal(0.95, mean.long_run.degrees) * 1.959964 * mean.standard_error
    assert 1 / low - 1 / mean.value == pytest.approx(half / mean.value**2, rel=1e-5)
    assert high - mean.value == pytest.approx(half * ((mean.value + half) / mean.value) ** 2, rel=1e-5)
    assert high - mean.value > half > mean.value - low


def test_a_mean_that_may_be_negative_has_a_symmetric_interval() -> None:
    series = np.random.default_rng(0).normal(-3.0, 1.0, 500)
    mean = mean_of(series)
    low, high = mean.interval(0.95) or (0.0, 0.0)
    assert high - mean.value == pytest.approx(mean.value - low)
    assert low < -3.0 < high


def test_alike_neighbours_widen_every_interval() -> None:
    alike = _correlated(20_000, 0.95, seed=1)
    shuffled = np.random.default_rng(0).permutation(alike)
    for name in ("mean", "p50", "p99"):
        assert _width(_intervals(alike)[name]) > (1.5 if name == "p99" else 3) * _width(_intervals(shuffled)[name])


def test_less_is_known_with_fewer_degrees_of_freedom() -> None:
    factors = [student_to_normal(0.95, degrees) for degrees in (4, 8, 16)]
    assert factors == sorted(factors, reverse=True)
    assert student_to_normal(0.95, 10**6) == pytest.approx(1.0, abs=1e-4)


def _queue(load: float, n: int, seed: int) -> Series:
    """M/M/1: the time in the system, with services of 1 on average."""
    rng = np.random.default_rng(seed)
    gaps, services = rng.exponential(1 / load, n + 2_000), rng.exponential(1.0, n + 2_000)
    steps = np.concatenate([[0.0], np.cumsum(services[:-1] - gaps[1:])])
    return (steps - np.minimum.accumulate(steps) + services)[2_000:]


@pytest.mark.parametrize(
    ("runs", "truth"),
    [
        ([_correlated(5_000, 0.0, seed) for seed in range(100)], (math.exp(0.5), 1.0, math.exp(2.3263))),
        ([_correlated(10_000, 0.9, seed) for seed in range(100)], (math.exp(0.5), 1.0, math.exp(2.3263))),
        ([_queue(0.5, 5_000, seed) for seed in range(100)], (2.0, 2 * math.log(2), 2 * math.log(100))),
        ([_queue(0.7, 2_000, seed) for seed in range(100)], (1 / 0.3, math.log(2) / 0.3, None)),
    ],
    ids=["independent", "autoregressive", "queue at 50 %", "short queue at 70 %"],
)
def test_intervals_hold_the_truth_at_about_their_confidence(
    runs: list[Series], truth: tuple[float, float, float | None]
) -> None:
    found = [_intervals(run) for run in runs]
    for name, true in zip(("mean", "p50", "p99"), truth, strict=True):
        intervals = [interval for run in found if (interval := run[name]) is not None]
        if true is None:
            assert len(intervals) < 0.1 * len(runs)  # too short for p99, whatever the run looks like
            continue
        assert len(intervals) > 0.8 * len(runs)
        assert np.mean([low <= true <= high for low, high in intervals]) >= 0.88  # 95 % less three standard errors of 100 runs


# ---- what has no interval


@pytest.mark.parametrize(
    ("series", "reason"),
    [
        (np.arange(99.0), TooFew(99, 100)),
        (np.arange(1_000.0), Cause.DRIFTS),
        (np.repeat([1.0, 3.0], 500), Cause.DRIFTS),
        (np.repeat(np.random.default_rng(0).exponential(size=20), 50), Correlated(7, 10)),
    ],
    ids=["few", "drifting", "a step", "alike"],
)
def test_a_series_with_too_little_information_has_a_reason_in_place_of_intervals(series: Series, reason: Reason) -> None:
    d = summarise(series)
    assert d is not None
    assert [estimate.interval for estimate in _estimates(d).values()] == [None] * 3
    assert [percentile.at_least for percentile in d.percentiles.values()] == [None] * 5
    assert d.mean.reason == reason


@pytest.mark.parametrize(("n", "fewest"), [(699, 30), (700, 10)])
def test_a_short_run_needs_more_independent_values(n: int, fewest: int) -> None:
    long_run = LongRun(1.0, 16.0, 1.0, 1.0, drifts=False)
    enough, too_few = (Mean(5.0, 0.1, n, independent, long_run) for independent in (fewest, fewest - 0.1))
    assert fewest_independent(n) == fewest
    assert enough.no_interval_reason is None
    assert too_few.no_interval_reason == Correlated(fewest - 1, fewest)


def test_a_mean_that_rests_on_few_values_has_no_limit_above() -> None:
    series = np.full(1_000, 0.01)
    series[[90, 700]] = 5_000.0
    d = summarise(series)
    assert d is not None
    assert (d.mean.interval, d.mean.reason) == (None, Cause.UNEVEN)
    assert d.percentile(0.50).interval == (0.01, 0.01)


def test_a_percentile_without_an_upper_limit_still_has_a_lower_one() -> None:
    d = summarise(_queue(0.7, 2_000, seed=1))
    assert d is not None
    p99 = d.percentile(0.99)
    assert p99.interval is None
    assert p99.reason is not None
    assert isinstance(p99.reason, Correlated)
    assert d.p50 is not None
    assert p99.value is not None
    assert p99.at_least is not None
    assert d.p50 < p99.at_least < p99.value
    assert p99.interval_text == f"≥ {p99.at_least:.2f}; {p99.reason}"


def test_failures_thin_out_the_mean_s_denominator() -> None:
    series = np.random.default_rng(0).exponential(1.0, 2_000)
    series[::4] = np.inf
    d = summarise(series)
    assert d is not None
    assert d.mean.interval is not None
    assert d.mean.interval[0] < 1.0 < d.mean.interval[1]


# ---- exact cases


@pytest.mark.parametrize(("effect", "size"), [(0.2, 1.0), (1.0, 1.0), (3.0, 2.0), (9.0, 5.0)])
def test_clusters_have_half_of_the_design_effect_and_a_half(effect: float, size: float) -> None:
    assert mean_cluster_size(effect) == size


def test_the_spread_of_a_long_run_is_that_of_its_lowest_cosines() -> None:
    """Each cosine's coefficient is written out as a sum, and its square is over the variance of independent values."""
    n = 400
    values = np.random.default_rng(3).normal(5.0, 2.0, n).cumsum() * 0.1 + np.random.default_rng(4).normal(0.0, 9.0, n)
    deviations = values - values.mean()
    squares = float((deviations**2).sum())
    at = (np.arange(n) + 0.5) * np.pi / n
    coefficients = [math.sqrt(2.0 / n) * float((deviations * np.cos(at * k)).sum()) for k in range(1, MOST_ORDINATES + 1)]
    ordinates = np.array(coefficients) ** 2 * n / squares
    effect = float(ordinates[:8].mean())
    expected = error_of_mean(ordinates, n / effect)
    found = mean_of(values)
    assert found.long_run.effect == pytest.approx(effect)
    assert found.long_run.allowed_effect == pytest.approx(expected.variance)
    assert found.long_run.variance == pytest.approx(expected.variance * squares)
    assert found.long_run.degrees == pytest.approx(expected.degrees)
    assert found.standard_error == pytest.approx(math.sqrt(expected.variance * squares) / n)


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_the_unit_changes_neither_the_information_nor_the_effect(scale: float) -> None:
    values = _correlated(500, 0.8, 7)
    one, other = mean_of(values), mean_of(values * scale)
    assert other.independent == pytest.approx(one.independent)
    assert other.long_run.effect == pytest.approx(one.long_run.effect)
    assert other.long_run.degrees == pytest.approx(one.long_run.degrees)


@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_fewer_than_a_hundred_values_have_the_spread_of_independent_ones(scale: float) -> None:
    values = np.random.default_rng(5).normal(0.0, scale, 99)
    squares = float(((values - values.mean()) ** 2).sum())
    assert mean_of(values).long_run == LongRun(pytest.approx(squares), 4.0, 1.0, 1.0, drifts=False)  # type: ignore[arg-type]
    assert mean_of(np.append(values, 0.0)).long_run.effect != 1.0


def test_values_that_are_not_counted_are_no_deviations() -> None:
    """Spells of 50 values that count and 50 that do not: only the noise of those that count is an error."""
    n = 4_000
    counted = np.arange(n) % 100 < 50
    values = np.where(counted, 5.0 + np.random.default_rng(6).normal(0.0, 0.01, n), 1e6)
    found = mean_of(values, counted)
    assert found.n == n // 2
    assert found.independent > 0.9 * found.n
    assert found.standard_error == pytest.approx(0.01 / math.sqrt(n / 2), rel=0.5)


def test_alternating_values_have_the_smallest_effect_there_is() -> None:
    n = 400
    assert mean_of(np.tile([1.0, -1.0], n // 2)).long_run.effect == pytest.approx(1.0 / n, rel=1e-3)


def test_constant_values_have_no_spread_at_all() -> None:
    found = mean_of(np.full(200, 3.7))
    assert found.long_run.variance == 0.0
    assert found.standard_error == 0.0


def test_a_slow_wave_stands_out_however_large_the_fast_ones_are() -> None:
    n = 400
    at = np.arange(n)
    wave = 0.05 * np.cos(np.pi * (at + 0.5) / n)
    assert mean_of((-1.0) ** at + wave).long_run.drifts
    assert not mean_of((-1.0) ** at).long_run.drifts


def test_a_mean_of_nought_has_a_symmetric_interval() -> None:
    interval = Mean(0.0, 1.0, 200, 200.0, LongRun(1.0, 1e9, 1.0, 1.0, drifts=False)).interval(0.95)
    assert interval == pytest.approx((-1.96, 1.96), abs=1e-3)


def test_the_error_of_a_mean_over_groups_of_one_is_that_of_independent_values() -> None:
    values = np.array([1.0, 2.0, 4.0, 9.0])
    for groups in (np.full(4, -1), np.arange(4)):
        found = mean_over_groups(values, groups)
        assert found is not None
        assert found.value == 4.0
        assert found.standard_error == pytest.approx(values.std(ddof=1) / 2.0)
        assert found.long_run.degrees == 3.0


def test_values_of_a_group_that_are_alike_are_worth_one() -> None:
    """Three groups of five equal values have the error of three values."""
    alike = mean_over_groups(np.repeat([1.0, 2.0, 6.0], 5), np.repeat([0, 1, 2], 5))
    assert alike is not None
    assert (alike.value, alike.standard_error) == (3.0, pytest.approx(np.std([1.0, 2.0, 6.0], ddof=1) / math.sqrt(3.0)))
    assert alike.long_run.degrees == 2.0


def test_values_of_a_single_group_have_no_error() -> None:
    assert mean_over_groups(np.array([1.0, 2.0]), np.array([5, 5])) is None


def test_every_number_of_a_mean_over_groups() -> None:
    """The mean is 4.8. The sums of the deviations are -5.6 and 0.4 in the two groups, and 5.2 of the value that has none."""
    values, groups = np.array([1.0, 3.0, 10.0, 4.0, 6.0]), np.array([0, 0, -1, 1, 1])
    variance = (5.6**2 + 0.4**2 + 5.2**2) * 3 / 2
    effect = variance / (3.8**2 + 1.8**2 + 5.2**2 + 0.8**2 + 1.2**2)
    for unit in (1.0, 0.01):
        found = mean_over_groups(unit * values, groups)
        assert found is not None
        assert (found.value, found.standard_error) == pytest.approx((4.8 * unit, unit * math.sqrt(variance) / 5))
        assert (found.n, found.independent) == (5, 3.0)
        assert dataclasses.astuple(found.long_run) == (
            pytest.approx(unit**2 * variance), 2.0, pytest.approx(effect), pytest.approx(effect), False,
        )  # fmt: skip


def test_groups_of_equal_values_have_the_effect_of_independent_ones_and_two_are_enough() -> None:
    equal = mean_over_groups(np.full(4, 3.0), np.array([0, 0, 1, 1]))
    assert equal is not None
    assert (equal.value, equal.standard_error, equal.long_run.effect) == (3.0, 0.0, 1.0)
    assert mean_over_groups(np.full(4, 3.0), np.array([0, 0, 0, 0])) is None


def test_the_mean_of_equal_values_is_that_value() -> None:
    """Three times 0.1, divided by 3, is more. A value that does not count is another."""
    assert sum([0.1] * 3) / 3 != 0.1
    for n in (1, 3, 7, 1_000):
        assert mean_of(np.full(n, 0.1)).value == 0.1
    counted = np.arange(4) > 0
    assert mean_of(np.array([5.0, 0.1, 0.1, 0.1]), counted).value == 0.1


@pytest.mark.parametrize(("deviation", "is_counted"), [(2e-9, True), (0.5e-9, False)])
def test_deviations_below_a_million_millionth_of_the_mean_are_rounding(deviation: float, is_counted: bool) -> None:
    """Their mean is 1,000. Spells of 50 values make neighbours alike, where they count."""
    values = 1_000.0 + deviation * np.repeat([1.0, -1.0, -1.0, 1.0], 50)
    assert (mean_of(values).independent < 200.0) is is_counted


def test_values_that_are_even_in_every_bin_do_not_drift() -> None:
    found = mean_of(np.tile([1.0, 3.0], 1_000))
    assert (found.value, found.long_run.drifts, found.no_interval_reason) == (2.0, False, None)


def test_a_mean_whose_error_is_as_large_as_itself_has_no_upper_limit() -> None:
    long_run = LongRun(1.0, 10.0, 1.0, 1.0, False)
    half = student_to_normal(0.95, 10.0) * float(norm.ppf(0.975))
    for value, has_interval in ((0.999 * half, False), (1.001 * half, True)):
        assert (Mean(value, 1.0, 100, 100.0, long_run).interval(0.95) is not None) is has_interval
