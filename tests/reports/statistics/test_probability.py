"""Quantiles and tails against scipy.stats, which reports must not import."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from reports.statistics.probability import (
    at_least,
    beta_quantile,
    binomial_at_most,
    chi_squared_tail,
    f_quantile,
    gamma_quantile,
    gamma_share,
    kolmogorov_smirnov,
    normal_quantile,
    student_quantile,
    student_tail,
    student_tail_of,
    weibull_share,
    weibull_squared_variation,
)

_SAME = 1e-9  # relative; most are the same function, but scipy may change which one it calls
_TINY = 1e-300  # absolute: no report distinguishes a probability below it from 0

_P = st.one_of(
    st.floats(0.0, 1.0),
    st.floats(-300.0, 0.0).map(lambda exponent: 10.0**exponent),
    st.floats(-15.0, 0.0).map(lambda exponent: 1.0 - 10.0**exponent),
)
_DEGREES = st.one_of(st.integers(1, 1_000_000), st.floats(0.3, 1e15), st.just(math.inf))
_SHAPE = st.floats(-4.0, 8.0).map(lambda exponent: 10.0**exponent)


@given(_P)
@example(0.0)
@example(1.0)
def test_normal_quantile(p: float) -> None:
    assert normal_quantile(p) == pytest.approx(stats.norm.ppf(p), rel=_SAME, abs=1e-15)


@given(_P, _DEGREES)
@example(0.0, 3)
@example(1.0, 3)
@example(0.975, 1e300)
@example(0.975, 4)
def test_student_quantile(p: float, degrees: float) -> None:
    assert student_quantile(p, degrees) == pytest.approx(stats.t.ppf(p, degrees), rel=_SAME, abs=1e-15)


@given(st.one_of(st.floats(-1e6, 1e6), st.floats(-20.0, 20.0), st.just(math.inf)), _DEGREES)
@example(0.0, 5)
@example(1e6, 30.5)
def test_student_tail(value: float, degrees: float) -> None:
    assert student_tail(value, degrees) == pytest.approx(stats.t.sf(value, degrees), rel=_SAME, abs=_TINY)


@given(st.floats(0.0, 1e4), st.floats(1.0, 1e4))
def test_chi_squared_tail(value: float, degrees: float) -> None:
    assert chi_squared_tail(value, degrees) == pytest.approx(stats.chi2.sf(value, degrees), rel=_SAME, abs=_TINY)


@given(_P, st.floats(1.0, 1e4), st.floats(1.0, 1e4))
@example(0.99, 2, 6)
@example(0.0, 2, 6)
@example(1.0, 2, 6)
def test_f_quantile(p: float, numerator: float, denominator: float) -> None:
    expected = stats.f.ppf(p, numerator, denominator)  # NaN at some p below 3e-308
    assert f_quantile(p, numerator, denominator) == pytest.approx(expected, rel=_SAME, abs=_TINY, nan_ok=True)


@given(st.one_of(st.floats(1e-12, 1.0), st.floats(-12.0, 0.0).map(lambda exponent: 10.0**exponent)), _SHAPE, _SHAPE)
@example(0.025, 1e-9, 1.0)
@example(0.975, 1e8, 1e-9)
@example(0.025, 0.99e6, 0.01e6 + 1)
@example(0.0, 1.0, 2.0)
@example(1.0, 1.0, 2.0)
def test_beta_quantile(p: float, a: float, b: float) -> None:
    assert beta_quantile(p, a, b) == pytest.approx(stats.beta.ppf(p, a, b), rel=_SAME, abs=_TINY)


@given(st.integers(0, 20), st.integers(1, 10**9), st.floats(-9.0, 0.0).map(lambda exponent: 10.0**exponent))
@example(1, 1, 0.01)
@example(1, 2, 0.01)
@example(5, 3, 0.5)
@example(1, 662, 1.0 - 0.99)
@example(5, 10**7, 1e-6)
@example(5, 11_722_311, 10.0**-4.21875)  # 3e-296, and 0 by scipy.stats
@example(1, 7, 0.0)
@example(1, 7, 1.0)
def test_binomial_at_most(k: int, n: int, p: float) -> None:
    rounding = 1e-15 * n  # scipy.stats takes 1 − p to the power of n after rounding it
    underflow = 1e-280  # where a factor of what scipy.stats computes is no longer a number
    assert binomial_at_most(k, n, p) == pytest.approx(stats.binom.cdf(k, n, p), rel=max(_SAME, rounding), abs=underflow)


@given(st.integers(2, 10**9), st.floats(-9.0, -0.1).map(lambda exponent: 10.0**exponent))
@example(21_960_194, 1e-5)
@example(6_636, 0.001)
def test_binomial_of_at_most_one_in_closed_form(n: int, p: float) -> None:
    expected = math.exp((n - 1) * math.log1p(-p)) * (1.0 - p + n * p)
    assert binomial_at_most(1, n, p) == pytest.approx(expected, rel=_SAME, abs=_TINY)


def test_binomial_of_more_trials_than_32_bits_count_is_poisson() -> None:
    assert binomial_at_most(1, 10**12, 1e-12) == pytest.approx(stats.poisson.cdf(1, 1.0), rel=_SAME)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=9), st.floats(1e-3, 1e6))
@example([0.0, 1e-12, 0.5, 1.0, 2.0], 1.0)
@example([-1.0, math.inf], 2.0)
def test_gamma_share(values: list[float], shape: float) -> None:
    expected = stats.gamma(shape, scale=1.0 / shape).cdf(values)
    assert gamma_share(np.array(values), shape) == pytest.approx(expected, rel=1e-8, abs=_TINY)


@settings(max_examples=200)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=300))
def test_kolmogorov_smirnov_distance(shares: list[float]) -> None:
    distance, _ = kolmogorov_smirnov(np.array(shares))
    assert distance == stats.kstest(shares, "uniform").statistic


def _shares_at(distance: float, n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Shares that are so far from even ones: all too small."""
    return np.maximum(np.arange(1, n + 1) / n - distance, 0.0)


