"""A distribution in few points: each is an order statistic, and the tail is whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.statistics.percentiles import nearest_rank, summarise
from reports.statistics.quantile_curve import NAMED_PERCENTILES, curve_of, nearest_rank_of, value_at_rank

COUNTS = st.integers(1, 1_200) | st.integers(1_000, 200_000)


@given(COUNTS, st.integers(0, 500))
def test_every_point_is_the_value_of_its_rank(count: int, failed: int) -> None:
    ordered = np.arange(1, count + 1, dtype=np.float64) ** 1.5
    curve = curve_of(ordered, count + failed)
    assert (curve.values == ordered[curve.ranks - 1]).all()
    assert (np.diff(curve.ranks) > 0).all()
    assert curve.ranks.size <= 1_000
    assert curve.ranks[0] == 1
    assert curve.ranks[-1] == count
    assert curve.shares[-1] == count / (count + failed)


@given(COUNTS)
def test_the_largest_values_are_all_there(count: int) -> None:
    ordered = np.sort(np.random.default_rng(count).exponential(size=count))
    tail = ordered[-300:]
    assert (curve_of(ordered, count).values[-tail.size :] == tail).all()


@given(COUNTS, st.integers(0, 50))
def test_the_percentiles_of_the_tables_are_on_the_curve(count: int, failed: int) -> None:
    series = np.concatenate([np.random.default_rng(count).exponential(size=count), np.full(failed, np.inf)])
    ordered = np.sort(series)
    curve = curve_of(ordered[:count], ordered.size)
    for q in NAMED_PERCENTILES:
        rank = nearest_rank_of(q, ordered.size)
        if rank <= count:
            assert curve.values[curve.ranks == rank] == [nearest_rank(ordered, q)]


def test_few_values_are_all_shown() -> None:
    curve = curve_of(np.arange(1_000.0), 1_000)
    assert curve.ranks.size == 1_000
    assert not curve.thinned
    assert curve_of(np.arange(1_001.0), 1_001).thinned


def test_a_summary_carries_its_curve_without_the_failures() -> None:
    summary = summarise(np.array([3.0, np.inf, 1.0, 2.0]))
    assert summary is not None
    assert summary.curve is not None
    assert summary.curve.values.tolist() == [1.0, 2.0, 3.0]
    assert summary.curve.shares.tolist() == [0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    ("q", "n", "rank"),
    [
        (0.07, 100, 7),
        (0.07, 103, 8),  # 7.21
        (0.07, 4_369_100, 305_837),  # 0.07·n is 6e-11 more: the binary error grows with n
        (0.5, 1, 1),
        (0.5, 5, 3),
        (0.99, 100, 99),
        (0.99, 101, 100),
        (0.0, 5, 1),
    ],
)
def test_nearest_ranks(q: float, n: int, rank: int) -> None:
    assert nearest_rank_of(q, n) == rank


@pytest.mark.parametrize(
    ("ordered", "rank", "value"),
    [
        ([1.0, 2.0, 4.0], 1.0, 1.0),
        ([1.0, 2.0, 4.0], 1.75, 1.75),
        ([1.0, 2.0, 4.0], 2.25, 2.5),
        ([1.0, 2.0, 4.0], 3.0, 4.0),  # there is no value above the last
        ([1.0, np.inf], 1.0, 1.0),
        ([1.0, np.inf], 1.5, np.inf),
        ([1.0, np.inf, np.inf], 2.5, np.inf),  # not inf − inf
    ],
)
def test_a_value_between_two_ranks_lies_between_their_values_in_proportion(
    ordered: list[float], rank: float, value: float
) -> None:
    assert value_at_rank(np.array(ordered), rank) == value


def test_a_long_curve_has_the_ranks_of_its_three_rules_and_no_others() -> None:
    """Among 21,000 requests of which 1,000 failed: 400 evenly, 200 whose distance from the end grows by one factor from 300 to
    all, the last 300, and the named percentiles that are no failures.
    """
    count = 20_000
    evenly = [1 + step * (count - 1) / 399 for step in range(400)]
    towards_tail = [count + 1 - 300 * (count / 300) ** (step / 199) for step in range(200)]
    ranks = {round(rank) for rank in [*evenly, *towards_tail]} | set(range(count - 299, count + 1))
    curve = curve_of(np.arange(1.0, count + 1), 21_000)
    assert set(curve.ranks.tolist()) == ranks | {10_500, 18_900, 19_950}  # p50, p90 and p95; p99 is a failure
