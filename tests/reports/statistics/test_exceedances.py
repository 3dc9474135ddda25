"""The share of values above a limit: its limits, and how surely it is at most a given share."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import beta, binom, chi2, nbinom, poisson

from reports.statistics.autocorrelation import mean_cluster_size
from reports.statistics.exceedances import (
    MARKOV,
    Exceedances,
    Tail,
    _clusters_hold_at_most,
    _few_above,
    _many_above,
    exceedances,
    interval_of_share_above,
    tail_below,
)

_RARE_SHARES = st.floats(min_value=0.001, max_value=0.1)
_SHARES = st.floats(min_value=0.001, max_value=0.99)
_EFFECTS = st.floats(min_value=1.0, max_value=40.0)


@st.composite
def _seen(draw: st.DrawFn) -> Exceedances:
    n = draw(st.integers(min_value=100, max_value=5_000))
    above = draw(st.integers(min_value=0, max_value=n))
    effect = draw(_EFFECTS)
    return Exceedances(n, above, effect, effect * draw(st.floats(min_value=1.0, max_value=5.0)))


# ---- the distribution of the number above


@given(
    st.integers(min_value=0, max_value=60),
    st.floats(min_value=0.01, max_value=20.0),
    st.floats(min_value=1.0, max_value=12.0),
)
def test_the_number_above_is_that_of_a_poisson_number_of_clusters_with_geometric_sizes(
    most: int, clusters: float, size: float
) -> None:
    """Summed over the number of clusters: k geometric sizes less k are negative binomial."""
    brute = math.exp(-clusters) + sum(
        float(poisson.pmf(k, clusters)) * float(nbinom.cdf(most - k, k, 1.0 / size)) for k in range(1, most + 1)
    )
    assert _clusters_hold_at_most(most, clusters, size) == pytest.approx(brute, abs=1e-6)


@given(st.integers(min_value=1, max_value=200), st.integers(min_value=100, max_value=10_000), _RARE_SHARES)
def test_clusters_of_one_are_poissons(above: int, n: int, share: float) -> None:
    assert _few_above(above, n, share, 1.0) == pytest.approx(float(poisson.cdf(above, n * share)), abs=1e-6)
    assert _many_above(above + 1, n, share, 1.0) == pytest.approx(float(poisson.sf(above, n * share)), abs=1e-6)


@given(st.integers(min_value=0, max_value=400), st.integers(min_value=401, max_value=2_000), st.floats(0.11, 0.99))
def test_a_share_that_is_not_rare_is_binomial(above: int, n: int, share: float) -> None:
    assert _few_above(above, n, share, 1.0) == pytest.approx(float(binom.cdf(above, n, share)), abs=1e-9)
    assert _many_above(above + 1, n, share, 1.0) == pytest.approx(float(binom.sf(above, n, share)), abs=1e-9)


def test_none_above_has_the_probability_of_no_cluster() -> None:
    assert _few_above(0, 299, 0.01, 1.0) == pytest.approx(0.99**299)
    assert _few_above(0, 299, 0.01, 9.0) == pytest.approx(0.99 ** (299 / mean_cluster_size(9.0)))


@pytest.mark.parametrize("above", [9_000, 10_000, 11_000])
def test_of_a_million_values_the_number_is_nearly_normal(above: int) -> None:
    size = mean_cluster_size(5.0)
    deviation = math.sqrt(10_000 * (2.0 * size - 1.0))  # a sum of geometric sizes has n·share·(2 size − 1)
    normal = 0.5 * (1.0 + math.erf((above + 0.5 - 10_000) / deviation / math.sqrt(2.0)))
    assert _few_above(above, 1e6, 0.01, 5.0) == pytest.approx(normal, abs=0.01)


# ---- laws


@given(_seen(), _SHARES, _SHARES)
def test_a_larger_share_makes_few_values_less_likely_and_many_more_likely(
    seen: Exceedances, first: float, other: float
) -> None:
    """On each side of the share from which the number is binomial."""
    less, more = sorted((first, other))
    if (less <= 0.1) is (more <= 0.1):
        assert seen.at_most(more) <= seen.at_most(less) + 1e-9
        assert seen.at_least(more) >= seen.at_least(less) - 1e-9


@given(_seen(), st.sampled_from([0.025, 0.05, 0.25]))
def test_the_limits_contain_the_share_and_lie_within_0_and_1(seen: Exceedances, tail: float) -> None:
    low, high = seen.limits(tail)
    assert 0.0 <= low <= seen.share <= high <= 1.0


@given(_seen())
def test_a_smaller_error_has_wider_limits(seen: Exceedances) -> None:
    (low, high), (lower, higher) = seen.limits(0.05), seen.limits(0.025)
    assert lower <= low + 1e-9
    assert higher >= high - 1e-9


@given(
    st.integers(min_value=100, max_value=5_000),
    st.integers(min_value=0, max_value=5),
    _EFFECTS,
    st.floats(1.0, 5.0),
    _RARE_SHARES,
)
def test_larger_clusters_make_none_above_weaker_evidence(n: int, above: int, effect: float, more: float, share: float) -> None:
    calm, clustered = Exceedances(n, 0, effect, effect), Exceedances(n, 0, effect * more, effect * more)
    assert clustered.at_most(share) >= calm.at_most(share) - 1e-12
    few = Exceedances(n, above, effect, effect)
    assert few.at_most(share) >= calm.at_most(share) - 1e-12


@given(_seen())
def test_the_lower_limit_is_at_least_markovs(seen: Exceedances) -> None:
    assert seen.limits(0.025)[0] >= seen.share / MARKOV


@given(st.integers(min_value=1, max_value=4), st.floats(min_value=0.001, max_value=0.1))
def test_fewer_than_five_clusters_above_are_no_evidence_that_a_rare_share_is_larger(above: int, share: float) -> None:
    assert Exceedances(1_000, above, 1.0, 1.0).at_least(share) == 1.0
    assert Exceedances(1_000, 8 * above, 15.0, 15.0).at_least(share) == 1.0  # clusters of 8


def test_without_a_doubt_about_the_effect_the_limits_would_be_clopper_and_pearsons() -> None:
    """The doubt widens them: of 300 of 1,000, 27.2 to 32.9 %."""
    low, high = Exceedances(1_000, 300, 1.0, 1.0).limits(0.025)
    exact = (float(beta.ppf(0.025, 300, 701)), float(beta.ppf(0.975, 301, 700)))
    assert exact[0] - 0.015 < low < exact[0] + 1e-6
    assert exact[1] - 1e-6 < high < exact[1] + 0.015


def test_all_above_and_none_above_leave_one_limit_open() -> None:
    assert Exceedances(500, 500, 1.0, 1.0).limits(0.025)[1] == 1.0
    assert Exceedances(500, 0, 1.0, 1.0).limits(0.025)[0] == 0.0


# ---- the effect of a run's own values


def test_independent_values_show_no_clusters() -> None:
    values = np.random.default_rng(1).exponential(1.0, 20_000)
    seen = exceedances(values, 50.0, 0.01)
    assert (seen.n, seen.above) == (20_000, 0)
    assert 1.0 <= seen.effect < 2.5
    assert 1.0 <= seen.lower_effect < 2.5


def test_clusters_are_those_of_the_largest_values_where_none_is_above_the_limit() -> None:
    """Levels that last for 50 values each."""
    values = np.repeat(np.random.default_rng(2).exponential(1.0, 400), 50)
    calm = np.random.default_rng(2).permutation(values)
    clustered = exceedances(values, 50.0, 0.01)
    assert clustered.above == exceedances(calm, 50.0, 0.01).above == 0
    assert clustered.effect > 10 * exceedances(calm, 50.0, 0.01).effect
    assert clustered.at_most(0.01) > exceedances(calm, 50.0, 0.01).at_most(0.01)


@pytest.mark.parametrize("allowed", [1e-9, 0.01, 0.5, 0.9, 1.0 - 1e-9])
@pytest.mark.parametrize("n", [1, 99, 100, 1_000])
def test_equal_values_hold_no_clusters(n: int, allowed: float) -> None:
    for limit, above in ((1.0, 0), (0.5, n)):
        seen = exceedances(np.ones(n), limit, allowed)
        assert (seen.above, seen.share) == (above, above / n)
        assert 1.0 <= seen.effect < 1.5


def test_infinite_values_are_above_every_limit() -> None:
    values = np.where(np.arange(1_000) % 100 == 0, np.inf, 1.0)
    seen = exceedances(values, 1e300, 0.01)
    assert (seen.above, seen.share) == (10, 0.01)
    assert math.isfinite(seen.effect)
    assert exceedances(np.full(200, np.inf), 1.0, 0.01).above == 200


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, math.inf]), min_size=100, max_size=300), st.floats(0.005, 0.6))
@settings(max_examples=30)
def test_ties_are_above_a_limit_or_not_and_never_an_error(values: list[float], allowed: float) -> None:
    array = np.array(values)
    for limit in (0.0, 1.0, 2.0, 3.0):
        seen = exceedances(array, limit, allowed)
        assert seen.above == sum(value > limit for value in values)
        assert math.isfinite(seen.effect)
        assert min(seen.effect, seen.lower_effect) >= 1.0


def test_the_clusters_of_fewer_than_a_hundred_values_are_unknown() -> None:
    values = np.repeat([0.0, 1.0], [49, 50])
    assert exceedances(values, 0.5, 0.01) == Exceedances(99, 50, 1.0, 1.0)


def test_a_million_values_are_judged() -> None:
    values = np.random.default_rng(3).random(1_000_000)
    low, high = exceedances(values, 0.99, 0.01).limits(0.025)
    assert 0.009 < low < 0.01 < high < 0.011


def _in_turns(rng: np.random.Generator) -> NDArray[np.float64]:
    """20,000 values of 4 replicas in turns, one of which has 12 spells of 40 values at ten times its level: 2.4 % of all."""
    levels = np.ones((5_000, 4))
    for start in 400 * np.arange(12) + rng.integers(0, 300, 12):
        levels[start : start + 40, 0] = 10.0
    values: NDArray[np.float64] = (levels * rng.lognormal(0.0, 0.4, levels.shape)).ravel()
    return values


def test_clusters_whose_values_are_never_neighbours_are_found() -> None:
    values = _in_turns(np.random.default_rng(8))
    limit = float(np.quantile(values, 0.99))
    assert not ((values > limit)[1:] & (values > limit)[:-1]).any()
    calm = np.random.default_rng(9).permutation(values)
    assert exceedances(values, limit, 0.01).effect > 4.0 * exceedances(calm, limit, 0.01).effect


def test_clusters_above_the_limit_count_where_lower_ones_hide_them() -> None:
    """At the allowed share and below, noise makes up most: of 5,000, 25 come in one spell above the limit."""
    values = np.random.default_rng(10).random(5_000)
    values[2_000:2_025] = 2.0
    shown = exceedances(values, 1.0, 0.01)
    assert (shown.above, shown.share) == (25, 0.005)
    assert shown.effect > 1.3 * exceedances(values, 2.0, 0.01).effect


def test_values_of_one_group_are_a_cluster_wherever_they_are() -> None:
    """40 groups of which one is slow, at random places: 50 of 2,000 are above."""
    rng = np.random.default_rng(11)
    groups = rng.permutation(np.repeat(np.arange(40), 50))
    values = np.where(groups == 7, 5.0, rng.random(2_000))
    alone, grouped = exceedances(values, 2.0, 0.01), exceedances(values, 2.0, 0.01, groups)
    assert (alone.at_least(0.01) < 0.025, grouped.at_least(0.01)) == (True, 1.0)
    assert grouped.effect == pytest.approx(50.0, rel=0.1)
    free = exceedances(values, 2.0, 0.01, np.full(2_000, -1))
    assert free == alone


def test_groups_that_differ_in_nothing_are_no_clusters() -> None:
    values = np.random.default_rng(12).random(2_000)
    seen = exceedances(values, 0.99, 0.01, np.arange(2_000) % 200)
    assert max(seen.effect, seen.lower_effect) < 2.5


# ---- the tail below a limit


def _tail(values: NDArray[np.float64], limit: float, groups: NDArray[np.int64] | None = None) -> Tail:
    tail = tail_below(values, limit, 0.01, groups)
    assert tail is not None
    return tail


def test_the_tail_of_exponential_values_leaves_a_little_more_above_than_is_true() -> None:
    """A fifth of them is above 1.61, by 1 on average; e⁻⁸ of all, 0.034 %, are above 8."""
    leaves = [_tail(np.random.default_rng(seed).exponential(1.0, 2_000), 8.0).above_limit for seed in range(40)]
    assert sum(share >= math.exp(-8.0) for share in leaves) >= 38
    assert max(leaves) < 12.0 * math.exp(-8.0)


def test_a_tail_is_known_by_its_clusters() -> None:
    values = np.repeat(np.random.default_rng(2).exponential(1.0, 200), 40)
    calm = np.random.default_rng(2).permutation(values)
    assert _tail(values, 8.0).above_limit > 3.0 * _tail(calm, 8.0).above_limit
    assert _tail(values, 8.0).excess == pytest.approx(_tail(calm, 8.0).excess)


def test_groups_that_are_alike_leave_fewer_clusters_to_know_a_tail_by() -> None:
    rng = np.random.default_rng(11)
    groups = rng.permutation(np.repeat(np.arange(40), 50))
    values = rng.exponential(1.0, 2_000) + rng.exponential(1.0, 40)[groups]
    assert _tail(values, 12.0, groups).above_limit > 2.0 * _tail(values, 12.0).above_limit
    assert _tail(values, 12.0, np.full(2_000, -1)) == _tail(values, 12.0)


@given(st.floats(min_value=2.0, max_value=20.0), st.floats(min_value=2.0, max_value=20.0))
@settings(max_examples=20)
def test_a_tail_leaves_less_above_a_limit_that_is_farther_away(first: float, other: float) -> None:
    values = np.random.default_rng(1).exponential(1.0, 1_000)
    near, far = sorted((first, other))
    assert _tail(values, far).above_limit <= _tail(values, near).above_limit


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_a_tail_is_the_same_in_another_unit(unit: float) -> None:
    values = np.random.default_rng(1).exponential(1.0, 1_000)
    assert _tail(unit * values, unit * 8.0).above_limit == pytest.approx(_tail(values, 8.0).above_limit)


def test_a_tail_is_unknown_above_its_limit_of_few_values_and_of_infinite_ones() -> None:
    values = np.random.default_rng(1).exponential(1.0, 1_000)
    assert tail_below(values, 1.0, 0.01) is None
    assert tail_below(values[:99], 8.0, 0.01) is None
    assert tail_below(np.append(values, np.inf), 8.0, 0.01) is None


def test_equal_values_have_no_tail_and_one_cluster_is_no_tail_to_know() -> None:
    assert _tail(np.ones(1_000), 2.0).above_limit == 0.0
    assert Tail(1_000, 0.2, 1.0, 50.0, 500.0, 500.0).above_limit == 1.0


def test_a_tail_of_few_clusters_needs_a_limit_that_is_farther_away() -> None:
    """A vLLM on an H100, 4,000 requests with a p99 of 100 ms: the slowest fifth came in 6.6 clusters."""

    def leaves(distance_ms: float, effect: float) -> float:
        return Tail(4_000, 0.2, 18.7, distance_ms, 52.9, effect).above_limit

    assert leaves(448.7, 241.1) < 0.001  # below a limit of 500 ms
    assert leaves(198.7, 241.1) > 0.001
    assert leaves(448.7, 400.0) == 1.0  # in 4 clusters


@pytest.mark.parametrize(
    ("share", "allowed", "distance", "clusters", "factor"),
    [
        (0.2, 1.0, 30.0, 200.0, 1.0),
        (0.2, 3.0, 30.0, 100.0, 1.0),
        (0.01, 1.0, 30.0, 10.0, 1.0),
        (0.009, 1.0, 60.0, 9.0, 100.0),  # fewer than ten may be a hundred times as far off
        (0.005, 1.0, 60.0, 5.0, 100.0),
    ],
)
def test_what_a_tail_leaves_above_a_limit_by_the_upper_limits_of_its_number_and_mean(
    share: float, allowed: float, distance: float, clusters: float, factor: float
) -> None:
    """The number of clusters is Poisson, and the mean of their excesses gamma: Garwood's limits, by chi-squared variables."""
    share_at_most = share * chi2.isf(0.05, 2.0 * clusters + 2.0) / (2.0 * clusters)
    excess_at_most = 2.0 * (2.0 * clusters) / chi2.isf(0.95, 2.0 * clusters)
    found = Tail(1_000, share, 2.0, distance, 1.0, allowed).above_limit
    assert found == pytest.approx(factor * share_at_most * math.exp(-distance / excess_at_most), rel=1e-9)


