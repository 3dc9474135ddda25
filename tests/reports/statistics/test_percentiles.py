"""Percentiles, their intervals and the sample-size guard, against their definitions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binomtest

from reports.statistics.autocorrelation import mean_of, share_of, student_to_normal
from reports.statistics.estimate import Cause, Correlated, Estimate, TooFew
from reports.statistics.percentiles import (
    Distribution,
    fewest_for_limits,
    nearest_rank,
    percentile_key,
    percentile_limits,
    percentile_of,
    required_samples,
    share_limits,
    summarise,
    without_upper_limits,
)

_VALUES = st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=300)


@given(_VALUES, st.integers(min_value=1, max_value=10_000))
def test_nearest_rank_is_its_definition(values: list[float], ten_thousandths: int) -> None:
    """The least value with at least a share q of all values at or below it, q an exact fraction."""
    q = Fraction(ten_thousandths, 10_000)
    definition = min(x for x in values if Fraction(sum(y <= x for y in values), len(values)) >= q)
    assert nearest_rank(np.sort(values), float(q)) == definition


@given(st.integers(min_value=1, max_value=20_000), st.integers(min_value=1, max_value=9_999))
def test_the_rank_is_the_exact_ceiling(n: int, ten_thousandths: int) -> None:
    rank = math.ceil(Fraction(ten_thousandths * n, 10_000))
    assert nearest_rank(np.arange(1.0, n + 1), ten_thousandths / 10_000) == rank


@pytest.mark.parametrize(
    ("q", "n", "rank"),
    [
        (0.99, 100, 99),
        (0.99, 101, 100),
        (0.99, 99, 99),
        (0.50, 2, 1),
        (0.50, 3, 2),
        (0.90, 10, 9),
        (0.07, 100, 7),  # 0.07·100 is 7.000000000000001
        (0.29, 100, 29),  # 0.29·100 is 28.999999999999996
        (0.99, 1, 1),
        (0.999, 1000, 999),
    ],
)
def test_nearest_rank_golden(q: float, n: int, rank: int) -> None:
    assert nearest_rank(np.arange(1.0, n + 1), q) == rank


def test_summary_golden() -> None:
    values = np.arange(1.0, 101.0)
    np.random.default_rng(0).shuffle(values)
    before = values.copy()
    summary = summarise(values)
    assert summary is not None
    assert summary == Distribution(
        mean=Estimate(50.5, summary.mean.interval),
        percentiles={
            0.50: Estimate(50.0, summary.percentile(0.50).interval),
            0.90: Estimate(90.0),
            0.95: Estimate(95.0),
            0.99: Estimate(99.0, None, TooFew(100, 368), summary.percentile(0.99).at_least),
            0.999: Estimate(None),
        },
        max=100.0,
        n=100,
        failed=0,
    )
    assert summary.mean.interval is not None
    assert summary.percentile(0.50).interval is not None
    assert (values == before).all()  # the caller's array stays in its order


def test_no_values_have_no_summary() -> None:
    assert summarise(np.array([])) is None


def test_one_value_is_every_percentile_and_supports_none() -> None:
    percentiles = {
        0.50: Estimate(3.0, reason=TooFew(1, 100)),
        0.90: Estimate(3.0),
        0.95: Estimate(3.0),
        0.99: Estimate(3.0, reason=TooFew(1, 100)),
        0.999: Estimate(None),
    }
    assert summarise(np.array([3.0])) == Distribution(Estimate(3.0, reason=TooFew(1, 100)), percentiles, 3.0, 1, 0)


def test_a_percentile_is_looked_up_by_its_quantile_and_no_other() -> None:
    d = summarise(np.arange(1.0, 101.0))
    assert d is not None
    assert [percentile_key(q) for q in d.percentiles] == ["p50", "p90", "p95", "p99", "p99_9"]
    assert [d.percentile(q).value for q in (0.5, 0.9, 0.95, 0.99)] == [d.p50, d.p90, d.p95, d.p99]
    with pytest.raises(KeyError, match=r"0\.75"):
        d.percentile(0.75)


@given(_VALUES)
def test_percentiles_are_ordered_and_are_values_that_occurred(values: list[float]) -> None:
    d = summarise(np.array(values))
    assert d is not None
    percentiles = [value for value in (d.p50, d.p90, d.p95, d.p99) if value is not None]
    assert [min(values), *percentiles, max(values)] == sorted([min(values), *percentiles, max(values)])
    assert len(percentiles) == 4
    assert set(percentiles) <= set(values)
    assert d.max == max(values)


def test_failures_count_as_slower_than_every_value() -> None:
    d = summarise(np.concatenate([np.arange(1.0, 91.0), np.full(10, np.inf)]))
    percentiles = {
        0.50: Estimate(50.0, reason=TooFew(90, 100)),
        0.90: Estimate(90.0),
        0.95: Estimate(None),
        0.99: Estimate(None, reason=TooFew(90, 100)),
        0.999: Estimate(None),
    }
    assert d == Distribution(Estimate(45.5, reason=TooFew(90, 100)), percentiles, max=None, n=90, failed=10)
    assert d.curve is not None
    assert (d.curve.n, d.curve.values.tolist()) == (100, np.arange(1.0, 91.0).tolist())


def test_a_mean_of_few_large_values_has_a_reason_in_place_of_an_upper_limit() -> None:
    """Two of a thousand values: the error of their mean is 1 / √2 of it, and twice the error is more than the mean."""
    series = np.full(1_000, 0.01)
    series[[90, 700]] = 5_000.0
    d = summarise(series)
    assert d is not None
    assert d.mean == Estimate(pytest.approx(10.00998), None, Cause.UNEVEN)  # type: ignore[arg-type]


def test_an_interval_that_reaches_into_the_failures_does_not_exist() -> None:
    for failed, reason in ((0, None), (5, Cause.AMONG_FAILURES)):
        series = np.arange(1000.0)
        series[1000 - failed :] = np.inf
        np.random.default_rng(0).shuffle(series)
        d = summarise(series)
        assert d is not None
        p99 = d.percentile(0.99)
        assert (p99.interval is not None) == (reason is None)
        assert p99.reason == reason
        assert d.mean.interval is not None
        if failed:
            assert p99.at_least is not None
            assert 960 < p99.at_least < 990
        else:
            assert all(percentile.at_least is None for percentile in d.percentiles.values())


def test_required_samples_golden() -> None:
    assert required_samples(0.99) == 662
    assert required_samples(0.999) == 6636


@settings(max_examples=40)
@given(st.floats(min_value=0.5, max_value=0.999), st.floats(min_value=0.8, max_value=0.999))
def test_required_samples_is_the_least_n_that_satisfies_its_rule(q: float, confidence: float) -> None:
    def at_most_one_above(n: int) -> float:
        return q**n + n * (1 - q) * q ** (n - 1)

    n = required_samples(q, confidence)
    assert at_most_one_above(n) <= (1 - confidence) * (1 + 1e-9)
    assert n == 1 or at_most_one_above(n - 1) > (1 - confidence) * (1 - 1e-9)


def _ranks(n: int, q: float, effect: float = 1.0, confidence: float = 0.95) -> tuple[float, float]:
    """Limits as ranks: values so far from 0 that none is another's multiple."""
    low, high = percentile_limits(1e9 + np.arange(1.0, n + 1), q, effect, confidence)
    return low - 1e9, high - 1e9


