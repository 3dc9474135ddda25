"""Differences of one run each: exact cases, what pairs and lengths are worth, and how often equal runs are called different."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reports.compare.measures import Measured, mean, percentile
from reports.compare.single_runs import (
    FEWEST_CROSSINGS,
    quantiles_within_pairs,
    quantiles_within_runs,
    within_pairs,
    within_runs,
)
from reports.compare.spread import Evidence, QuantileSpread, Spread, common_threshold
from reports.statistics.autocorrelation import mean_of
from reports.statistics.estimate import Cause, Correlated, FewClusters, Reason, TooFew

Values = NDArray[np.float64]


def _latencies(seed: int, size: int = 2_000, scale: float = 1.0) -> Values:
    return np.random.default_rng(seed).lognormal(0.0, 0.3, size) * 20.0 * scale


def _with_lengths(values: Values, lengths: Values) -> Measured:
    one = mean(values)
    return Measured(one.value, one.sample, covariates=np.stack([np.log1p(lengths), np.log1p(lengths) ** 2], axis=1))


def _quantiles(q: float, a: Values, b: Values) -> QuantileSpread:
    spread = quantiles_within_runs(q, percentile(a, q), percentile(b, q))
    assert isinstance(spread, QuantileSpread)
    return spread


def test_the_estimate_of_a_quantile_is_the_ratio_of_the_two_nearest_ranks() -> None:
    a, b = _latencies(1), _latencies(2, size=1_500, scale=1.1)
    ratio = math.log((percentile(b, 0.99).value or 0.0) / (percentile(a, 0.99).value or 1.0))
    assert _quantiles(0.99, a, b).estimate == pytest.approx(ratio)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.5, 2.0), st.sampled_from([0.5, 0.99]))
def test_the_interval_of_a_quantile_excludes_no_change_where_the_test_rejects_it(seed: int, scale: float, q: float) -> None:
    spread = quantiles_within_runs(q, percentile(_latencies(seed), q), percentile(_latencies(seed + 1, scale=scale), q))
    assume(isinstance(spread, QuantileSpread))  # one run in fifty looks as if it drifted
    assert isinstance(spread, QuantileSpread)
    low, high = spread.interval(0.95)
    assert low <= spread.estimate <= high
    if spread.p_value < 0.03:  # a step from one rank to the next changes p99 of 2,000 values, and so p, by 0.02
        assert not low <= 0.0 <= high
    if spread.p_value > 0.08:
        assert low <= 0.0 <= high


def test_swapped_runs_have_the_opposite_difference() -> None:
    a, b = _latencies(1), _latencies(2, scale=1.2)
    there, back = _quantiles(0.5, a, b), _quantiles(0.5, b, a)
    assert back.estimate == pytest.approx(-there.estimate)
    assert back.p_value == pytest.approx(there.p_value)
    assert back.interval(0.95) == pytest.approx([-bound for bound in reversed(there.interval(0.95))])


def test_more_confidence_is_wider_and_a_certain_detection_needs_a_larger_change() -> None:
    spread = _quantiles(0.5, _latencies(1), _latencies(2))
    (low, high), (lower, higher) = spread.interval(0.8), spread.interval(0.99)
    assert lower < low < high < higher
    assert 0 < spread.error < spread.smallest_shown(0.05) < spread.smallest_shown(0.01)


def test_a_jump_of_the_distribution_at_p99_is_no_evidence_of_a_difference() -> None:
    """One request in a hundred takes ten times as long, so p99 is on either side of the jump by chance."""
    spreads = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        a, b = (rng.lognormal(0.0, 0.1, 2_000) * np.where(rng.random(2_000) < 0.01, 10.0, 1.0) for _ in range(2))
        spreads.append(quantiles_within_runs(0.99, percentile(a, 0.99), percentile(b, 0.99)))
    judged = [spread for spread in spreads if isinstance(spread, QuantileSpread)]
    assert len(judged) > 80
    assert sum(spread.p_value < 0.05 for spread in judged) <= 8


def test_a_shift_of_the_median_is_found_where_it_could_have_been_shown() -> None:
    pairs = [(_latencies(2 * seed), _latencies(2 * seed + 1)) for seed in range(60)]
    could = float(np.median([_quantiles(0.5, a, b).smallest_shown(0.05) for a, b in pairs]))
    found = sum(_quantiles(0.5, a, b * math.exp(could)).p_value < 0.05 for a, b in pairs)
    assert found >= 42  # of an expected 48, or more


def test_pairs_find_what_unpaired_requests_hide() -> None:
    rng = np.random.default_rng(2)
    common = rng.lognormal(0.0, 0.6, 1_000) * 20.0
    a = percentile(common * rng.lognormal(0, 0.02, 1_000), 0.5)
    b = percentile(common * rng.lognormal(0, 0.02, 1_000) * 1.04, 0.5)
    paired, unpaired = quantiles_within_pairs(0.5, a, b), quantiles_within_runs(0.5, a, b)
    assert isinstance(paired, QuantileSpread)
    assert isinstance(unpaired, QuantileSpread)
    assert paired.p_value < 0.01 < unpaired.p_value
    assert (paired.evidence, unpaired.evidence) == (Evidence.REQUEST_PAIRS, Evidence.REQUESTS)


def test_too_few_pairs_across_a_quantile_are_no_evidence() -> None:
    """Equal servers with in-flight batching: neighbours move together, so the requests that cross p99 are few, or none."""
    values = np.random.default_rng(7).permutation(np.linspace(10.0, 20.0, 1_000))
    order = np.argsort(values)
    for swaps in (0, FEWEST_CROSSINGS // 2 - 1, FEWEST_CROSSINGS):
        swapped = values.copy()
        low, high = order[300 : 300 + swaps], order[600 : 600 + swaps]
        swapped[low], swapped[high] = values[high], values[low]
        spread = quantiles_within_pairs(0.5, percentile(values, 0.5), percentile(swapped, 0.5))
        assert isinstance(spread, QuantileSpread) is (swaps == FEWEST_CROSSINGS)
        assert spread is None or isinstance(spread, QuantileSpread)


def test_crossings_that_come_in_one_cluster_are_no_evidence() -> None:
    values = np.full(2_000, 10.0) + np.linspace(0, 1, 2_000)[np.random.default_rng(1).permutation(2_000)]
    slower = values.copy()
    slower[900:960] += 5.0  # one stall, in one run
    assert quantiles_within_pairs(0.99, percentile(values, 0.99), percentile(slower, 0.99)) is None


def test_a_percentile_above_which_values_come_in_few_clusters_cannot_be_told_and_how_many_requests_would_do_can() -> None:
    calm = np.random.default_rng(1).lognormal(0.0, 0.1, 2_000)
    bursts = calm.copy()
    bursts[1_000:1_015] *= 3.0  # most of the largest 20 in one cluster
    reason = quantiles_within_runs(0.99, percentile(calm, 0.99), percentile(bursts, 0.99))
    assert isinstance(reason, FewClusters)
    assert reason.requests > 2_000


def test_lengths_explain_the_difference_that_they_make() -> None:
    """Two runs of one server, of which one happened to get longer prompts."""
    rng = np.random.default_rng(4)
    a_lengths, b_lengths = rng.lognormal(5.0, 0.8, 1_000), rng.lognormal(5.08, 0.8, 1_000)
    a, b = (50.0 + 0.2 * lengths * rng.lognormal(0.0, 0.05, 1_000) for lengths in (a_lengths, b_lengths))
    raw = math.log(b.mean() / a.mean())
    adjusted = within_runs(_with_lengths(a, a_lengths), _with_lengths(b, b_lengths), raw)
    plain = within_runs(mean(a), mean(b), raw)
    assert isinstance(adjusted, Spread)
    assert isinstance(plain, Spread)
    assert adjusted.error < 0.5 * plain.error
    assert abs(adjusted.estimate) < 0.02 < abs(raw)


def test_lengths_of_another_workload_explain_nothing() -> None:
    rng = np.random.default_rng(4)
    a_lengths, b_lengths = rng.lognormal(5.0, 0.5, 1_000), rng.lognormal(6.0, 0.5, 1_000)
    a, b = 0.2 * a_lengths, 0.2 * b_lengths
    raw = math.log(b.mean() / a.mean())
    spread = within_runs(_with_lengths(a, a_lengths), _with_lengths(b, b_lengths), raw)
    assert isinstance(spread, Spread)
    assert spread.estimate == raw


def test_paired_means_hold_less_error_than_unpaired_ones() -> None:
    rng = np.random.default_rng(5)
    common = rng.lognormal(0.0, 0.6, 1_000)
    a, b = (mean(common * rng.lognormal(0, 0.02, 1_000)) for _ in range(2))
    paired, unpaired = within_pairs(a, b, 0.0), within_runs(a, b, 0.0)
    assert isinstance(paired, Spread)
    assert isinstance(unpaired, Spread)
    assert paired.error < 0.2 * unpaired.error


def test_a_drifting_mean_is_not_judged() -> None:
    steady, drifting = mean(_latencies(1)), mean(np.linspace(10.0, 40.0, 2_000) * _latencies(2) / 20.0)
    assert within_runs(steady, drifting, 0.1) == Cause.DRIFTS
    assert within_pairs(steady, drifting, 0.1) == Cause.DRIFTS


def test_pairs_of_which_one_run_falls_behind_to_the_end_are_not_judged() -> None:
    """B is the slower one at first and the quicker one at last, so that pairs cross in one direction and then in the other."""
    rng = np.random.default_rng(3)
    common = rng.lognormal(0.0, 0.6, 1_000) * 20.0
    ahead = np.linspace(0.4, -0.4, 1_000) + rng.normal(0.0, 0.01, 1_000)
    assert quantiles_within_pairs(0.5, percentile(common, 0.5), percentile(common * np.exp(ahead), 0.5)) == Cause.DRIFTS


# ---- exact cases


def _contributions(sample: Values, covariates: Values | None = None) -> Measured:
    return Measured(1.0, sample, covariates=covariates)


def _signs(seed: int, size: int) -> Values:
    """±1 at random: not correlated."""
    return np.random.default_rng(seed).choice([-1.0, 1.0], size)


def _wave(size: int) -> Values:
    """A cosine of two and a half periods: all its variance has one frequency, so it is worth 8 independent values."""
    return np.cos(np.pi * 5.0 * (np.arange(size) + 0.5) / size)


def _in_turn(size: int, shift: float = 0.0) -> Values:
    """0 and 1 in turn, of variance 1/4, as the one covariate; shape [size, 1]."""
    return (np.arange(size) % 2 + shift)[:, np.newaxis].astype(np.float64)


def test_the_error_of_unpaired_means_is_welchs_of_their_own_errors() -> None:
    a, b = 0.1 * _signs(1, 1_000), 0.2 * _signs(2, 400)
    spread = within_runs(_contributions(a), _contributions(b), 0.3)
    assert isinstance(spread, Spread)
    means = [mean_of(a), mean_of(b)]
    variances = [number.standard_error**2 for number in means]
    assert (spread.estimate, spread.evidence) == (0.3, Evidence.REQUESTS)
    assert spread.error == pytest.approx(math.sqrt(sum(variances)))
    assert spread.freedom == pytest.approx(
        sum(variances) ** 2 / sum(v**2 / m.long_run.degrees for v, m in zip(variances, means, strict=True))
    )


def test_constant_contributions_have_no_error() -> None:
    spread = within_runs(_contributions(np.zeros(200)), _contributions(np.zeros(300)), 0.0)
    assert isinstance(spread, Spread)
    assert (spread.error, spread.freedom) == (0.0, 8.0)  # 4 degrees of each, where the spectrum is unknown


def test_the_error_of_paired_means_is_that_of_their_differences() -> None:
    a, noise = 0.1 * _signs(1, 1_000), 0.01 * _signs(2, 1_000)
    spread = within_pairs(_contributions(a), _contributions(a + noise), 0.3)
    difference = mean_of(noise)
    assert spread == Spread(
        0.3, pytest.approx(difference.standard_error), pytest.approx(difference.long_run.degrees), Evidence.REQUEST_PAIRS
    )


def test_differences_that_are_more_correlated_than_either_run_have_their_own_degrees_of_freedom() -> None:
    a, slow = 0.1 * _signs(1, 1_000), 0.01 * _wave(1_000)
    spread = within_pairs(_contributions(a), _contributions(a + slow), 0.3)
    assert isinstance(spread, Spread)
    of_slow, of_runs = (mean_of(values).long_run.degrees for values in (slow, a))
    assert of_slow < of_runs
    assert spread.freedom == pytest.approx(of_slow)


def test_the_errors_that_contributions_lack_are_added_to_that_of_pairs() -> None:
    a, b = _contributions(np.zeros(1_000)), _contributions(0.01 * _signs(2, 1_000))
    alone = within_pairs(a, b, 0.0)
    both = within_pairs(replace(a, paired_error=0.03), replace(b, paired_error=0.04), 0.0)
    assert isinstance(alone, Spread)
    assert isinstance(both, Spread)
    assert both.error == pytest.approx(math.hypot(alone.error, 0.05))


def test_what_lengths_explain_of_paired_differences_is_no_error() -> None:
    lengths, noise = _signs(1, 1_000)[:, np.newaxis], 0.01 * _signs(2, 1_000)
    a = _contributions(np.zeros(1_000), lengths)
    explained = within_pairs(a, _contributions(0.5 * lengths[:, 0] + noise, lengths), 0.0)
    without = within_pairs(a, _contributions(noise), 0.0)
    assert isinstance(explained, Spread)
    assert isinstance(without, Spread)
    assert explained.error == pytest.approx(without.error, rel=0.1)
    assert explained.estimate == 0.0


def test_what_lengths_explain_of_a_difference_is_taken_off() -> None:
    """Contributions of half a length, of lengths that are 0.02 longer in B: the difference of 0.01 is theirs."""
    za, zb = _in_turn(1_000), _in_turn(500, shift=0.02)
    noise = [0.001 * _signs(seed, size) for seed, size in ((1, 1_000), (2, 500))]
    a = _contributions(0.5 * (za[:, 0] - za.mean()) + noise[0], za)
    b = _contributions(0.5 * (zb[:, 0] - zb.mean()) + noise[1], zb)
    spread = within_runs(a, b, 0.01)
    plain = within_runs(_contributions(noise[0]), _contributions(noise[1]), 0.0)
    assert isinstance(spread, Spread)
    assert isinstance(plain, Spread)
    assert spread.estimate == pytest.approx(0.0, abs=1e-5)
    assert spread.error == pytest.approx(plain.error, rel=0.05)


@pytest.mark.parametrize(("errors", "taken_off"), [(3.99, True), (4.01, False), (-3.99, True), (-4.01, False)])
def test_lengths_explain_up_to_four_errors_between_their_means(errors: float, taken_off: bool) -> None:
    """The means of 1,000 and 500 lengths of variance 1/4 differ by an error of √(0.25 / 1,000 + 0.25 / 500)."""
    za, zb = _in_turn(1_000), _in_turn(500, shift=errors * math.sqrt(0.00075))
    a = _contributions(0.5 * (za[:, 0] - za.mean()) + 0.01 * _signs(1, 1_000), za)
    b = _contributions(0.5 * (zb[:, 0] - zb.mean()) + 0.01 * _signs(2, 500), zb)
    spread = within_runs(a, b, 1.0)
    assert isinstance(spread, Spread)
    assert spread.estimate == pytest.approx(1.0 - 0.5 * errors * math.sqrt(0.00075) if taken_off else 1.0, abs=1e-3)


def test_one_kind_of_length_of_another_workload_is_enough_to_explain_nothing() -> None:
    """The means of the first are equal; of the second, whose errors are much smaller, they are 4.5 errors apart."""
    za, zb = (np.hstack([100.0 * _in_turn(1_000)[::step], _in_turn(1_000)]) for step in (1, -1))
    zb[:, 1] += 4.5 * math.sqrt(0.0005)
    spread = within_runs(*(_contributions(z[:, 1] - z[:, 1].mean(), z) for z in (za, zb)), 1.0)
    assert isinstance(spread, Spread)
    assert spread.estimate == 1.0


def _lengths(seed: int, size: int, mean: float = 5.0) -> Values:
    """Two kinds of covariates, of different means; shape [size, 2]."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.normal(mean, 1.0, size), rng.normal(-20.0, 3.0, size)], axis=1)


