"""Percentiles, their intervals and the sample-size guard, against their definitions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from reports.statistics import Distribution, nearest_rank, percentile_interval, required_samples, summarise

_TOO_FEW = dict.fromkeys(("mean", "p50", "p99"), "n too small")
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
        mean=50.5,
        p50=50.0,
        p90=90.0,
        p95=95.0,
        p99=99.0,
        max=100.0,
        n=100,
        failed=0,
        mean_interval=summary.mean_interval,
        p50_interval=summary.p50_interval,
        p99_interval=None,
        reasons={"p99": "n too small"},
    )
    assert summary.mean_interval is not None
    assert summary.p50_interval is not None
    assert (values == before).all()  # the caller's array stays in its order


def test_no_values_have_no_summary() -> None:
    assert summarise(np.array([])) is None


def test_one_value_is_every_percentile_and_supports_none() -> None:
    assert summarise(np.array([3.0])) == Distribution(3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 1, 0, reasons=_TOO_FEW)


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
    assert d == Distribution(mean=45.5, p50=50.0, p90=90.0, p95=None, p99=None, max=None, n=90, failed=10, reasons=_TOO_FEW)


def test_an_interval_that_reaches_into_the_failures_does_not_exist() -> None:
    for failed, reason in ((0, None), (5, "failed")):
        series = np.arange(1000.0)
        series[1000 - failed :] = np.inf
        np.random.default_rng(0).shuffle(series)
        d = summarise(series)
        assert d is not None
        assert (d.p99_interval is not None) == (reason is None)
        assert d.reasons.get("p99") == reason
        assert d.mean_interval is not None


def test_required_samples_golden() -> None:
    assert required_samples(0.99) == 662
    assert required_samples(0.999) == 6636


@settings(deadline=None, max_examples=40)
@given(st.floats(min_value=0.5, max_value=0.999), st.floats(min_value=0.8, max_value=0.999))
def test_required_samples_is_the_least_n_that_satisfies_its_rule(q: float, confidence: float) -> None:
    def at_most_one_above(n: int) -> float:
        return q**n + n * (1 - q) * q ** (n - 1)

    n = required_samples(q, confidence)
    assert at_most_one_above(n) <= (1 - confidence) * (1 + 1e-9)
    assert n == 1 or at_most_one_above(n - 1) > (1 - confidence) * (1 - 1e-9)


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_an_interval_holds_the_true_percentile_as_often_as_it_says(q: float) -> None:
    trials, n = 2_000, 500
    truth = -math.log(1 - q)
    samples = np.sort(np.random.default_rng(20_240_601).exponential(1.0, (trials, n)), axis=1)
    low, high = np.array([percentile_interval(sample, q) for sample in samples]).T
    covered = ((low <= truth) & (truth <= high)).mean()
    assert covered >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)
    assert covered <= 0.99  # and not by being far too wide


@settings(deadline=None, max_examples=60)
@given(st.integers(min_value=1, max_value=3_000), st.sampled_from([0.5, 0.9, 0.95, 0.99]), st.sampled_from([0.8, 0.95, 0.99]))
def test_an_interval_s_exact_coverage_is_at_least_its_confidence(n: int, q: float, confidence: float) -> None:
    interval = percentile_interval(np.arange(1.0, n + 1), q, confidence)
    if interval is None:
        # no two order statistics do: even the extremes miss, or leave out too much on one side
        assert min(1 - q**n, 1 - (1 - q) ** n) < 1 - (1 - confidence) / 2 + 1e-9
        return
    low, high = (int(rank) for rank in interval)
    assert 1 <= low < high <= n
    assert binom.cdf(high - 1, n, q) - binom.cdf(low - 1, n, q) >= confidence - 1e-9
    assert low <= nearest_rank(np.arange(1.0, n + 1), q) <= high


@pytest.mark.parametrize(
    ("q", "n", "supported"),
    [
        (0.99, 0, False),
        (0.99, 1, False),
        (0.99, 367, False),  # 1 − 0.99^367 is 0.97499
        (0.99, 368, True),  # 1 − 0.99^368 is 0.97524: the largest value is an upper bound at 97.5 %
        (0.5, 5, False),
        (0.5, 6, True),
    ],
)
def test_too_few_values_have_no_interval(q: float, n: int, supported: bool) -> None:
    assert (percentile_interval(np.arange(1.0, n + 1), q) is not None) is supported


def test_the_interval_of_the_median_golden() -> None:
    # Binomial(20, 1/2): P(X ≤ 5) = 0.0207, P(X ≤ 14) = 0.9793, so ranks 6 and 15
    assert percentile_interval(np.arange(1.0, 21.0), 0.5) == (6.0, 15.0)