@pytest.mark.parametrize(
    ("q", "n"), [(0.5, 20), (0.5, 500), (0.9, 500), (0.99, 368), (0.99, 700), (0.99, 5_000), (0.999, 6_636)]
)
def test_limits_hold_the_true_percentile_at_their_confidence(q: float, n: int) -> None:
    trials, truth = 2_000, -math.log(1 - q)
    rng = np.random.default_rng(20_240_601)
    limits = [percentile_limits(1e6 + np.sort(rng.exponential(1.0, n)), q, 1.0) for _ in range(trials)]
    covered = np.mean([low <= 1e6 + truth <= high for low, high in limits])
    assert covered >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)
    assert covered <= 0.98  # and not by being far too wide


@settings(max_examples=60)
@given(
    st.integers(min_value=1, max_value=3_000),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
    st.floats(min_value=0.8, max_value=0.98),
    st.floats(min_value=0.5, max_value=50.0),
)
def test_limits_hold_the_percentile_and_widen_with_confidence_and_correlation(
    n: int, q: float, confidence: float, effect: float
) -> None:
    low, high = _ranks(n, q, effect, confidence)
    assert 1 <= low <= nearest_rank(np.arange(1.0, n + 1), q) <= high <= n
    for wider in (_ranks(n, q, effect, confidence + 0.015), _ranks(n, q, 1.5 * effect, confidence)):
        assert wider[0] <= low + 1e-6
        assert high <= wider[1] + 1e-6