def _regressed(values: Values, z: Values, slopes: Values) -> Values:
    return values - (z - z.mean(axis=0)) @ slopes


def test_slopes_are_those_of_a_regression_with_a_level_for_each_run() -> None:
    za, zb = _lengths(1, 1_000), _lengths(2, 700, mean=5.05)
    a, b = (0.3 * z[:, 0] - 0.1 * z[:, 1] + 0.2 * _signs(seed, len(z)) for seed, z in ((3, za), (4, zb)))
    levels = np.repeat(np.eye(2), [1_000, 700], axis=0)
    slopes = np.linalg.lstsq(np.hstack([levels, np.vstack([za, zb])]), np.concatenate([a, b]), rcond=None)[0][2:]
    spread = within_runs(_contributions(a, za), _contributions(b, zb), 1.0)
    assert isinstance(spread, Spread)
    assert spread.estimate == pytest.approx(1.0 - (zb.mean(axis=0) - za.mean(axis=0)) @ slopes, rel=1e-9)
    errors = [mean_of(_regressed(values, z, slopes)).standard_error for values, z in ((a, za), (b, zb))]
    assert spread.error == pytest.approx(math.hypot(*errors), rel=1e-6)


def test_slopes_of_paired_differences_are_those_of_a_regression_with_a_level() -> None:
    z = _lengths(1, 1_000)
    differences = 0.3 * z[:, 0] - 0.1 * z[:, 1] + 0.2 * _signs(3, 1_000)
    slopes = np.linalg.lstsq(np.hstack([np.ones((1_000, 1)), z]), differences, rcond=None)[0][1:]
    spread = within_pairs(_contributions(np.zeros(1_000), z), _contributions(differences, z), 0.0)
    assert isinstance(spread, Spread)
    assert spread.error == pytest.approx(mean_of(_regressed(differences, z, slopes)).standard_error, rel=1e-6)


