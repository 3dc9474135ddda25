"""The share of values above a limit: its limits, and how surely it is at most a given share."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import beta, binom, chi2, nbinom, poisson

from reports.statistics.autocorrelation import mean_cluster_size, share_of
from reports.statistics.exceedances import (
    MARKOV,
    Exceedances,
    Tail,
    _clusters_hold_at_most,
    _few_above,
    _largest,
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


@pytest.mark.parametrize("share", [0.1, math.nextafter(0.1, 1.0)])
def test_a_share_of_a_tenth_is_the_largest_that_is_rare(share: float) -> None:
    number = poisson(100.0) if share == 0.1 else binom(1_000, 0.1)
    assert _few_above(80, 1_000, share, 1.0) == pytest.approx(float(number.cdf(80)), rel=1e-6)
    assert _many_above(120, 1_000, share, 1.0) == pytest.approx(float(number.sf(119)), rel=1e-6)


def test_a_share_that_is_not_rare_is_that_of_as_many_values_as_are_independent() -> None:
    """400 values of which four hold as much as one: 40 above are 10 of 100."""
    assert _few_above(40, 400, 0.2, 4.0) == pytest.approx(float(binom.cdf(10, 100, 0.2)), rel=1e-9)
    assert _many_above(40, 400, 0.05, 4.0) == pytest.approx(1.0 - _few_above(39, 400, 0.05, 4.0))
    assert _many_above(80, 400, 0.2, 4.0) == pytest.approx(float(binom.sf(19, 100, 0.2)), rel=1e-9)
    assert _few_above(400, 400, 0.2, 4.0) == 1.0


@pytest.mark.parametrize(("share", "fewest"), [(0.1, 25), (0.11, 1)])
def test_a_rare_share_is_at_least_what_five_clusters_show(share: float, fewest: int) -> None:
    """With an effect of 9, clusters have a mean size of 5. A share that is not rare is known from one value on."""
    assert Exceedances(1_000, fewest - 1, 9.0, 9.0).at_least(share) == 1.0
    assert Exceedances(40, fewest, 9.0, 9.0).at_least(share) < 1.0


def test_probabilities_are_means_over_what_the_effect_may_be() -> None:
    """The effect less 1 is off by the factor of a variance with 10 degrees of freedom: 9 equally probable values of it."""
    factors = [10.0 / float(chi2.ppf((k + 0.5) / 9.0, 10)) for k in range(9)]
    seen = Exceedances(1_000, 24, 4.0, 6.0)
    few = [_few_above(24, 1_000, 0.03, 1.0 + 3.0 * factor) for factor in factors]
    many = [_many_above(24, 1_000, 0.01, 1.0 + 5.0 * factor) for factor in factors]
    assert seen.at_most(0.03) == pytest.approx(sum(few) / 9.0, rel=1e-9)
    assert seen.at_least(0.01) == pytest.approx(sum(many) / 9.0, rel=1e-9)


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


def _correlated(n: int) -> NDArray[np.float64]:
    """Values whose neighbours are alike, so that each level has clusters of another size."""
    values = np.random.default_rng(n).normal(size=n)
    for k in range(1, n):
        values[k] += 0.9 * values[k - 1]
    return values


def _effects_of_largest(values: NDArray[np.float64], counts: tuple[int, ...]) -> list[tuple[float, float]]:
    """The effect that the largest values show, and that which slow changes allow for, of this many values each."""
    runs = [share_of(values >= np.sort(values)[-count]) for count in counts]
    return [(max(1.0, run.effect), max(1.0, run.allowed_effect)) for run in runs]


def _between(effects: list[tuple[float, float]]) -> list[float]:
    return [math.sqrt(shown * allowed) for shown, allowed in effects]


@pytest.mark.parametrize(
    ("n", "allowed", "counts", "rule", "lower_counts"),
    [
        (100, 0.01, (1, 2), "mean", (5, 10)),
        (1_000, 0.01, (10, 25), "mean", (50, 100)),
        (2_900, 0.01, (29, 72), "mean", (145, 290)),
        (3_000, 0.01, (30, 75), "largest", (150, 300)),
        (9_900, 0.01, (99, 248), "largest", (495, 990)),
        (10_000, 0.01, (100, 250), "largest allowed", (500, 1_000)),
        (1_000, 0.1, (100, 250), "largest allowed", (500,)),  # a level is half of the values at most
        (1_000, 0.11, (110, 275), "largest allowed", ()),
        (1_000, 0.2, (200, 500), "largest allowed", ()),
        (1_000, 0.3, (300,), "largest allowed", ()),
        (1_000, 0.6, (600,), "largest allowed", ()),
    ],
)
def test_the_effect_is_that_of_the_allowed_share_and_of_more_of_the_largest_values(
    n: int, allowed: float, counts: tuple[int, ...], rule: str, lower_counts: tuple[int, ...]
) -> None:
    """Without a value above the limit. The lower limit has that of larger shares, too, where the allowed one is rare."""
    values = _correlated(n)
    effects, lower = _effects_of_largest(values, counts), _between(_effects_of_largest(values, lower_counts))
    mean, larger_mean = (math.prod(each) ** (1.0 / max(1, len(each))) for each in (_between(effects), lower))
    seen = exceedances(values, 1e3, allowed)
    largest = {"mean": mean, "largest": max(_between(effects)), "largest allowed": max(effect for _, effect in effects)}
    assert seen.effect == pytest.approx(largest[rule])
    assert seen.lower_effect == pytest.approx(max(mean, larger_mean) if lower_counts else mean)
    assert mean != pytest.approx(larger_mean)


@pytest.mark.parametrize(("count", "is_seen"), [(20, True), (19, False)])
def test_values_above_the_limit_show_clusters_of_their_own_from_20_on(count: int, is_seen: bool) -> None:
    values = np.random.default_rng(10).random(5_000)
    values[2_000 : 2_000 + count] = 2.0
    ((shown, allowed),) = _effects_of_largest(values, (count,))
    levels = _between(_effects_of_largest(values, (50, 125)))
    assert math.sqrt(shown * allowed) > max(levels)
    assert exceedances(values, 1.0, 0.01).effect == pytest.approx(math.sqrt(shown * allowed) if is_seen else max(levels))


def test_a_share_that_is_not_rare_has_the_lower_limit_of_its_own_levels() -> None:
    values = np.random.default_rng(3).permutation(np.linspace(0.0, 1.0, 1_000))
    mean = math.prod(_between(_effects_of_largest(values, (200, 500)))) ** 0.5
    assert 1.0 < mean < 2.0
    assert exceedances(values, 2.0, 0.2).lower_effect == pytest.approx(mean)


def test_too_few_values_above_the_limit_add_nothing_to_the_effect_of_independent_values() -> None:
    values = np.random.default_rng(3).permutation(np.linspace(0.0, 1.0, 5_000))
    levels = _between(_effects_of_largest(values, (50, 125)))
    assert 1.0 < max(levels) < 1.4
    assert exceedances(values, 2.0, 0.01).effect == pytest.approx(max(levels))


@pytest.mark.parametrize(("share", "above"), [(0.2, 2), (0.04, 1), (0.24, 2), (0.26, 3), (0.9, 9), (1.0, 9)])
def test_the_largest_values_are_as_many_as_the_share_says_and_one_at_least(share: float, above: int) -> None:
    """There are ten values. With a share of 1, all but the smallest are above the level."""
    assert np.flatnonzero(_largest(np.arange(10.0), share)).tolist() == list(range(10 - above, 10))


def test_equal_values_that_are_the_largest_are_all_chosen() -> None:
    assert _largest(np.array([3.0, 1.0, 3.0, 2.0]), 0.25).tolist() == [True, False, True, False]


def _effect_of_group(size: int, n: int) -> float:
    """The effect where one group is above as a whole, among ``n`` values that belong to none: Kish's, with p = size / n."""
    p, sums = size / n, n - size + 1
    squares = (size * (1.0 - p)) ** 2 + (n - size) * p**2
    return squares * sums / (sums - 1.0) / (n * p * (1.0 - p))