@pytest.mark.parametrize(("q", "fewest"), [(0.5, 6), (0.99, 368), (0.999, 3_688)])
def test_the_fewest_values_of_which_the_largest_is_a_limit(q: float, fewest: int) -> None:
    assert fewest_for_limits(q) == fewest  # 1 − 0.99^367 is 0.97499, 1 − 0.99^368 is 0.97524
    assert 1 - q**fewest >= 0.975 > 1 - q ** (fewest - 1)


@pytest.mark.parametrize(("n", "interval"), [(367, False), (1_500, True)])
def test_p99_has_no_interval_of_too_few_values(n: int, interval: bool) -> None:
    d = summarise(np.random.default_rng(5).permutation(np.arange(1_000.0, 1_000.0 + n)))
    assert d is not None
    assert (d.percentile(0.99).interval is not None) is interval
    assert {q for q, percentile in d.percentiles.items() if percentile.at_least is not None} == (set() if interval else {0.99})


def test_the_limits_of_the_median_golden() -> None:
    # Clopper-Pearson for 10 of 20: 0.27196 and 0.72804, times 20, plus a half; order statistics alone would be 6 and 15
    assert _ranks(20, 0.5) == pytest.approx((5.939, 15.061), abs=1e-3)


def test_limits_of_few_independent_values_are_the_smallest_and_the_largest() -> None:
    """The limits of one of 2 independent values are 0.0126 and 0.9874, times 20, plus a half: 0.75 and 20.25."""
    assert _ranks(20, 0.5, effect=10.0) == (1.0, 20.0)


def test_limits_of_correlated_values_are_those_of_fewer_independent_ones() -> None:
    assert _ranks(4_000, 0.99, effect=4.0) == pytest.approx([4 * rank - 1.5 for rank in _ranks(1_000, 0.99)], abs=1e-2)


def test_a_limit_that_is_a_multiple_of_the_percentile_is_wider_above_and_narrower_below() -> None:
    values = np.sort(np.random.default_rng(3).exponential(1.0, 1_000))
    (low, high), (near_low, near_high) = percentile_limits(values, 0.9, 4.0), percentile_limits(1e6 + values, 0.9, 4.0)
    assert high > near_high - 1e6
    assert low > near_low - 1e6


@pytest.mark.parametrize(
    ("n", "supported"), [(661, (False, False)), (662, (True, False)), (6_635, (True, False)), (6_636, (True, True))]
)
def test_the_guard_of_p99_and_of_p99_9(n: int, supported: tuple[bool, bool]) -> None:
    d = summarise(np.random.default_rng(1).exponential(1.0, n))
    assert d is not None
    assert (d.supports(0.99), d.supports(0.999)) == supported
    assert (d.percentile(0.999).value is not None) == supported[1]
    assert (d.percentile(0.999).interval is not None) == supported[1]
    assert d.p99 is not None