def _of_lengths(seed: int, mean: float, unknown: slice) -> tuple[Measured, Measured]:
    """The median latency of 1,000 requests of which some have none, with their lengths and without."""
    rng = np.random.default_rng(seed)
    lengths = rng.normal(mean, 1.0, (1_000, 1))
    values = np.exp(3.0 + 0.3 * lengths[:, 0] + rng.normal(0.0, 0.02, 1_000))
    values[unknown] = np.nan
    run = percentile(values, 0.5)
    return replace(run, covariates=lengths), run


def test_lengths_explain_the_difference_of_a_quantile_that_they_make() -> None:
    """The lengths of B happen to be longer by a tenth, which makes its latencies 3 % longer."""
    (a, a_alone), (b, b_alone) = _of_lengths(1, 0.0, slice(0, 50)), _of_lengths(2, 0.1, slice(700, 730))
    explained, plain = quantiles_within_runs(0.5, a, b), quantiles_within_runs(0.5, a_alone, b_alone)
    assert isinstance(explained, QuantileSpread)
    assert isinstance(plain, QuantileSpread)
    assert plain.expected == 0.0
    assert explained.expected == pytest.approx(plain.excess, abs=0.02)
    assert abs(explained.estimate) < 0.01 < plain.estimate
    assert explained.share_error < 0.7 * plain.share_error
    for partly in (quantiles_within_runs(0.5, a, b_alone), quantiles_within_runs(0.5, a_alone, b)):
        assert isinstance(partly, QuantileSpread)
        assert (partly.expected, partly.estimate) == (0.0, plain.estimate)