def test_a_tail_of_fewer_than_five_clusters_or_at_its_limit_leaves_anything_above_and_one_without_excess_nothing() -> None:
    assert Tail(1_000, 0.0049, 2.0, 1e6, 1.0, 1.0).above_limit == 1.0
    assert Tail(1_000, 0.009, 2.0, 0.1, 1.0, 1.0).above_limit == pytest.approx(1.0)
    assert Tail(1_000, 0.2, 0.0, 0.1, 1.0, 1.0).above_limit == 0.0


def test_a_queue_that_grows_slowly_has_too_few_clusters_to_know_its_tail_by() -> None:
    rng = np.random.default_rng(1)
    values = np.linspace(100.0, 200.0, 5_000) + rng.exponential(5.0, 5_000)
    assert _tail(values, 1_000.0).above_limit == 1.0
    assert _tail(rng.permutation(values), 1_000.0).above_limit < 1e-6


def test_how_many_values_would_show_that_a_tail_ends_below_the_limit() -> None:
    """The more clusters the fewer, and none where the tail itself leaves more."""
    tail = _tail(np.repeat(np.random.default_rng(2).exponential(1.0, 100), 20), 9.0)
    assert tail.above_limit > 0.001
    least, most = tail.deciding(0.001, 10_000_000) or (0, None)
    assert most is not None
    assert 2_000 < least <= most < 100_000
    assert Tail(most, tail.share, tail.excess, tail.distance, tail.shown, tail.allowed).above_limit <= 0.001
    assert Tail(1_000, 0.2, 1.0, 1.0, 1.0, 1.0).deciding(0.001, 10_000_000) is None