def test_the_only_group_has_the_number_0() -> None:
    values = np.random.default_rng(11).random(2_000)
    groups = np.full(2_000, -1)
    slow = np.arange(50) * 40
    values[slow], groups[slow] = 5.0, 0
    seen = exceedances(values, 2.0, 0.01, groups)
    assert seen.effect == seen.lower_effect == pytest.approx(_effect_of_group(50, 2_000))


def test_a_group_of_the_largest_values_below_the_limit_is_a_cluster_of_the_allowed_share() -> None:
    """20 of 2,000, 1 %, at random places."""
    values = np.random.default_rng(11).random(2_000)
    groups = np.where(values >= np.sort(values)[-20], 0, -1)
    seen = exceedances(values, 2.0, 0.01, groups)
    assert seen.effect == seen.lower_effect == pytest.approx(_effect_of_group(20, 2_000))


def test_a_group_at_the_limit_is_not_above_it() -> None:
    values = np.random.default_rng(11).random(2_000)
    groups, places = np.full(2_000, -1), np.random.default_rng(12).permutation(2_000)
    values[places[:50]], groups[places[:50]] = 2.0, 0
    values[places[50:150]] += 3.0
    assert exceedances(values, 2.0, 0.01, groups) == exceedances(values, 2.0, 0.01)