def _of_equal_servers(crossed: Values) -> float:
    """The standard error of a mean that is 0 except chance."""
    return math.sqrt(float(np.square(crossed).mean()) * mean_of(crossed).long_run.allowed_effect / crossed.size)


def test_lengths_explain_which_paired_requests_cross_a_quantile() -> None:
    """B is slower for long requests and quicker for short ones, so that lengths explain part of the crossings."""
    rng = np.random.default_rng(1)
    lengths = rng.choice([-1.0, 1.0], (1_000, 1))
    values = rng.lognormal(0.0, 0.3, 1_000)
    other = values * np.exp(0.2 * lengths[:, 0])
    values[:40] = np.nan
    plain = quantiles_within_pairs(0.5, percentile(values, 0.5), percentile(other, 0.5))
    a, b = (replace(percentile(side, 0.5), covariates=lengths) for side in (values, other))
    explained = quantiles_within_pairs(0.5, a, b)
    assert isinstance(plain, QuantileSpread)
    assert isinstance(explained, QuantileSpread)
    known = slice(40, None)
    threshold = float(np.sort(np.concatenate([values[known], other]))[979])  # the 980th of 1,960
    crossed = (other[known] > threshold).astype(float) - (values[known] > threshold)
    centred = lengths[known, 0] - lengths[known, 0].mean()
    slope = np.polyfit(centred, crossed, 1)[0]
    assert plain.share_error == pytest.approx(_of_equal_servers(crossed))
    assert explained.share_error == pytest.approx(_of_equal_servers(crossed - slope * centred), rel=1e-6)
    assert explained.share_error < plain.share_error
    assert plain.excess == explained.excess == float(crossed.mean())
    assert plain.expected == explained.expected == 0.0


