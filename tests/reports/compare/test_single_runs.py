"""Differences of one run each: exact cases, what pairs and lengths are worth, and how often equal runs are called different."""

from __future__ import annotations

import math

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
from reports.compare.spread import Evidence, QuantileSpread, Spread
from reports.statistics.autocorrelation import DRIFTS, TOO_FEW, mean_of

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
    if spread.p_value < 0.04:
        assert not low <= 0.0 <= high
    if spread.p_value > 0.06:
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
    assert isinstance(reason, str)
    assert reason.endswith("requests would do")
    needed = int(reason.split("about ")[1].split()[0].replace(",", ""))
    assert needed > 2_000


def test_lengths_explain_the_difference_that_they_make() -> None:
    """Two runs of one server, of which one happened to be asked for longer prompts."""
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
    assert within_runs(steady, drifting, 0.1) == DRIFTS
    assert within_pairs(steady, drifting, 0.1) == DRIFTS


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
    variances = [one.standard_error**2 for one in means]
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
    near, far = _in_turn(1_000, shift=0.02), _in_turn(1_000, shift=5.0)[::-1]
    za = np.hstack([_in_turn(1_000), _signs(3, 1_000)[:, np.newaxis]])
    zb = np.hstack([near, _signs(4, 1_000)[:, np.newaxis] + 5.0])
    assert far.shape == near.shape
    spread = within_runs(_contributions(za[:, 0] - 0.5, za), _contributions(zb[:, 0] - 0.52, zb), 1.0)
    assert isinstance(spread, Spread)
    assert spread.estimate == 1.0


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
    """Requests whose lengths are the same but for rounding must not be explained by the rounding."""
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


@pytest.mark.parametrize(("n", "needed"), [(1_000, "3,800"), (2_000, "7,500"), (100, "380"), (240, "900")])
def test_a_correlated_run_names_how_many_requests_would_be_worth_enough(n: int, needed: str) -> None:
    """30 independent values are needed, of a wave that is worth 8 whatever its length."""
    wave = _wave(n) + 0.01 * _signs(2, n)
    slightly = 1e-3 * _signs(1, n)
    for a, b in ((wave, wave + slightly), (slightly, wave), (wave, slightly)):
        reason = within_pairs(_contributions(a), _contributions(b), 0.0)
        assert reason == f"n as good as 8; about {needed} requests would do"


@pytest.mark.parametrize(
    ("n", "reason"),
    [(29, "n as good as 29; about 30 requests would do"), (3, "n as good as 3; about 30 requests would do"), (30, None)],
)
def test_thirty_pairs_of_independent_values_are_enough(n: int, reason: str | None) -> None:
    signs = _signs(1, n)
    spread = within_pairs(_contributions(signs), _contributions(signs * 0.5), 0.0)
    assert isinstance(spread, Spread) if reason is None else spread == reason


def test_a_single_run_of_too_few_values_has_no_error() -> None:
    few, enough = _contributions(_signs(1, 99)), _contributions(_signs(1, 100))
    assert within_runs(few, enough, 0.0) == within_runs(enough, few, 0.0) == TOO_FEW
    assert isinstance(within_runs(enough, enough, 0.0), Spread)
    assert within_runs(_contributions(_wave(1_000)), enough, 0.0) != TOO_FEW
    assert str(within_runs(_contributions(_wave(1_000)), enough, 0.0)).startswith("n as good as")


def _with_bursts(size: int, every: int, length: int) -> Values:
    """Values below 1 in random order, and ``length`` neighbours above 1 in the middle of each ``every`` values."""
    values = np.random.default_rng(1).permutation(np.linspace(0.1, 0.9, size))
    for start in range(every // 2, size, every):
        values[start : start + length] += 1.0
    return values


@pytest.mark.parametrize(("q", "turned"), [(0.99, False), (0.01, True)])
def test_bursts_beyond_a_percentile_are_counted_as_clusters(q: float, turned: bool) -> None:
    """Of 2,000 values 20 are beyond p99, in two bursts of 10, or below p1 of the negative values."""
    bursts = _with_bursts(2_000, 1_000, 10)
    values = 3.0 - bursts if turned else bursts
    run = percentile(values, q)
    assert run.value is not None
    effect = mean_of((values > run.value).astype(float)).long_run.effect
    clusters = 20.0 / ((1.0 + effect) / 2.0)
    assert clusters < 5.0
    needed = math.ceil(2_000 * 5.0 / clusters / 100.0) * 100
    calm = percentile(_latencies(5), q)
    expected = f"values beyond it in {clusters:.0f} clusters, 5 needed; about {needed:,} requests would do"
    assert quantiles_within_runs(q, run, calm) == quantiles_within_runs(q, calm, run) == expected