def test_groups_that_share_the_largest_values_evenly_are_no_clusters() -> None:
    values = np.random.default_rng(13).permutation(np.linspace(0.0, 1.0, 2_000))
    alone = exceedances(values, 2.0, 0.01)
    assert max(alone.effect, alone.lower_effect) < 2.0
    assert exceedances(values, 2.0, 0.01, np.argsort(np.argsort(values)) % 20) == alone


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


def test_a_tail_is_known_from_100_values_on_and_with_the_effects_of_its_level() -> None:
    values = np.random.default_rng(1).exponential(1.0, 100)
    ((shown, allowed),) = _effects_of_largest(values, (20,))
    level, *above = np.sort(values)[-21:].tolist()
    expected = Tail(100, 0.2, pytest.approx(np.mean(above) - level), pytest.approx(8.0 - level), shown, allowed)
    assert shown < 2.0
    assert _tail(values, 8.0) == expected
    assert tail_below(values[:99], 8.0, 0.01) is None


def test_a_tail_is_that_below_its_limit() -> None:
    assert tail_below(np.ones(1_000), 1.0, 0.01) is None
    assert tail_below(np.ones(1_000), math.nextafter(1.0, 2.0), 0.01) is not None


def test_the_only_group_of_a_tail_has_the_number_0() -> None:
    values = np.random.default_rng(1).exponential(1.0, 2_000)
    tail = _tail(values, 8.0, np.where(values >= np.sort(values)[-400], 0, -1))
    assert tail.shown == tail.allowed == pytest.approx(_effect_of_group(400, 2_000))


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


def _smallest(n: int, most: int, decides: Callable[[float], bool]) -> int:
    """The first of the 60 numbers that are tried, in equal ratios."""
    return next(int(size) for size in np.geomspace(n, most, 60) if decides(size))


_LARGE, _SMALL = 10.0 / float(chi2.ppf(1.5 / 9.0, 10)), 10.0 / float(chi2.ppf(7.5 / 9.0, 10))  # true effects to estimates


def test_a_share_below_the_limit_is_decided_between_the_best_and_the_worst_that_the_process_may_be() -> None:
    """The best has the fewest above and the smallest clusters, and the worst the most and the largest."""
    seen = Exceedances(2_000, 10, 2.0, 1.5)
    (low, high), most = seen.limits(0.25), 10_000_000
    assert low < high < 0.01
    least = _smallest(2_000, most, lambda n: _few_above(low * n, int(n), 0.01, 1.0 + 0.5 * _SMALL) <= 1e-4)
    end = _smallest(2_000, most, lambda n: _few_above(high * n, int(n), 0.01, 1.0 + 1.0 * _LARGE) <= 1e-4)
    assert 2_000 < least < end
    assert seen.deciding(0.01, 1e-4, 0.025, most) == (least, end)