def test_a_request_without_a_latency_in_one_run_crosses_nothing() -> None:
    rng = np.random.default_rng(1)
    values = rng.permutation(np.linspace(10.0, 20.0, 1_000))
    unknown = values.copy()
    unknown[rng.permutation(1_000)[:300]] = np.nan
    assert quantiles_within_pairs(0.5, percentile(values, 0.5), percentile(unknown, 0.5)) is None
    assert quantiles_within_pairs(0.5, percentile(unknown, 0.5), percentile(values, 0.5)) is None


@pytest.mark.parametrize("turned", [False, True])
def test_a_value_at_the_threshold_does_not_exceed_it(turned: bool) -> None:
    """The values are 1, 2 and 3, where 2 is the common median and only a third of the values exceeds it in A, and a half in
    B, whose own median is 3.
    """
    rng = np.random.default_rng(1)
    a, b = (rng.permutation(np.repeat([1.0, 2.0, 3.0], counts)) for counts in ((300, 400, 300), (300, 199, 501)))
    if turned:
        a, b = b, a
    spread = quantiles_within_pairs(0.5, percentile(a, 0.5), percentile(b, 0.5))
    assert isinstance(spread, QuantileSpread)
    assert spread.excess == pytest.approx(-0.201 if turned else 0.201)
    assert spread.q == 0.5


@pytest.mark.parametrize(("copies", "excess"), [(1, 0.0), (2, 0.01)])
def test_two_values_at_the_higher_quantile_are_above_the_threshold(copies: int, excess: float) -> None:
    """A has 50 values below 10 and 50 above. B has 49 below, and its median of 10 once or twice, which is the common median."""
    rng = np.random.default_rng(1)
    of_a, of_b = ([1.0] * 50 + [20.0] * 50), ([1.0] * 49 + [10.0] * copies + [20.0] * (51 - copies))
    spread = _quantiles(0.5, rng.permutation(of_a), rng.permutation(of_b))
    assert spread.excess == pytest.approx(excess)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_equal_quantiles_show_no_difference_whatever_is_above_them(turned: bool, paired: bool) -> None:
    """40 and 10 % of the values exceed the median, which is 50 in both: each side was "better" than the other."""
    rng = np.random.default_rng(1)
    a, b = (rng.permutation(np.repeat([50.0, 60.0], counts)) for counts in ((600, 400), (900, 100)))
    if turned:
        a, b = b, a
    judge = quantiles_within_pairs if paired else quantiles_within_runs
    spread = judge(0.5, percentile(a, 0.5), percentile(b, 0.5))
    assert isinstance(spread, QuantileSpread)
    assert (spread.estimate, spread.p_value) == (0.0, 1.0)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("q", [0.5, 0.99])
@pytest.mark.parametrize("slow", [0, 20])
def test_runs_of_one_value_each_differ(q: float, slow: int, turned: bool) -> None:
    """No value exceeds the higher one, or as few in both runs, so the test of a share above it showed nothing."""
    rng = np.random.default_rng(2)
    a, b = (
        rng.permutation(np.repeat([fast, 10 * fast], counts)) for fast in (50.0, 52.5) for counts in ((1_000 - slow, slow),)
    )
    if turned:
        a, b = b, a
    spread = quantiles_within_runs(q, percentile(a, q), percentile(b, q))
    assert isinstance(spread, QuantileSpread)
    assert spread.estimate == pytest.approx(math.log(1.05) * (-1 if turned else 1))
    assert spread.p_value < 0.001
    assert (spread.excess > 0) is not turned


@pytest.mark.parametrize(("swaps", "enough"), [(9, False), (10, True)])
def test_twenty_crossings_are_enough_evidence_of_pairs(swaps: int, enough: bool) -> None:
    values = np.random.default_rng(3).permutation(np.linspace(10.0, 20.0, 1_000))
    order, swapped = np.argsort(values), values.copy()
    low, high = order[300 : 300 + swaps], order[600 : 600 + swaps]
    swapped[low], swapped[high] = values[high], values[low]
    assert FEWEST_CROSSINGS == 20
    spread = quantiles_within_pairs(0.5, percentile(values, 0.5), percentile(swapped, 0.5))
    assert isinstance(spread, QuantileSpread) is enough


