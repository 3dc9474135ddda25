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
from reports.statistics.autocorrelation import DRIFTS

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