def test_a_share_above_the_limit_is_decided_between_the_worst_and_the_best_that_the_process_may_be() -> None:
    seen = Exceedances(1_000, 22, 4.0, 6.0)
    (low, high), most = seen.limits(0.25), 10_000_000
    assert 0.01 < low < high
    smallest, largest = 1.0 + 3.0 * _SMALL, 1.0 + 5.0 * _LARGE
    # the smaller of the two effects has the fewest
    least = _smallest(1_000, most, lambda n: _many_above(high * n, int(n), 0.01, 1.0 + 5.0 * _SMALL) <= 0.025)
    end = _smallest(1_000, most, lambda n: _many_above(low * n, int(n), 0.01, largest) <= 0.025)
    assert smallest < largest
    assert seen.deciding(0.01, 0.05, 0.025, most) == (least, end)


def test_a_share_at_the_limit_may_be_decided_as_below_it_and_in_no_number_of_values() -> None:
    seen = Exceedances(1_000, 10, 1.0, 1.0)
    least = _smallest(1_000, 10_000_000, lambda n: _few_above(seen.lower_limit(0.25) * n, int(n), 0.01, 1.0) <= 0.05)
    assert seen.deciding(0.01, 0.05, 0.025, 10_000_000) == (least, None)


def test_how_many_values_show_the_end_of_a_tail_by_the_clusters_that_are_shown_and_by_those_that_are_allowed_for() -> None:
    def leaves(n: float, effect: float) -> float:
        return Tail(n, 0.2, 1.0, 7.0, 1.0, effect).above_limit  # type: ignore[arg-type]

    least = _smallest(1_000, 10**6, lambda n: leaves(n, 20.0) <= 1e-3)
    end = _smallest(1_000, 10**6, lambda n: leaves(n, 60.0) <= 1e-3)
    assert 1_000 < least < end
    assert Tail(1_000, 0.2, 1.0, 7.0, 20.0, 60.0).deciding(1e-3, 10**6) == (least, end)


# ---- the interval of a share


@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_the_interval_of_a_share_has_the_larger_of_both_effects_at_that_share(confidence: float) -> None:
    """30 % of 2,000 values are above the limit, and a tenth more are equal to it."""
    values = np.random.default_rng(5).choice([0.0, 1.0, 2.0], 2_000, p=[0.6, 0.1, 0.3])
    share = float((values > 1.0).mean())
    found = exceedances(values, 1.0, share)
    assert found.effect > found.lower_effect
    expected = Exceedances(2_000, found.above, found.effect, found.effect).limits((1.0 - confidence) / 2.0)
    assert interval_of_share_above(values, 1.0, confidence) == expected


def test_the_interval_of_a_share_of_values_in_groups_is_that_of_clusters() -> None:
    rng = np.random.default_rng(11)
    groups = rng.permutation(np.repeat(np.arange(40), 50))
    values = rng.random(2_000) + (groups % 4 == 0)
    found = exceedances(values, 1.0, float((values > 1.0).mean()), groups)
    effect = max(found.effect, found.lower_effect)
    expected = Exceedances(2_000, found.above, effect, effect).limits(0.025)
    assert effect > 30.0
    assert interval_of_share_above(values, 1.0, groups=groups) == expected


def test_a_share_above_that_comes_in_few_clusters_has_no_interval() -> None:
    """One spell of 30 of 1,000 values, hardly above the others, and 30 apart."""
    values = np.random.default_rng(6).random(1_000)
    spell, apart = values.copy(), values.copy()
    spell[500:530] = apart[np.random.default_rng(7).choice(1_000, 30, replace=False)] = 1.1
    assert interval_of_share_above(spell, 1.0) is None
    assert interval_of_share_above(apart, 1.0) is not None


def test_values_that_drift_have_no_interval_whatever_fails_among_them() -> None:
    """Three in ten, at any time, so that the failures do not cluster."""
    rng = np.random.default_rng(7)
    drifting = np.linspace(0.0, 1.0, 1_000) + 0.01 * rng.random(1_000)
    failures = rng.random(1_000) < 0.3
    assert interval_of_share_above(np.where(failures, np.inf, drifting), 2.0) is None
    assert interval_of_share_above(np.where(failures, np.inf, rng.permutation(drifting)), 2.0) is not None


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