@pytest.mark.parametrize(
    ("za", "zb"),
    [
        (None, None),
        (_in_turn(1_000), None),
        (None, _in_turn(1_000, shift=0.02)),
        (_in_turn(1_000)[:, :0], _in_turn(1_000)[:, :0]),
        (_in_turn(1_000), np.hstack([_in_turn(1_000, shift=0.02)] * 2)),
    ],
    ids=["neither", "A alone", "B alone", "no lengths", "other lengths"],
)
def test_lengths_that_both_runs_do_not_have_explain_nothing(za: Values | None, zb: Values | None) -> None:
    sample = _in_turn(1_000)[:, 0] - 0.5 + 0.01 * _signs(1, 1_000)
    spread = within_runs(_contributions(sample, za), _contributions(sample, zb), 0.25)
    assert isinstance(spread, Spread)
    assert spread.estimate == 0.25


def test_lengths_that_nearly_determine_each_other_explain_as_one_of_them() -> None:
    """Requests whose lengths are the same except rounding must not be explained by the rounding."""
    rng = np.random.default_rng(1)
    za, zb = rng.normal(0.0, 1.0, (1_000, 1)), rng.normal(0.05, 1.0, (1_000, 1))
    samples = [0.5 * (z[:, 0] - z.mean()) + rng.normal(0.0, 0.3, 1_000) for z in (za, zb)]
    twice = [np.hstack([z, z + 1e-7 * rng.normal(size=z.shape)]) for z in (za, zb)]
    once = within_runs(_contributions(samples[0], za), _contributions(samples[1], zb), 0.0)
    both = within_runs(_contributions(samples[0], twice[0]), _contributions(samples[1], twice[1]), 0.0)
    assert isinstance(once, Spread)
    assert isinstance(both, Spread)
    assert both.estimate == pytest.approx(once.estimate, abs=1e-6)
    assert both.error == pytest.approx(once.error, abs=1e-6)


# ---- too few values


@pytest.mark.parametrize(("n", "needed"), [(1_000, 3_800), (2_000, 7_500), (100, 380), (240, 900)])
def test_a_correlated_run_names_how_many_requests_would_be_worth_enough(n: int, needed: int) -> None:
    """30 independent values are needed, of a wave that is worth 8 whatever its length."""
    wave = _wave(n) + 0.01 * _signs(2, n)
    slightly = 1e-3 * _signs(1, n)
    for a, b in ((wave, wave + slightly), (slightly, wave), (wave, slightly)):
        reason = within_pairs(_contributions(a), _contributions(b), 0.0)
        assert reason == Correlated(8, 30, needed)


@pytest.mark.parametrize(
    ("n", "reason"),
    [
        (29, Correlated(29, 30, 30)),
        (3, Correlated(3, 30, 30)),
        (1, Correlated(1, 30, 30)),
        (30, None),
    ],
)
def test_thirty_pairs_of_independent_values_are_enough(n: int, reason: Reason | None) -> None:
    signs = _signs(1, n)
    spread = within_pairs(_contributions(signs), _contributions(signs * 0.5), 0.0)
    assert isinstance(spread, Spread) if reason is None else spread == reason


def test_a_single_run_of_too_few_values_has_no_error() -> None:
    few, enough = _contributions(_signs(1, 99)), _contributions(_signs(1, 100))
    assert within_runs(few, enough, 0.0) == within_runs(enough, few, 0.0) == TooFew(99, 100)
    assert isinstance(within_runs(enough, enough, 0.0), Spread)
    assert isinstance(within_runs(_contributions(_wave(1_000)), enough, 0.0), Correlated)


