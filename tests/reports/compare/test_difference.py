"""Differences: exact cases, laws, and how often equal runs are called different."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.compare.difference import (
    Evidence,
    Spread,
    Verdict,
    between_pairs,
    between_runs,
    compare_measures,
    crossings,
    holm,
    within_pairs,
    within_runs,
)
from reports.compare.measures import Measure, Measured, percentile
from reports.metrics.catalogue import REQUEST_THROUGHPUT, TTFT
from reports.statistics.autocorrelation import DRIFTS

LATENCY = Measure(TTFT, 0.50)
RATE = Measure(REQUEST_THROUGHPUT)


def _run(rng: np.random.Generator, size: int = 1_000, scale: float = 1.0) -> Measured:
    return percentile(rng.lognormal(0.0, 0.3, size) * 20.0 * scale, 0.5)


def _known(value: float) -> Measured:
    return Measured(value, np.zeros(0))


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_monotone_never_lowers_a_p_value_and_is_bonferroni_for_the_smallest(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= a <= 1.0 for p, a in zip(p_values, adjusted, strict=True))
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert sorted(adjusted) == [adjusted[i] for i in order]
    if p_values:
        assert adjusted[order[0]] == min(1.0, p_values[order[0]] * len(p_values))


def test_holm_of_a_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_welch_between_runs_agrees_with_scipy() -> None:
    from scipy.stats import ttest_ind

    a, b = np.array([1.0, 1.1, 0.9, 1.05]), np.array([1.2, 1.3, 1.25])
    assert between_runs(a, b).p_value == pytest.approx(ttest_ind(b, a, equal_var=False).pvalue)


def test_paired_runs_agree_with_scipy() -> None:
    from scipy.stats import ttest_rel

    a, b = np.array([1.0, 1.1, 0.9, 1.05]), np.array([1.1, 1.15, 1.02, 1.12])
    assert between_pairs(a, b).p_value == pytest.approx(ttest_rel(b, a).pvalue)


def test_a_side_with_one_run_borrows_the_others_variance() -> None:
    spread = between_runs(np.array([1.0]), np.array([2.0, 2.2, 2.1]))
    assert spread.freedom == 2
    assert spread.error == pytest.approx(0.1 * math.sqrt(1 + 1 / 3))


def test_equal_runs_do_not_differ_and_have_p_1() -> None:
    run = _run(np.random.default_rng(1))
    (difference,) = compare_measures(
        [LATENCY], [{"p50_ttft": run}], [{"p50_ttft": run}], requests_paired=True, runs_paired=False
    )
    assert (difference.change, difference.p_value, difference.verdict) == (0.0, 1.0, Verdict.NONE)


def test_pairing_by_request_finds_what_unpaired_runs_hide() -> None:
    rng = np.random.default_rng(2)
    common = rng.lognormal(0.0, 0.6, 1_000) * 20.0
    a = percentile(common * rng.lognormal(0, 0.02, 1_000), 0.5)
    b = percentile(common * rng.lognormal(0, 0.02, 1_000) * 1.03, 0.5)
    estimate = math.log(b.value / a.value)  # type: ignore[operator]
    paired, unpaired = within_pairs(a, b, estimate), within_runs(a, b, estimate)
    assert isinstance(paired, Spread)
    assert isinstance(unpaired, Spread)
    assert paired.p_value < 0.01 < unpaired.p_value
    assert (paired.evidence, unpaired.evidence) == (Evidence.REQUEST_PAIRS, Evidence.REQUESTS)


def test_a_percentile_that_few_requests_cross_is_judged_within_the_runs() -> None:
    """Equal servers with in-flight batching: neighbours move together, so the requests that cross p99 are few, or none."""
    rng = np.random.default_rng(6)
    common = rng.lognormal(0.0, 0.6, 1_000) * 20.0
    slowest = np.sort(common)[-12:]
    a, b = (percentile(common * (1.0 + 0.01 * np.isin(common, slowest) * k), 0.99) for k in (0, 1))
    assert crossings(a, b) == 0
    measure = Measure(TTFT, 0.99)
    (difference,) = compare_measures(
        [measure], [{measure.name: a}], [{measure.name: b}], requests_paired=True, runs_paired=False
    )
    assert (difference.evidence, difference.verdict) == (Evidence.REQUESTS, Verdict.NONE)
    assert difference.change == pytest.approx(0.01)


@pytest.mark.parametrize(("swaps", "evidence"), [(9, Evidence.REQUESTS), (10, Evidence.REQUEST_PAIRS)])
def test_twenty_crossings_of_a_percentile_are_evidence_of_pairs(swaps: int, evidence: Evidence) -> None:
    values = np.random.default_rng(7).permutation(np.linspace(10.0, 20.0, 1_000))
    order = np.argsort(values)
    low, high = order[300 : 300 + swaps], order[600 : 600 + swaps]
    swapped = values.copy()
    swapped[low], swapped[high] = values[high], values[low]
    a, b = percentile(values, 0.5), percentile(swapped, 0.5)
    (difference,) = compare_measures(
        [LATENCY], [{LATENCY.name: a}], [{LATENCY.name: b}], requests_paired=True, runs_paired=False
    )
    assert crossings(a, b) == 2 * swaps
    assert difference.evidence is evidence


def test_a_run_that_drifts_is_not_judged() -> None:
    rng = np.random.default_rng(3)
    steady, drifting = _run(rng), percentile(np.linspace(10, 40, 1_000) * rng.lognormal(0, 0.05, 1_000), 0.5)
    assert within_runs(steady, drifting, 0.1) == DRIFTS


@pytest.mark.parametrize(("measure", "b", "verdict"), [(LATENCY, 30.0, Verdict.WORSE), (RATE, 30.0, Verdict.BETTER)])
def test_a_higher_value_is_worse_or_better_by_the_measure(measure: Measure, b: float, verdict: Verdict) -> None:
    a_runs = [{measure.name: _known(v)} for v in (20.0, 20.1, 19.9)]
    b_runs = [{measure.name: _known(b * f)} for f in (1.0, 1.01, 0.99)]
    (difference,) = compare_measures([measure], a_runs, b_runs, requests_paired=False, runs_paired=False)
    assert difference.verdict is verdict
    assert difference.change == pytest.approx(0.5, abs=0.01)


def test_an_unknown_value_has_an_unknown_difference_and_does_not_join_the_family() -> None:
    rng = np.random.default_rng(4)
    unknown = Measured(None, np.zeros(10), "n too small")
    found = compare_measures(
        [LATENCY, RATE],
        [{"p50_ttft": _run(rng), "request_throughput": unknown}],
        [{"p50_ttft": _run(rng), "request_throughput": unknown}],
        requests_paired=False,
        runs_paired=False,
    )
    assert found[1].verdict is Verdict.UNKNOWN
    assert found[1].reason == "n too small"
    assert found[0].p_adjusted == found[0].p_value


def test_the_smallest_difference_shown_is_found_in_about_80_percent_of_runs() -> None:
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(200):
        a, b = _run(rng), _run(rng)
        estimate = math.log(b.value / a.value)  # type: ignore[operator]
        spread = within_runs(a, b, estimate)
        if isinstance(spread, Spread):
            shifted = Spread(estimate + spread.smallest_shown(0.05), spread.error, spread.freedom, spread.evidence)
            found += shifted.p_value < 0.05
    assert 0.70 <= found / 200 <= 0.90
