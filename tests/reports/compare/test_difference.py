"""Differences: exact cases, laws, and how often equal runs are called different."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.compare.difference import Verdict, between_pairs, between_runs, compare_measures, holm
from reports.compare.measures import Measure, Measured, percentile
from reports.compare.single_runs import quantiles_within_runs
from reports.compare.spread import Evidence, Spread
from reports.metrics.catalogue import E2E, REQUEST_THROUGHPUT, TTFT
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


def test_a_run_that_drifts_is_not_judged() -> None:
    rng = np.random.default_rng(3)
    drifting = percentile(np.linspace(10, 40, 1_000) * rng.lognormal(0, 0.05, 1_000), 0.5)
    assert quantiles_within_runs(0.5, _run(rng), drifting) == DRIFTS


def test_spread_of_repeated_runs_is_that_of_their_difference() -> None:
    spread = between_runs(np.array([1.0, 1.2]), np.array([2.0, 2.2]))
    assert isinstance(spread, Spread)
    assert spread.evidence is Evidence.RUNS
    assert spread.estimate == pytest.approx(1.0)


def test_no_change_is_named_as_shown_where_none_would_have_been() -> None:
    """Of 700 requests, seven are above p99: too few for a change of any size to be certain of detection."""
    family = [Measure(metric, q) for metric in (TTFT, E2E) for q in (0.5, 0.8, 0.9, 0.99)]
    runs = [
        {one.name: percentile(np.random.default_rng(seed).lognormal(0.0, 0.3, 700), one.q or 0.0) for one in family}
        for seed in (1, 3)
    ]
    found = compare_measures(family, runs[:1], runs[1:], requests_paired=False, runs_paired=False)
    by_name = {difference.measure.name: difference for difference in found}
    assert by_name["p99_ttft"].verdict is Verdict.NONE
    assert by_name["p99_ttft"].interval is not None
    assert by_name["p99_ttft"].smallest_shown is None
    assert by_name["p50_ttft"].smallest_shown is not None