def _with_bursts(size: int, every: int, length: int) -> Values:
    """Values below 1 in random order, and ``length`` neighbours above 1: the first ones of all, or in the middle of each
    ``every``.
    """
    values = np.random.default_rng(1).permutation(np.linspace(0.1, 0.9, size))
    for start in range(every // 2 if every < size else 0, size, every):
        values[start : start + length] += 1.0
    return values


@pytest.mark.parametrize(("q", "bursts", "turned"), [(0.99, 2, False), (0.01, 2, True), (0.99, 1, False)])
def test_bursts_beyond_a_percentile_are_counted_as_clusters(q: float, bursts: int, turned: bool) -> None:
    """Among 2,000 values 20 are beyond p99, in one burst or two, or below p1 of the negative values."""
    above = _with_bursts(2_000, 2_000 // bursts, 20 // bursts)
    values = 3.0 - above if turned else above
    run = percentile(values, q)
    assert run.value is not None
    effect = mean_of((values > run.value).astype(float)).long_run.effect
    clusters = 20.0 / ((1.0 + effect) / 2.0)
    assert 0.5 < clusters < (1.5 if bursts == 1 else 5.0)
    exact = 2_000 * 5.0 / clusters
    unit = 10.0 ** (math.floor(math.log10(exact)) - 1)
    calm = percentile(_latencies(5), q)
    expected = FewClusters(math.floor(clusters), 5, math.ceil(exact / unit) * int(unit))
    assert quantiles_within_runs(q, run, calm) == quantiles_within_runs(q, calm, run) == expected


@pytest.mark.parametrize(("q", "reason"), [(0.05, None), (0.049, FewClusters(4, 5, 110))])
def test_five_clusters_are_enough(q: float, reason: FewClusters | None) -> None:
    """The five smallest of a hundred values, evenly apart, are five clusters; p4.9 has 4.9 below it."""
    values = np.arange(100.0, 200.0)
    values[10::20] -= 95.0
    run = percentile(values, q)
    spread = quantiles_within_runs(q, run, run)
    assert isinstance(spread, QuantileSpread) if reason is None else spread == reason


# ---- slow changes


def test_an_error_of_few_independent_values_has_few_degrees_of_freedom() -> None:
    """Values that move together by 20 are worth some 50: an error with 8 degrees at most, alone or as one of a pair."""
    slow = 0.1 * np.repeat(_signs(1, 50), 20)
    white = 0.1 * _signs(2, 1_000)
    worth = 1_000 / mean_of(slow).long_run.effect
    assert 30 <= worth < 96
    unpaired = within_runs(_contributions(slow), _contributions(np.zeros(1_000)), 0.0)
    paired = within_pairs(_contributions(slow), _contributions(slow + white), 0.0)
    assert isinstance(unpaired, Spread)
    assert isinstance(paired, Spread)
    assert unpaired.freedom == pytest.approx(worth / 6.0)
    assert paired.freedom <= worth / 6.0
    assert mean_of(white).long_run.degrees >= 16


def test_an_error_has_at_least_one_degree_of_freedom() -> None:
    """Latencies in a slow wave are worth 5 to 12 values, one degree or two: both runs together have twice as many."""
    noise = 1e-3 * np.random.default_rng(1).normal(size=1_000)
    run = percentile(np.exp(_wave(1_000) + noise), 0.5)
    assert run.value is not None
    worth = 1_000 / mean_of((run.sample > run.value).astype(float)).long_run.effect
    assert 5.0 < worth < 12.0
    spread = quantiles_within_runs(0.5, run, run)
    assert isinstance(spread, QuantileSpread)
    assert spread.freedom == pytest.approx(2.0 * max(1.0, worth / 6.0))


def test_pairs_that_cross_in_one_direction_while_one_run_is_slower_are_as_uncertain_as_that() -> None:
    """One run is ahead for 100 requests, then the other: the crossings are few, and each looks independent of the others."""
    rng = np.random.default_rng(4)
    common = rng.lognormal(0.0, 0.6, 1_200) * 20.0
    ahead = np.repeat(rng.choice([-1.0, 1.0], 12), 100) * np.abs(rng.normal(0.04, 0.01, 1_200))
    a, b = percentile(common, 0.5), percentile(common * np.exp(ahead), 0.5)
    spread = quantiles_within_pairs(0.5, a, b)
    assert isinstance(spread, QuantileSpread)
    threshold = common_threshold(a.ordered, b.ordered, 0.5)
    crossed = (b.sample > threshold).astype(np.float64) - (a.sample > threshold)
    middle = np.quantile(np.concatenate([a.sample, b.sample]), [0.05, 0.95])
    apart = np.log(np.clip(b.sample, *middle)) - np.log(np.clip(a.sample, *middle))
    thinned = 1.0 + np.count_nonzero(crossed) / 1_200 * (mean_of(apart).long_run.allowed_effect - 1.0)
    mean = mean_of(crossed)
    assert spread.share_error == pytest.approx(mean.standard_error * math.sqrt(thinned / mean.long_run.allowed_effect))
    assert spread.share_error > 1.05 * mean.standard_error


def test_a_lasting_difference_that_lengths_explain_makes_pairs_no_less_certain() -> None:
    """The same two runs, where each is ahead at its own lengths: within equal lengths nothing lasts."""
    rng = np.random.default_rng(4)
    common = rng.lognormal(0.0, 0.6, 1_200) * 20.0
    ahead = np.repeat(rng.choice([-1.0, 1.0], 12), 100)
    of_lengths = np.stack([ahead], axis=1)
    a, b = percentile(common, 0.5), percentile(common * np.exp(0.04 * ahead + rng.normal(0.0, 0.01, 1_200)), 0.5)
    unexplained = quantiles_within_pairs(0.5, a, b)
    explained = quantiles_within_pairs(0.5, replace(a, covariates=of_lengths), replace(b, covariates=of_lengths))
    assert isinstance(unexplained, QuantileSpread)
    assert isinstance(explained, QuantileSpread)
    threshold = common_threshold(a.ordered, b.ordered, 0.5)
    crossed = (b.sample > threshold).astype(np.float64) - (a.sample > threshold)
    centred = ahead - ahead.mean()
    residuals = crossed - centred * float(centred @ crossed) / float(centred @ centred)
    assert explained.share_error == pytest.approx(mean_of(residuals).standard_error)
    assert explained.share_error < 0.9 * unexplained.share_error


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        ((16.1, 0.0), (16.1, 0.0), True),  # of gaps of about 10 ms
        ((0.0, 0.03), (0.15, 0.03), True),  # within 4 errors of the difference
        ((0.0, 0.03), (0.18, 0.03), False),
        ((0.18, 0.03), (0.0, 0.03), False),
        ((0.0, 0.0), (0.009, 0.0), True),  # constant gaps, rounded
        ((0.0, 0.0), (0.01, 0.0), True),
        ((0.0, 0.0), (0.011, 0.0), False),
        (None, (0.5, 0.01), True),
        ((0.5, 0.01), None, True),
    ],
)
def test_numbers_of_schedules_whose_rates_differ_beyond_chance_cannot_be_told(
    a: tuple[float, float] | None, b: tuple[float, float] | None, told: bool
) -> None:
    runs = [Measured(1.0, 0.1 * _signs(seed, 1_000), gap=gap) for seed, gap in ((1, a), (2, b))]
    spread = within_runs(runs[0], runs[1], 0.0)
    assert isinstance(spread, Spread) if told else spread == Cause.SENT_UNLIKE
    of_latency = [replace(percentile(_latencies(seed), 0.5), gap=gap) for seed, gap in ((1, a), (2, b))]
    found = quantiles_within_runs(0.5, of_latency[0], of_latency[1])
    assert isinstance(found, QuantileSpread) if told else found == Cause.SENT_UNLIKE