# ---- how many would decide


def test_how_many_values_would_decide_is_a_range_that_begins_at_those_that_were_seen() -> None:
    least, most = Exceedances(1_000, 5, 1.0, 1.0).deciding(0.01, 0.05, 0.025, 10_000_000) or (0, 0)
    assert 1_000 <= least < 10_000
    assert most is None or most > least


def test_a_rare_share_is_known_from_five_clusters_on_however_improbable_fewer_are() -> None:
    """2 of 300 above a limit for 0.01 %, of which 0.03 are expected. The share may be 4 of 300: then 5 are in 400 values."""
    least, most = Exceedances(300, 2, 1.0, 1.0).deciding(0.0001, 0.05, 0.025, 10_000_000) or (0, 0)
    assert 350 < least < 450
    assert most is None


def test_a_share_at_the_limit_needs_more_than_anyone_sends() -> None:
    assert Exceedances(100_000, 1_000, 1.0, 1.0).deciding(0.01, 0.05, 0.025, 100_000) is None


def test_where_other_runs_may_lie_beyond_the_limit_the_larger_number_is_unknown() -> None:
    decided = Exceedances(1_000, 8, 5.0, 5.0).deciding(0.01, 0.05, 0.025, 10_000_000)
    assert decided is not None
    assert decided[1] is None