@pytest.mark.parametrize(
    ("n", "tolerated"), [(20, 6e-4), (30, 5e-4), (100, 2e-4), (301, 1e-4), (1_000, 3e-5), (9_999, 3e-6), (20_000, 2e-6)]
)
def test_kolmogorov_smirnov_p_value_is_near_the_exact_one(n: int, tolerated: float) -> None:
    """Tolerances as in the docstring; the exact law is Marsaglia, Tsang and Wang's, and Pelz and Good's, in scipy."""
    distances = np.linspace(0.35, 2.5, 60) / math.sqrt(n)
    expected = stats.kstwo.sf(distances, n)
    found = np.array([kolmogorov_smirnov(_shares_at(distance, n))[1] for distance in distances])
    assert found == pytest.approx(expected, rel=0, abs=tolerated)
    rare = found < 0.05
    assert rare.sum() > 10
    assert found[rare] == pytest.approx(expected[rare], rel=1e-4, abs=2e-6)


@pytest.mark.parametrize(("n", "exact"), [(10_000, True), (10_001, False)])
def test_the_p_value_is_exact_up_to_10_000_values(n: int, exact: bool) -> None:
    """Twice that of one side, at a distance that chance exceeds once in 74 times."""
    distance, p_value = kolmogorov_smirnov(_shares_at(1.58 / math.sqrt(n), n))
    assert p_value == pytest.approx(1 / 74, rel=0.01)
    assert (p_value == pytest.approx(2.0 * stats.ksone.sf(distance, n), rel=1e-11)) == exact


def test_kolmogorov_smirnov_p_value_of_shares_on_one_side_and_in_no_doubt() -> None:
    assert kolmogorov_smirnov(np.zeros(20)) == (1.0, 0.0)
    assert kolmogorov_smirnov(np.zeros(20_000)) == (1.0, 0.0)
    even = (np.arange(1_000) + 0.5) / 1_000
    assert kolmogorov_smirnov(even) == (pytest.approx(0.0005), 1.0)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_what_is_no_probability_has_no_quantile(p: float) -> None:
    found = (normal_quantile(p), student_quantile(p, 3), f_quantile(p, 2, 6), beta_quantile(p, 1, 2))
    assert all(map(math.isnan, found))


@pytest.mark.parametrize("shape", [0.3, 1.0, 2.5])
def test_weibull_shares_and_variation_are_scipy_s(shape: float) -> None:
    law = stats.weibull_min(shape, scale=1.0 / math.gamma(1.0 + 1.0 / shape))
    values = np.array([-1.0, 0.0, 1e-3, 0.5, 1.0, 4.0])
    assert weibull_share(values, shape) == pytest.approx(law.cdf(values))
    assert weibull_squared_variation(shape) == pytest.approx(law.var() / law.mean() ** 2)


def test_at_least_some_of_unequal_trials() -> None:
    assert at_least(0, [0.3, 0.5]) == pytest.approx(1.0)
    assert at_least(1, [0.3, 0.5]) == pytest.approx(0.65)
    assert at_least(2, [0.3, 0.5]) == pytest.approx(0.15)
    assert at_least(3, [0.5] * 3) == pytest.approx(0.125)
    assert gamma_quantile(0.5, 1.0) == pytest.approx(math.log(2.0))


def test_tails_and_shares_of_several_values_by_their_closed_forms() -> None:
    """Student's t with one degree of freedom is Cauchy's law; gamma variables of shape 1 and 2 have sums of exponentials."""
    assert student_tail_of(np.array([-1.0, 0.0, 1.0, math.inf]), 1.0).tolist() == pytest.approx([0.75, 0.5, 0.25, 0.0])
    values = np.array([-1.0, 0.0, 0.5, 3.0])
    exponential = [0.0, 0.0, 1.0 - math.exp(-0.5), 1.0 - math.exp(-3.0)]
    for share in (gamma_share, weibull_share):
        assert share(values, 1.0).tolist() == pytest.approx(exponential)
    assert gamma_share(values, 2.0).tolist() == pytest.approx(
        [0.0, 0.0, 1.0 - 2.0 * math.exp(-1.0), 1.0 - 7.0 * math.exp(-6.0)]
    )