def test_p99_9_golden() -> None:
    values = np.random.default_rng(0).permutation(np.arange(1.0, 10_001.0))
    d = summarise(values)
    assert d is not None
    p99_9 = d.percentile(0.999)
    assert (d.p99, p99_9.value, d.max) == (9_900.0, 9_990.0, 10_000.0)
    assert p99_9.interval is not None
    assert p99_9.interval[0] < 9_990.0 < p99_9.interval[1]
    assert p99_9.interval_text == f"{p99_9.interval[0]:,.2f} – {p99_9.interval[1]:,.2f}"


def test_failures_are_no_samples_of_p99_9_and_take_it_away() -> None:
    series = np.random.default_rng(0).exponential(1.0, 7_000)
    series[::300] = np.inf
    d = summarise(series)
    assert d is not None
    assert d.supports(0.999)
    p99_9 = d.percentile(0.999)
    assert (p99_9.value, p99_9.interval, p99_9.reason) == (None, None, Cause.AMONG_FAILURES)
    assert not summarise(series[:6_640]).supports(0.999)  # type: ignore[union-attr]


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize(("chosen", "n"), [(0, 20), (1, 20), (7, 20), (19, 20), (20, 20), (500, 501)])
def test_the_limits_of_a_share_are_the_exact_ones_of_a_binomial_count(chosen: int, n: int, confidence: float) -> None:
    exact = binomtest(chosen, n).proportion_ci(confidence, method="exact")
    assert share_limits(chosen / n, n, confidence) == pytest.approx((exact.low, exact.high), rel=1e-9)


def test_the_limits_of_a_share_of_few_independent_values_are_of_parts_of_values() -> None:
    """19 of 20 that are worth 10: 9.5 and a half."""
    expected = float(beta.ppf(0.025, 9.5, 1.5)), float(beta.ppf(0.975, 10.5, 0.5))
    assert share_limits(0.95, 10.0) == pytest.approx(expected, rel=1e-9)


def test_the_limits_of_a_share_hold_at_95_percent_unless_it_is_said() -> None:
    assert share_limits(0.35, 20.0) == share_limits(0.35, 20.0, 0.95)