@given(st.integers(min_value=1, max_value=40))
def test_a_share_farther_from_the_limit_is_decided_by_fewer(above: int) -> None:
    def least(count: int) -> float:
        found = Exceedances(2_000, count, 1.0, 1.0).deciding(0.02, 0.05, 0.025, 10_000_000)
        return math.inf if found is None else found[0]

    assert least(above - 1) <= least(above)


# ---- the interval of a share


@pytest.mark.parametrize("share", [0.0, 0.002, 0.05, 0.3, 0.9, 1.0])
def test_the_interval_of_a_share_contains_it(share: float) -> None:
    values = (np.random.default_rng(4).random(2_000) < share).astype(float)
    interval = interval_of_share_above(values, 0.0)
    assert interval is not None
    assert 0.0 <= interval[0] <= values.mean() <= interval[1] <= 1.0
    wider = interval_of_share_above(values, 0.0, 0.99)
    assert wider is not None
    assert wider[0] <= interval[0]
    assert wider[1] >= interval[1]


def test_a_share_has_an_interval_from_100_values_on() -> None:
    above = (np.random.default_rng(3).random(100) < 0.2).astype(float)
    assert interval_of_share_above(above[:99], 0.0) is None
    interval = interval_of_share_above(above, 0.0)
    assert interval is not None
    assert interval[0] < above.mean() < interval[1]


def test_values_that_come_together_have_a_wider_interval() -> None:
    together = np.repeat((np.random.default_rng(5).random(200) < 0.2).astype(float), 10)
    apart = np.random.default_rng(6).permutation(together)
    (low, high), (lower, higher) = (interval_of_share_above(is_above, 0.0) or (0.0, 0.0) for is_above in (apart, together))
    assert higher - lower > 2.0 * (high - low)


def test_a_share_that_changes_once_within_the_run_has_no_interval() -> None:
    assert interval_of_share_above((np.arange(1_000) < 500).astype(float), 0.0) is None


def test_failures_alone_leave_no_level_to_know_other_runs_by() -> None:
    assert interval_of_share_above(np.full(500, np.inf), 1.0) is None
    failures = np.where(np.random.default_rng(7).random(500) < 0.1, np.inf, 1.0)
    interval = interval_of_share_above(failures, 2.0)
    assert interval is not None
    assert interval[0] < float(np.isinf(failures).mean()) < interval[1]