def test_contributions_of_whole_runs_count_where_requests_are_not_paired() -> None:
    a, b = (Measured(1.0, 0.1 * _signs(seed, 1_000), sample_of_run=0.01 * _signs(seed + 9, 1_000)) for seed in (1, 2))
    unpaired, paired = within_runs(a, b, 0.0), within_pairs(a, b, 0.0)
    assert isinstance(unpaired, Spread)
    assert isinstance(paired, Spread)
    assert unpaired.error == pytest.approx(math.hypot(*(mean_of(0.01 * _signs(k, 1_000)).standard_error for k in (10, 11))))
    assert paired.error == pytest.approx(mean_of(b.sample - a.sample).standard_error)


def test_pairs_have_the_error_of_late_drains_and_unpaired_requests_that_of_usual_ones() -> None:
    a, b = (Measured(1.0, 0.1 * _signs(seed, 1_000), None, 0.03, paired_error=0.04) for seed in (1, 2))
    unpaired, paired = within_runs(a, b, 0.0), within_pairs(a, b, 0.0)
    assert isinstance(unpaired, Spread)
    assert isinstance(paired, Spread)
    assert unpaired.error == pytest.approx(math.hypot(*(mean_of(run.sample).standard_error for run in (a, b)), 0.03, 0.03))
    assert paired.error == pytest.approx(math.hypot(mean_of(b.sample - a.sample).standard_error, 0.04, 0.04))


def test_pairs_that_all_cross_in_one_direction_are_as_uncertain_as_their_slow_changes() -> None:
    """B takes twice to four times as long as A, in slow waves: no pair crosses back, and all are few independent ones."""
    rng = np.random.default_rng(4)
    slow = 3.0 + np.sin(np.linspace(0.0, 3.0 * math.pi, 1_200))
    a, b = (percentile(20.0 * level * rng.lognormal(0.0, 0.05, 1_200), 0.5) for level in (np.ones(1_200), slow))
    threshold = common_threshold(a.ordered, b.ordered, 0.5)
    crossed = (b.sample > threshold).astype(np.float64) - (a.sample > threshold)
    assert crossed.min() >= 0.0
    spread = quantiles_within_pairs(0.5, a, b)
    assert isinstance(spread, QuantileSpread)
    assert spread.share_error > 5.0 * math.sqrt(crossed.mean() / 1_200)
    assert spread.freedom < 5.0  # as far as 1,200 such pairs are few


@pytest.mark.parametrize(("independent", "degrees"), [(12.0, 2.0), (6.0, 1.0), (3.0, 1.0)])
def test_a_drain_of_few_independent_ones_leaves_few_degrees_of_freedom(independent: float, degrees: float) -> None:
    """Drains of 12 independent ones have two degrees, fewer at least one; and they make most of the error."""
    a, b = (Measured(1.0, 0.01 * _signs(seed, 1_000), None, 0.03, other_independent=independent) for seed in (1, 2))
    spread = within_runs(a, b, 0.0)
    assert isinstance(spread, Spread)
    variances = [mean_of(run.sample).standard_error ** 2 for run in (a, b)]
    own = [mean_of(run.sample).long_run.degrees for run in (a, b)]
    parts = [*zip(variances, own, strict=True), (0.03**2, degrees), (0.03**2, degrees)]
    total = sum(variance for variance, _ in parts)
    assert spread.error == pytest.approx(math.sqrt(total))
    assert spread.freedom == pytest.approx(total**2 / sum(v**2 / f for v, f in parts))
    assert spread.freedom < 4.1
    usual = within_runs(replace(a, other_independent=math.inf), replace(b, other_independent=math.inf), 0.0)
    assert isinstance(usual, Spread)
    assert usual.freedom > 100.0