def _autoregressive(n: int, correlation: float, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    noise = np.random.default_rng(seed).normal(size=n)
    for k in range(1, n):
        noise[k] += correlation * noise[k - 1]
    return noise


_ALIKE = 50.0 + _autoregressive(3_000, 0.8, 1)
_SERIES = {
    "independent": np.random.default_rng(2).exponential(1.0, 3_000),
    "neighbours alike": _ALIKE,
    "with ties": np.round(_ALIKE),
    "less varied than by chance": 50.0 + np.arange(3_000) * 0.618034 % 1.0,
}


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("name", _SERIES)
def test_the_interval_of_the_median_goes_by_how_values_below_it_cluster(name: str, confidence: float) -> None:
    """The effect is that of the share at or below the median, at least 1/2, with Student's t for the normal distribution."""
    series = _SERIES[name]
    ordered = np.sort(series)
    share = share_of(series <= ordered[1_499])
    effect = max(0.5, share.allowed_effect) * student_to_normal(confidence, share.degrees) ** 2
    d = summarise(series, confidence)
    assert d is not None
    assert d.percentile(0.5).interval == percentile_limits(ordered, 0.5, effect, confidence)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("name", ["independent", "neighbours alike", "with ties"])
def test_the_limits_of_a_high_percentile_go_by_the_clusters_of_the_mean_too(name: str, confidence: float) -> None:
    """The effect of the mean raises that of the share at or below p99, by at most a quarter."""
    series = _SERIES[name]
    ordered = np.sort(series)
    share, mean = share_of(series <= ordered[2_969]), mean_of(series).long_run
    own = share.allowed_effect
    raised = own if mean.allowed_effect < own else min(mean.allowed_effect, 1.25 * own)
    effect = max(0.5, raised) * student_to_normal(confidence, share.degrees) ** 2
    low, high = percentile_limits(ordered, 0.99, effect, confidence)
    d = summarise(series, confidence)
    assert d is not None
    p99 = d.percentile(0.99)
    assert (p99.interval or (p99.at_least, high)) == (low, high)


@pytest.mark.parametrize(
    ("n", "confidence", "interval"), [(367, 0.95, False), (368, 0.95, True), (229, 0.8, False), (230, 0.8, True)]
)
def test_p99_has_an_interval_from_the_fewest_values_on_that_its_confidence_allows(
    n: int, confidence: float, interval: bool
) -> None:
    d = summarise(50.0 + np.arange(n) * 0.618034 % 1.0, confidence)  # spread more evenly than by chance
    assert d is not None
    assert (d.percentile(0.99).interval is not None) is interval


def _in_spells() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Large values in spells, in each of which every third value is large: neighbours are not alike."""
    values = np.random.default_rng(6).normal(50.0, 1.0, 700)
    for start in (200, 500):
        values[start : start + 12 : 3] += 6.0
    return values


@pytest.mark.parametrize("fewer_clusters", [False, True])
def test_a_percentile_without_an_upper_limit_says_how_many_clusters_there_are(fewer_clusters: bool) -> None:
    """Geometric clusters of design effect e have (1 + e) / 2 values on average; e is that of p99, raised by the mean's. There
    may be fewer or more of them than independent values by the correlation of neighbours.
    """
    series = _in_spells() if fewer_clusters else 50.0 + _autoregressive(1_000, 0.85, 1)
    mean, share = mean_of(series), share_of(series <= nearest_rank(np.sort(series), 0.99))
    effect = max(share.effect, min(mean.long_run.effect, 1.25 * share.effect))
    clusters = series.size / ((1.0 + max(1.0, effect)) / 2.0)
    assert (clusters < mean.independent) == fewer_clusters
    d = summarise(series)
    assert d is not None
    assert d.percentile(0.99).reason == Correlated(math.floor(min(mean.independent, clusters)), 368)


def _in_blocks(n: int, block: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Noise about levels that last for ``block`` values each, which raise the effect of the mean more than that of a tail."""
    rng = np.random.default_rng(seed)
    levels = 50.0 + 1.5 * np.repeat(rng.normal(size=n // block + 1), block)[:n]
    return np.asarray(levels + rng.normal(size=n))


@pytest.mark.parametrize(("q", "series"), [(0.9, _in_blocks(400, 25, 20)), (0.99, _in_blocks(2_000, 20, 3))])
def test_the_clusters_of_a_tail_are_those_that_the_mean_shows_too(
    q: float, series: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> None:
    own, mean = share_of(series <= nearest_rank(np.sort(series), q)).effect, mean_of(series).long_run.effect
    assert own < mean < 1.5 * own
    clusters = series.size / ((1.0 + min(mean, 1.25 * own)) / 2.0)
    assert percentile_of(series, q).reason == Correlated(math.floor(clusters), fewest_for_limits(q))


_SQUARES = np.sort(np.random.default_rng(4).exponential(1.0, 1_000) ** 2)


def _lower(ordered: np.ndarray[tuple[int, ...], np.dtype[np.float64]], q: float, effect: float) -> float:
    return _at(ordered, float(beta.ppf(0.025, 1_000 / effect * q, 1_000 / effect * (1 - q) + 1)))


def _upper(ordered: np.ndarray[tuple[int, ...], np.dtype[np.float64]], q: float, effect: float) -> float:
    return _at(ordered, float(beta.ppf(0.975, 1_000 / effect * q + 1, 1_000 / effect * (1 - q))))


def _at(ordered: np.ndarray[tuple[int, ...], np.dtype[np.float64]], share: float) -> float:
    return float(np.interp(min(max(1_000 * share + 0.5, 1.0), 1_000.0), np.arange(1, 1_001), ordered))


@pytest.mark.parametrize("alike", [0, 600])
@pytest.mark.parametrize(("q", "effect"), [(0.5, 1.0), (0.5, 60.0), (0.9, 0.6), (0.9, 4.0), (0.99, 2.0)])
def test_each_limit_has_the_effect_that_belongs_to_its_level(q: float, effect: float, alike: int) -> None:
    """Two rounds, in which the effect grows with the square of limit over percentile, to 4 times at most and 1/2 at least.

    Where the smallest values are alike, the lower limit may be the percentile itself.
    """
    ordered = np.maximum(_SQUARES, _SQUARES[alike])
    estimate = nearest_rank(ordered, q)
    low, high = _lower(ordered, q, effect), _upper(ordered, q, effect)
    for _ in range(2):
        low = min(_lower(ordered, q, max(0.5, effect * (low / estimate) ** 2)), estimate)
        high = max(_upper(ordered, q, effect * min((high / estimate) ** 2, 4.0)), estimate)
    assert percentile_limits(ordered, q, effect) == pytest.approx((low, high), rel=1e-9)


@pytest.mark.parametrize("zeros", [450, 600])
def test_where_a_lower_limit_is_0_both_have_the_same_effect(zeros: int) -> None:
    """A limit of 0 has no level. The percentile may be 0, too, as of waits that most requests do not have."""
    ordered = np.where(np.arange(1_000) < zeros, 0.0, _SQUARES)
    assert percentile_limits(ordered, 0.5, 60.0) == pytest.approx((0.0, _upper(ordered, 0.5, 60.0)), rel=1e-9)


def test_where_an_upper_limit_reaches_the_failures_the_lower_one_has_the_effect_of_the_percentile() -> None:
    ordered = np.where(np.arange(1_000) < 992, _SQUARES, np.inf)
    assert percentile_limits(ordered, 0.99, 2.0) == (pytest.approx(_lower(_SQUARES, 0.99, 2.0), rel=1e-9), math.inf)


# ---- values of which a bound alone is known


@given(
    st.lists(st.tuples(st.floats(0.125, 1e5, width=32), st.floats(0.125, 1e5, width=32)), min_size=1, max_size=300),
    st.integers(0, 20),
)
def test_nothing_that_is_said_of_cut_off_values_contradicts_the_true_ones(
    pairs: list[tuple[float, float]], failures: int
) -> None:
    """Each value is cut off where its time to the cut is the shorter one."""
    true, cut = np.array(pairs).T
    failed = np.full(failures, np.inf)
    seen = np.concatenate([np.minimum(true, cut), failed])
    is_bound = np.concatenate([cut < true, np.zeros(failures, dtype=bool)])
    found, whole = summarise(seen, is_bound=is_bound), summarise(np.concatenate([true, failed]))
    assert found is not None
    assert whole is not None
    assert (found.n, found.censored, found.failed) == (true.size - is_bound.sum(), is_bound.sum(), failures)
    assert whole.mean.value is not None
    _agrees(found.mean.value, found.mean.lower_bound, whole.mean.value)
    _agrees(found.max, found.max_lower_bound, whole.max)
    for percentile, other in zip(found.percentiles.values(), whole.percentiles.values(), strict=True):
        _agrees(percentile.value, percentile.lower_bound, other.value)
    lowest = cut[cut < true].min(initial=np.inf)
    for percentile, other in zip(found.percentiles.values(), whole.percentiles.values(), strict=True):
        if other.value is not None and other.value < lowest:
            assert percentile.value == other.value


def _agrees(value: float | None, bound: float | None, true: float | None) -> None:
    """A value is the true one, and a bound at most that; a failure is neither."""
    if bound is not None:
        assert value is None
        assert true is None or bound <= true * (1 + 1e-9)
    elif true is None:
        assert value is None
    else:
        assert value == pytest.approx(true, rel=1e-9)


def _cut_off(share: float, cut: float, n: int = 2_000) -> tuple[Distribution, Distribution]:
    """``n`` values of a lognormal law around 100, of which a share is cut off: as bounds, and with the same as failures."""
    rng = np.random.default_rng(5)
    values, is_bound = 100.0 * rng.lognormal(0.0, 0.1, n), rng.random(n) < share
    seen = np.where(is_bound, cut, values)
    found, failed = summarise(seen, is_bound=is_bound), summarise(np.where(is_bound, np.inf, values))
    assert found is not None
    assert failed is not None
    return found, failed


def test_below_the_lowest_cut_percentiles_and_their_intervals_are_exact_and_above_it_bounds() -> None:
    found, failed = _cut_off(0.03, 1_000.0)
    for q in (0.50, 0.90, 0.95):
        assert found.percentile(q).value == failed.percentile(q).value is not None
    assert found.percentile(0.50).interval == pytest.approx(failed.percentile(0.50).interval, rel=1e-3)
    p99 = found.percentile(0.99)
    assert (p99.value, p99.lower_bound, p99.interval, p99.at_least, p99.reason) == (None, 1_000.0, None, 1_000.0, Cause.CUT_OFF)
    assert p99.interval_text == "≥ 1,000.00; requests cut off"
    assert failed.mean.value is not None
    assert found.mean.lower_bound == pytest.approx((failed.n * failed.mean.value + found.censored * 1_000.0) / 2_000)
    assert (found.mean.value, found.mean.interval, found.mean.reason) == (None, None, Cause.CUT_OFF)
    assert found.mean.at_least is not None
    assert found.mean.at_least < found.mean.lower_bound
    assert set(found.bounds) == {"mean", "p99", "max"}  # of p99.9 there are too few values
    assert found.supports(0.99)


def test_a_request_that_was_cut_off_counts_as_a_value_for_a_claim() -> None:
    """p99 needs 662 values: 640 and 30 of which a lower bound is known."""
    series, is_bound = np.random.default_rng(4).exponential(10.0, 670), np.arange(670) < 30
    cut = summarise(series, is_bound=is_bound)
    assert cut is not None
    assert (cut.n, cut.censored, cut.supports(0.99)) == (640, 30, True)
    few = summarise(series[:661], is_bound=is_bound[:661])
    assert few is not None
    assert not few.supports(0.99)


def test_an_exact_percentile_whose_upper_limit_is_among_the_cuts_has_a_lower_one() -> None:
    p99 = _cut_off(0.008, 1_000.0)[0].percentile(0.99)
    assert p99.value is not None
    assert (p99.interval, p99.reason) == (None, Cause.CUT_OFF)
    assert p99.at_least is not None
    assert p99.at_least < p99.value < 200.0


def test_cuts_in_the_middle_leave_the_median_between_two_limits_and_its_bound_is_the_lower_one() -> None:
    found, failed = _cut_off(0.2, 50.0)
    p50 = found.percentile(0.50)
    assert failed.p50 is not None
    assert p50.lower_bound is not None
    assert (p50.value, p50.interval, p50.reason) == (None, None, Cause.CUT_OFF)
    assert p50.at_least is not None
    assert p50.at_least < p50.lower_bound < 100.0 < failed.p50


def test_too_few_cut_off_values_say_so() -> None:
    found = summarise(np.array([1.0, 2.0, 3.0]), is_bound=np.array([False, True, False]))
    assert found is not None
    assert (found.mean, found.n, found.censored) == (Estimate(None, None, TooFew(3, 100), None, 2.0), 2, 1)
    assert found.percentile(0.50) == Estimate(None, None, TooFew(3, 100), None, 2.0)
    assert found.curve is not None
    assert found.curve.values.tolist() == [1.0]


def test_bounds_alone_are_a_distribution_without_a_curve_and_without_any_bound_all_is_as_before() -> None:
    found = summarise(np.array([4.0, 2.0]), is_bound=np.array([True, True]))
    assert found is not None
    assert (found.n, found.censored, found.bounds["p50"], found.max_lower_bound, found.curve) == (0, 2, 2.0, 4.0, None)
    series = np.random.default_rng(1).lognormal(0.0, 1.0, 800)
    assert summarise(series, is_bound=np.zeros(800, dtype=bool)) == summarise(series)


def test_the_limits_among_values_that_were_cut_off_have_the_confidence_that_is_asked_for() -> None:
    """The upper limit of the median is that where those that were cut off, the 20 values above it, take endlessly long."""
    series = _SERIES["independent"]
    ordered = np.sort(series)
    is_bound = (series > ordered[1_499]) & (series <= ordered[1_519])
    at_most = np.sort(np.where(is_bound, np.inf, series))
    for confidence in (0.8, 0.95):
        share = share_of(series <= ordered[1_499])
        effect = max(0.5, share.allowed_effect) * student_to_normal(confidence, share.degrees) ** 2
        low, high = (percentile_limits(values, 0.5, effect, confidence) for values in (ordered, at_most))
        found = summarise(series, confidence, is_bound=is_bound)
        assert found is not None
        p50 = found.percentile(0.5)
        assert p50.value == ordered[1_499]
        assert p50.interval == (low[0], high[1])
        assert low[1] != high[1]


def test_a_limit_among_failures_is_none_among_cuts() -> None:
    """2 % failed, and one of 2,000 was cut off late."""
    series = np.random.default_rng(4).exponential(10.0, 2_000)
    series[::50] = np.inf
    is_bound = np.arange(2_000) == int(np.argmax(np.where(np.isfinite(series), series, 0.0)))
    found = summarise(series, is_bound=is_bound)
    assert found is not None
    assert (found.percentile(0.99).value, found.percentile(0.99).reason) == (None, Cause.AMONG_FAILURES)


# ---- one percentile, and tails without an upper limit


@pytest.mark.parametrize("q", [0.5, 0.99])
@pytest.mark.parametrize("failures", [0, 3])
def test_one_percentile_is_that_of_the_summary(q: float, failures: int) -> None:
    series = _SERIES["neighbours alike"].copy()
    series[100 : 100 + failures] = np.inf
    for confidence in (0.8, 0.95):
        for reason in (None, Cause.CLUSTERED_ARRIVALS):
            found = summarise(series, confidence, reason)
            assert found is not None
            assert percentile_of(series, q, reason, confidence) == found.percentile(q)


def test_a_quantile_at_which_the_tail_begins_has_the_effect_of_a_tail() -> None:
    series = _SERIES["neighbours alike"]
    ordered = np.sort(series)
    for q in (0.89, 0.9):
        share, mean = share_of(series <= nearest_rank(ordered, q)), mean_of(series).long_run
        own = share.allowed_effect
        assert mean.allowed_effect > 1.25 * own
        effect = (own if q < 0.9 else 1.25 * own) * student_to_normal(0.95, share.degrees) ** 2
        assert percentile_of(series, q).interval == percentile_limits(ordered, q, effect, 0.95)


def test_a_percentile_among_failures_alone_is_unknown_and_a_drift_leaves_none_an_interval() -> None:
    assert percentile_of(np.full(200, np.inf), 0.5) == Estimate(None)
    drifting = np.linspace(1.0, 2.0, 1_000)
    drifting[::100] = np.inf
    assert percentile_of(drifting, 0.5) == Estimate(nearest_rank(np.sort(drifting), 0.5), reason=Cause.DRIFTS)


def test_a_tail_without_an_upper_limit_keeps_its_lower_one() -> None:
    """From p90 on, where the quantile has a reason."""
    interval = (1.0, 3.0)
    known = Estimate(2.0, interval)
    qs = (0.5, 0.9, 0.95, 0.99)
    found = Distribution(known, {**dict.fromkeys(qs, known), 0.999: Estimate(2.0, reason=Cause.DRIFTS)}, 9.0, 700, 0)
    less = without_upper_limits(found, lambda q: None if q == 0.95 else Cause.FEW_QUEUES)
    assert less is not None
    cut = Estimate(2.0, None, Cause.FEW_QUEUES, 1.0)
    assert less.percentiles == {0.5: known, 0.9: cut, 0.95: known, 0.99: cut, 0.999: Estimate(2.0, reason=Cause.DRIFTS)}
    assert (less.mean, less.max, less.n) == (known, 9.0, 700)
    assert without_upper_limits(None, lambda _: Cause.FEW_QUEUES) is None
