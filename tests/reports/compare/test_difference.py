"""Differences: exact cases, laws, and how often equal runs are called different."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.compare.conditions import check_conditions, parse_condition
from reports.compare.difference import Difference, Verdict, between_pairs, between_runs, compare_measures
from reports.compare.looks import Looks, weighted_holm
from reports.compare.measures import Measure, Measured, mean, percentile, share
from reports.compare.single_runs import quantiles_within_runs, within_runs
from reports.compare.spread import Evidence, Spread
from reports.gates.gate import Status
from reports.metrics.catalogue import E2E, FAILED_SHARE, OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT, TPOT, TTFT
from reports.statistics.autocorrelation import mean_of
from reports.statistics.estimate import Cause, OtherSchedules, TooFew

LATENCY = Measure(TTFT, 0.50)
RATE = Measure(REQUEST_THROUGHPUT)
FAILURES = Measure(FAILED_SHARE)
LATENCY_MEAN = Measure(TPOT)


def _run(rng: np.random.Generator, size: int = 1_000, scale: float = 1.0) -> Measured:
    return percentile(rng.lognormal(0.0, 0.3, size) * 20.0 * scale, 0.5)


def _known(value: float) -> Measured:
    return Measured(value, np.zeros(0))


def holm(p_values: list[float]) -> list[float]:
    """The adjusted p-values of measures of equal weight."""
    return weighted_holm(p_values, [1.0] * len(p_values))


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


def test_an_adjusted_p_value_is_at_most_1() -> None:
    assert holm([0.9, 0.8]) == [1.0, 1.0]


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
    unknown = Measured(None, np.zeros(10), TooFew(9, 100))
    found = compare_measures(
        [LATENCY, RATE],
        [{"p50_ttft": _run(rng), "request_throughput": unknown}],
        [{"p50_ttft": _run(rng), "request_throughput": unknown}],
        requests_paired=False,
        runs_paired=False,
    )
    assert found[1].verdict is Verdict.UNKNOWN
    assert found[1].reason == TooFew(9, 100)
    assert found[0].p_adjusted == found[0].p_value


def test_a_run_that_drifts_is_not_judged() -> None:
    rng = np.random.default_rng(3)
    drifting = percentile(np.linspace(10, 40, 1_000) * rng.lognormal(0, 0.05, 1_000), 0.5)
    assert quantiles_within_runs(0.5, _run(rng), drifting) == Cause.DRIFTS


def test_spread_of_repeated_runs_is_that_of_their_difference() -> None:
    spread = between_runs(np.array([1.0, 1.2]), np.array([2.0, 2.2]))
    assert isinstance(spread, Spread)
    assert spread.evidence is Evidence.RUNS
    assert spread.estimate == pytest.approx(1.0)


def test_no_change_is_named_as_shown_where_none_would_have_been() -> None:
    """Among 700 requests, seven are above p99: too few for a change of any size to be certain of detection."""
    family = [Measure(metric, q) for metric in (TTFT, E2E) for q in (0.5, 0.8, 0.9, 0.99)]
    runs = [
        {measure.name: percentile(np.random.default_rng(seed).lognormal(0.0, 0.3, 700), measure.q or 0.0) for measure in family}
        for seed in (1, 3)
    ]
    found = compare_measures(family, runs[:1], runs[1:], requests_paired=False, runs_paired=False)
    by_name = {difference.measure.name: difference for difference in found}
    assert by_name["p99_ttft"].verdict is Verdict.NONE
    assert by_name["p99_ttft"].interval is not None
    assert by_name["p99_ttft"].smallest_shown is None
    assert by_name["p50_ttft"].smallest_shown is not None


# ---- exact cases


def _repeated(measure: Measure, a: list[float], b: list[float], *, paired: bool = False) -> Difference:
    """The difference of runs with these values."""
    a_runs, b_runs = ([{measure.name: _known(value)} for value in side] for side in (a, b))
    (difference,) = compare_measures([measure], a_runs, b_runs, requests_paired=False, runs_paired=paired)
    return difference


def test_paired_runs_of_a_worked_example() -> None:
    spread = between_pairs(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))  # differences of 1, 2 and 3
    assert (spread.estimate, spread.freedom, spread.evidence) == (2.0, 2.0, Evidence.RUN_PAIRS)
    assert spread.error == pytest.approx(1.0 / math.sqrt(3.0))


def test_welch_of_a_worked_example() -> None:
    """Variances of 2 and 8, of 2 and 4 runs: 1 + 2 = 3, with 9 / (1/1 + 4/3) degrees of freedom."""
    a, b = np.array([1.0, 3.0]), 10.0 + math.sqrt(6.0) * np.array([-1.0, 1.0, -1.0, 1.0])
    spread = between_runs(a, b)
    assert (spread.estimate, spread.error) == (pytest.approx(8.0), pytest.approx(math.sqrt(3.0)))
    assert spread.freedom == pytest.approx(9.0 / (1.0 + 4.0 / 3.0))


def test_either_side_with_one_run_borrows_the_others_variance() -> None:
    spread = between_runs(np.array([2.0, 2.2, 2.1]), np.array([1.0]))
    assert (spread.estimate, spread.freedom) == (pytest.approx(-1.1), 2.0)
    assert spread.error == pytest.approx(0.1 * math.sqrt(1 / 3 + 1))


def test_constant_runs_have_no_error_and_the_degrees_of_freedom_of_all() -> None:
    spread = between_runs(np.array([5.0] * 3), np.array([6.0] * 4))
    assert (spread.estimate, spread.error, spread.freedom) == (1.0, 0.0, 5.0)


def test_a_constant_ratio_of_runs_is_certain_and_has_no_interval() -> None:
    """The geometric means of 16 and 64, and of 32 and 128 ms, are 32 and 64 ms, and B is twice A in both blocks."""
    difference = _repeated(LATENCY, [16.0, 64.0], [32.0, 128.0], paired=True)
    assert (difference.a, difference.b) == (pytest.approx(32.0), pytest.approx(64.0))
    assert difference.change == pytest.approx(1.0)
    assert difference.difference == pytest.approx(32.0)
    assert (difference.p_value, difference.p_adjusted, difference.verdict) == (0.0, 0.0, Verdict.WORSE)
    assert (difference.interval, difference.smallest_shown, difference.reason) == (None, None, Cause.NO_SPREAD)
    assert difference.evidence is Evidence.RUN_PAIRS


def test_a_relative_difference_is_of_logarithms_and_is_read_as_a_share() -> None:
    """Logarithms of 10 and 40, and of 20 and 80: each side has a variance of log(4)² / 2, so the error is log(4) / √2."""
    from scipy.stats import t

    difference = _repeated(LATENCY, [10.0, 40.0], [20.0, 80.0])
    error = math.log(4.0) / math.sqrt(2.0)
    half = float(t.ppf(0.975, 2)) * error
    assert difference.change == pytest.approx(1.0)
    assert difference.interval == pytest.approx((2.0 * math.exp(-half) - 1.0, 2.0 * math.exp(half) - 1.0))
    assert difference.smallest_shown == pytest.approx(math.expm1((t.ppf(0.975, 2) + t.ppf(0.8, 2)) * error))
    assert difference.p_value == pytest.approx(2.0 * t.sf(math.log(2.0) / error, 2))
    assert (difference.verdict, difference.reason, difference.evidence) == (Verdict.NONE, None, Evidence.RUNS)


def test_a_share_of_failures_differs_in_points() -> None:
    """0.1 and 0.3 against 0.2 and 0.4: means of 0.2 and 0.3, variances of 0.02."""
    from scipy.stats import t

    difference = _repeated(FAILURES, [0.1, 0.3], [0.2, 0.4])
    assert (difference.a, difference.b, difference.change) == pytest.approx((0.2, 0.3, 0.1))
    half = float(t.ppf(0.975, 2)) * math.sqrt(0.02)
    assert difference.interval == pytest.approx((0.1 - half, 0.1 + half))


@pytest.mark.parametrize("paired", [False, True])
def test_one_failure_in_each_repeat_of_a_side_is_no_certainty(paired: bool) -> None:
    """Two repeats of 700 requests with one failure each, against none: equal servers do so in one comparison of fifteen."""
    failed = np.zeros(700)
    failed[350] = 1.0
    sides = [[{"failed_share": share(happened)}] * 2 for happened in (np.zeros(700), failed)]
    (difference,) = compare_measures([FAILURES], *sides, requests_paired=False, runs_paired=paired)
    assert difference.change == pytest.approx(1 / 700)
    assert difference.interval is not None
    assert difference.interval[0] < 0.0 < difference.interval[1]
    assert (difference.verdict, difference.reason) == (Verdict.NONE, None)


def test_repeats_without_a_spread_have_the_error_of_their_counts() -> None:
    """One failure among 700 in each of two runs, and none in three: the error of one run over the root of two."""
    failed = np.zeros(700)
    failed[350] = 1.0
    a, b = ([{"failed_share": share(happened)}] * runs for happened, runs in ((np.zeros(700), 3), (failed, 2)))
    (difference,) = compare_measures([FAILURES], a, b, requests_paired=False, runs_paired=False)
    assert difference.spread is not None
    assert difference.spread.error == pytest.approx(mean_of(failed).standard_error / math.sqrt(2.0))
    assert mean_of(failed).standard_error == pytest.approx(1 / 700, rel=0.5)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(("repeats", "n"), [(3, 2_000), (5, 300), (5, 600), (6, 1_200)])
def test_a_rounded_sum_of_equal_repeats_is_no_certainty(repeats: int, n: int, paired: bool) -> None:
    """The mean of five times 1/300 is another number in floats, and their variance not 0: p was 1e-64."""
    failed = np.zeros(n)
    failed[n // 2] = 1.0
    sides = [[{"failed_share": share(happened)}] * repeats for happened in (np.zeros(n), failed)]
    (difference,) = compare_measures([FAILURES], *sides, requests_paired=False, runs_paired=paired)
    assert difference.verdict is Verdict.NONE
    assert difference.interval is not None
    assert difference.interval[0] < 0.0 < difference.interval[1]


@pytest.mark.parametrize(
    ("n", "fewer"), [(300, (1, 2)), (700, (1, 2, 3)), (1_000, (8, 9)), (5_000, (0, 1, 2))], ids=lambda given: f"{given}"
)
def test_one_failure_more_in_each_block_is_no_certainty(n: int, fewer: tuple[int, ...]) -> None:
    """In floats 2/300 − 1/300 is not 3/300 − 2/300, so that the differences of the blocks vary by a rounding error: p was 0."""
    sides = [[{"failed_share": share(np.arange(n) < count + more)} for count in fewer] for more in (0, 1)]
    (difference,) = compare_measures([FAILURES], *sides, requests_paired=False, runs_paired=True)
    assert difference.change == pytest.approx(1 / n)
    assert difference.verdict is Verdict.NONE
    assert difference.interval is not None
    assert difference.interval[0] < 0.0 < difference.interval[1]


@pytest.mark.parametrize("value", [8.7, 21.4, 37.3, 318.8])
def test_equal_values_are_equal_whatever_their_number(value: float) -> None:
    """Sums of equal values are rounded by another amount for each number of them."""
    for sizes in ((700, 500), (1_000, 333), (2_000, 700)):
        a, b = ([{"mean_tpot": mean(np.full(size, value))}] for size in sizes)
        (single,) = compare_measures([LATENCY_MEAN], a, b, requests_paired=False, runs_paired=False)
        assert (single.change, single.p_value, single.verdict) == (0.0, 1.0, Verdict.NONE)
        (repeated,) = compare_measures([LATENCY_MEAN], a * 7, a * 2, requests_paired=False, runs_paired=False)
        assert (repeated.change, repeated.p_value, repeated.reason) == (0.0, 1.0, Cause.NO_SPREAD)


def test_failures_of_all_requests_of_all_repeats_are_certain() -> None:
    sides = [[{"failed_share": share(np.full(700, value))}] * 2 for value in (0.0, 1.0)]
    (difference,) = compare_measures([FAILURES], *sides, requests_paired=False, runs_paired=False)
    assert (difference.verdict, difference.reason) == (Verdict.WORSE, Cause.NO_SPREAD)


@pytest.mark.parametrize(("lower", "quantile"), [(True, 0.05), (False, 0.95)])
def test_a_one_sided_bound_leaves_the_significance_on_one_side(lower: bool, quantile: float) -> None:
    from scipy.stats import t

    difference = _repeated(LATENCY, [10.0, 40.0], [20.0, 80.0])
    error = math.log(4.0) / math.sqrt(2.0)
    assert difference.bound(lower, 0.05) == pytest.approx(2.0 * math.exp(float(t.ppf(quantile, 2)) * error) - 1.0)


def test_an_immeasurable_change_is_read_without_overflow() -> None:
    difference = _repeated(LATENCY, [1e-200, 1.1e-200], [1e200, 1.1e200])
    assert difference.change == pytest.approx(math.expm1(50.0))


def test_measures_are_judged_together_and_the_smallest_change_shown_is_of_the_first_step() -> None:
    from scipy.stats import t

    a, b = [100.0, 101.0, 99.0], [103.0, 104.0, 102.0]
    measures = [LATENCY, Measure(E2E, 0.5), RATE]
    alone = _repeated(LATENCY, a, b)
    a_runs, b_runs = ([{m.name: _known(v) for m in measures} for v in side] for side in (a, b))
    found = compare_measures(measures, a_runs, b_runs, requests_paired=False, runs_paired=False)
    assert alone.p_value is not None
    assert alone.p_value < 0.05 < 3.0 * alone.p_value
    assert alone.verdict is Verdict.WORSE
    for difference in found:
        assert difference.p_adjusted == pytest.approx(3.0 * alone.p_value)
        assert difference.verdict is Verdict.NONE
    assert alone.spread is not None
    freedom = alone.spread.freedom
    assert found[0].smallest_shown == pytest.approx(
        math.expm1(float(t.ppf(1.0 - 0.05 / 6.0, freedom) + t.ppf(0.8, freedom)) * alone.spread.error)
    )


def test_the_measure_that_decides_has_four_fifths_of_the_significance_and_the_others_the_rest() -> None:
    """All have p. The first of Holm's steps has p / 0.8; the rest, with a tenth each, share what is left: p / 0.1 · 0.2."""
    measures = [LATENCY, Measure(E2E, 0.5), RATE]
    sides = ((100.0, 101.0, 99.0, 100.5), (102.0, 104.0, 101.5, 101.0))
    unknown = {"mean_tpot": Measured(None, np.zeros(10), TooFew(9, 100))}
    a_runs, b_runs = ([{m.name: _known(v) for m in measures} | unknown for v in side] for side in sides)
    first, *others, without = compare_measures(
        [*measures, LATENCY_MEAN], a_runs, b_runs, requests_paired=False, runs_paired=True, looks=Looks(10, "p50_ttft")
    )
    assert (without.verdict, without.reason) == (Verdict.UNKNOWN, TooFew(9, 100))
    assert first.p_value is not None
    assert 0.0 < first.p_value < 0.5
    assert first.p_adjusted == pytest.approx(first.p_value / 0.8)
    assert [other.p_adjusted for other in others] == pytest.approx([2.0 * first.p_value] * 2)
    assert first.smallest_shown is not None
    assert others[0].smallest_shown is not None
    assert first.smallest_shown < others[0].smallest_shown


def _of_requests(value: float, deviation: float, seed: int) -> Measured:
    """A run whose contributions are ±``deviation``, all of which lengths would explain."""
    sample = deviation * np.random.default_rng(seed).choice([-1.0, 1.0], 1_000)
    return Measured(value, sample, covariates=sample[:, np.newaxis])


def test_repeats_of_other_schedules_have_the_larger_error_of_a_pair_beside_their_own() -> None:
    """Welch's sum of two variances: that of the repeats, and that of the second runs, with what their lengths would explain."""
    a, b = [_of_requests(10.0, 0.1, 1), _of_requests(10.2, 0.3, 2)], [_of_requests(12.0, 0.1, 3), _of_requests(12.5, 0.2, 4)]
    (difference,) = compare_measures(
        [LATENCY_MEAN], *([{"mean_tpot": run} for run in side] for side in (a, b)),
        requests_paired=False, runs_paired=False, schedules_apart=True,
    )  # fmt: skip
    runs = between_runs(*(np.log([run.value for run in side]) for side in (a, b)))
    within = within_runs(*(Measured(run.value, run.sample) for run in (a[1], b[1])), 0.0)
    assert isinstance(within, Spread)
    assert within.error == pytest.approx(math.sqrt((0.3**2 + 0.2**2) / 1_000), rel=0.3)
    found = difference.spread
    assert isinstance(found, Spread)
    assert (found.evidence, found.estimate) == (Evidence.SCHEDULES, pytest.approx(runs.estimate))
    assert found.error == pytest.approx(math.hypot(runs.error, within.error))
    assert found.freedom == pytest.approx(found.error**4 / (runs.error**4 / runs.freedom + within.error**4 / within.freedom))


@pytest.mark.parametrize("fewer", ["a", "b"])
def test_one_run_against_repeats_of_another_schedule_has_the_error_of_the_first_pair(fewer: str) -> None:
    several, alone = [_of_requests(10.0, 0.1, 1), _of_requests(10.2, 0.3, 2)], [_of_requests(12.0, 0.1, 3)]
    sides = (alone, several) if fewer == "a" else (several, alone)
    (difference,) = compare_measures(
        [LATENCY_MEAN], *([{"mean_tpot": run} for run in side] for side in sides),
        requests_paired=False, runs_paired=False, schedules_apart=True,
    )  # fmt: skip
    runs = between_runs(*(np.log([run.value for run in side]) for side in sides))
    within = within_runs(*(Measured(side[0].value, side[0].sample) for side in sides), 0.0)
    assert isinstance(within, Spread)
    assert difference.spread is not None
    assert difference.spread.error == pytest.approx(math.hypot(runs.error, within.error))


def test_repeats_of_other_schedules_without_any_variation_have_no_error() -> None:
    a, b = ([{"mean_tpot": Measured(value, np.zeros(200))}] * 3 for value in (10.0, 11.0))
    (difference,) = compare_measures([LATENCY_MEAN], a, b, requests_paired=False, runs_paired=False, schedules_apart=True)
    assert isinstance(difference.spread, Spread)
    assert (difference.spread.error, difference.spread.freedom, difference.reason) == (0.0, 8.0, Cause.NO_SPREAD)


def test_what_a_schedule_changes_is_unknown_where_a_run_is_too_short_to_know_its_error() -> None:
    few = {"mean_tpot": Measured(10.0, np.zeros(99))}
    (difference,) = compare_measures(
        [LATENCY_MEAN], [few] * 2, [few] * 2, requests_paired=False, runs_paired=False, schedules_apart=True
    )
    assert (difference.verdict, difference.reason) == (Verdict.UNKNOWN, OtherSchedules(TooFew(99, 100)))
    assert str(difference.reason) == "other schedules: n too small"
    waves = []
    for seed in (0, 1):
        level, levels = 0.0, []
        for step in np.random.default_rng(seed).normal(0.0, 0.2, 120):
            level = 0.9 * level + step
            levels.append(level)
        waves.append([{"p50_ttft": percentile(np.exp(levels), 0.5)}] * 2)
    (difference,) = compare_measures([LATENCY], *waves, requests_paired=False, runs_paired=False, schedules_apart=True)
    assert (difference.verdict, difference.reason) == (Verdict.UNKNOWN, OtherSchedules(Cause.SHORT_RUNS))


@pytest.mark.parametrize("singly", ["a", "b"])
def test_a_measure_that_a_run_lacks_is_left_out(singly: str) -> None:
    whole, lacking = {"p50_ttft": _known(20.0), "request_throughput": _known(5.0)}, {"p50_ttft": _known(20.0)}
    sides = ([whole, lacking], [whole, whole]) if singly == "a" else ([whole, whole], [lacking, whole])
    found = compare_measures([LATENCY, RATE], *sides, requests_paired=False, runs_paired=False)
    assert [difference.measure for difference in found] == [LATENCY]


def _series(value: float, shift: float, evenly: int = 1_000) -> Measured:
    """A mean of ``value`` with contributions of ±shift in turn, which are not correlated."""
    return Measured(value, shift * np.random.default_rng(1).choice([-1.0, 1.0], evenly))


@pytest.mark.parametrize(
    ("measure", "b", "verdict"),
    [
        (RATE, 30.0, Verdict.STARTS_BETTER),
        (RATE, 15.0, Verdict.STARTS_WORSE),
        (LATENCY_MEAN, 30.0, Verdict.STARTS_WORSE),
        (LATENCY_MEAN, 15.0, Verdict.STARTS_BETTER),
    ],
)
@pytest.mark.parametrize("paired", [True, False])
def test_of_single_runs_the_verdict_is_about_these_starts(measure: Measure, b: float, verdict: Verdict, paired: bool) -> None:
    a_runs, b_runs = [{measure.name: _series(20.0, 0.1)}], [{measure.name: _series(b, 0.11)}]
    (difference,) = compare_measures([measure], a_runs, b_runs, requests_paired=paired, runs_paired=False)
    assert difference.verdict is verdict
    assert difference.evidence is (Evidence.REQUEST_PAIRS if paired else Evidence.REQUESTS)
    assert difference.change == pytest.approx(b / 20.0 - 1.0)
    assert (difference.verdict.is_better, difference.verdict.is_worse) == (
        verdict is Verdict.STARTS_BETTER,
        verdict is Verdict.STARTS_WORSE,
    )


def test_paired_quantiles_without_enough_crossings_are_compared_as_unpaired_ones() -> None:
    rng = np.random.default_rng(1)
    values = rng.lognormal(0.0, 0.3, 1_000)
    runs = [{"p50_ttft": percentile(values * factor, 0.5)} for factor in (1.0, 1.0)]
    (difference,) = compare_measures([LATENCY], runs[:1], runs[1:], requests_paired=True, runs_paired=False)
    assert difference.evidence is Evidence.REQUESTS
    crossed = [{"p50_ttft": percentile(v, 0.5)} for v in (values, values * rng.lognormal(0.0, 0.2, 1_000))]
    (difference,) = compare_measures([LATENCY], crossed[:1], crossed[1:], requests_paired=True, runs_paired=False)
    assert difference.evidence is Evidence.REQUEST_PAIRS
    (difference,) = compare_measures([LATENCY], crossed[:1], crossed[1:], requests_paired=False, runs_paired=False)
    assert difference.evidence is Evidence.REQUESTS


@pytest.mark.parametrize(
    ("measure", "a", "b", "change"),
    [
        (LATENCY, 20.0, 30.0, 0.5),
        (LATENCY, 0.5, 0.75, 0.5),
        (LATENCY, 0.0, 30.0, None),
        (LATENCY, None, 30.0, None),
        (LATENCY, 20.0, None, None),
        (FAILURES, 0.0, 0.25, 0.25),
        (FAILURES, 0.5, 0.25, -0.25),
    ],
)
def test_the_change_of_values_whose_error_is_unknown(
    measure: Measure, a: float | None, b: float | None, change: float | None
) -> None:
    a_runs, b_runs = ([{measure.name: Measured(value, np.zeros(3), TooFew(9, 100))}] for value in (a, b))
    (difference,) = compare_measures([measure], a_runs, b_runs, requests_paired=False, runs_paired=False)
    assert (difference.a, difference.b, difference.change) == tuple(map(pytest.approx, (a, b, change)))
    assert (difference.measure, difference.verdict, difference.reason) == (measure, Verdict.UNKNOWN, TooFew(9, 100))
    assert (difference.interval, difference.smallest_shown, difference.p_value, difference.p_adjusted) == (None,) * 4
    assert difference.evidence is None
    assert difference.bound(True, 0.05) is None
    assert difference.difference == pytest.approx(None if a is None or b is None else b - a)


@pytest.mark.parametrize("unknown_in", ["a", "b"])
def test_one_unknown_run_makes_the_difference_of_repeated_runs_unknown(unknown_in: str) -> None:
    known = [{"p50_ttft": _known(20.0)}, {"p50_ttft": _known(45.0)}]
    partly = [{"p50_ttft": _known(20.0)}, {"p50_ttft": Measured(None, np.zeros(3), Cause.REACHES_FAILED)}]
    sides = (partly, known) if unknown_in == "a" else (known, partly)
    (difference,) = compare_measures([LATENCY], *sides, requests_paired=False, runs_paired=False)
    assert (difference.verdict, difference.reason) == (Verdict.UNKNOWN, Cause.REACHES_FAILED)
    assert (difference.a, difference.b) == ((None, pytest.approx(30.0)) if unknown_in == "a" else (pytest.approx(30.0), None))


@pytest.mark.parametrize(("a", "b"), [([10.0], [20.0, 30.0]), ([20.0, 30.0], [10.0])])
def test_one_run_against_two_is_judged_by_repeated_runs(a: list[float], b: list[float]) -> None:
    difference = _repeated(LATENCY, a, b)
    assert (difference.evidence, difference.reason) == (Evidence.RUNS, None)


def test_a_middle_of_runs_below_1_is_geometric() -> None:
    assert _repeated(RATE, [0.25, 1.0], [0.5, 2.0]).a == pytest.approx(0.5)


def test_a_middle_of_runs_with_a_value_of_0_is_arithmetic() -> None:
    a_runs, b_runs = ([{"p50_ttft": Measured(value, np.zeros(3), Cause.ZEROS)} for value in (0.0, high)] for high in (4.0, 6.0))
    (difference,) = compare_measures([LATENCY], a_runs, b_runs, requests_paired=False, runs_paired=False)
    assert (difference.a, difference.b, difference.change) == (2.0, 3.0, 0.5)


@pytest.mark.parametrize(
    ("verdict", "better", "worse"),
    [
        (Verdict.BETTER, True, False),
        (Verdict.STARTS_BETTER, True, False),
        (Verdict.WORSE, False, True),
        (Verdict.STARTS_WORSE, False, True),
        (Verdict.NONE, False, False),
        (Verdict.UNKNOWN, False, False),
    ],
)
def test_a_verdict_is_better_worse_or_neither(verdict: Verdict, better: bool, worse: bool) -> None:
    assert (verdict.is_better, verdict.is_worse, verdict.differs) == (better, worse, better or worse)


# ---- a throughput of nothing

_TOKENS = Measure(OUTPUT_TOKEN_THROUGHPUT)
_NOTHING = Measured(0.0, np.zeros(1_000), Cause.ALL_ZERO)


def _tokens(value: float) -> Measured:
    return Measured(value, np.random.default_rng(int(value)).normal(0.0, 0.1, 1_000))


@pytest.mark.parametrize(("runs", "paired", "verdict", "evidence"), [
    (1, False, Verdict.STARTS_WORSE, Evidence.REQUESTS),
    (3, False, Verdict.WORSE, Evidence.RUNS),
    (3, True, Verdict.WORSE, Evidence.RUN_PAIRS),
])  # fmt: skip
def test_a_target_that_generates_no_token_any_more_is_worse(
    runs: int, paired: bool, verdict: Verdict, evidence: Evidence
) -> None:
    """The logarithm of 0 has no difference from another one, so that the verdict was unknown, and every condition passed."""
    a, b = [{_TOKENS.name: _tokens(100.0 + k)} for k in range(runs)], [{_TOKENS.name: _NOTHING}] * runs
    (difference,) = compare_measures([_TOKENS], a, b, requests_paired=False, runs_paired=paired)
    assert (difference.verdict, difference.change, difference.b, difference.evidence) == (verdict, -1.0, 0.0, evidence)
    assert (difference.interval, difference.smallest_shown, difference.reason) == (None, None, Cause.ALL_ZERO)
    (result,) = check_conditions([parse_condition("output_token_throughput < -5%")], [difference])
    assert result.status is Status.FAILED
    assert result.why.startswith("changed by -100.0%")


def test_what_is_nothing_in_some_runs_or_in_both_sides_cannot_be_told() -> None:
    some, none = _tokens(100.0), _NOTHING
    for a, b in (([some, some], [none, some]), ([some, none], [none, none]), ([none], [none]), ([none], [some])):
        sides = [[{_TOKENS.name: run} for run in side] for side in (a, b)]
        (difference,) = compare_measures([_TOKENS], *sides, requests_paired=False, runs_paired=False)
        assert (difference.verdict, difference.reason) == (Verdict.UNKNOWN, Cause.ALL_ZERO)
    held_back = [[{LATENCY_MEAN.name: run}] for run in (mean(np.full(200, 10.0)), mean(np.zeros(200)))]
    (difference,) = compare_measures([LATENCY_MEAN], *held_back, requests_paired=False, runs_paired=False)
    assert difference.verdict is Verdict.UNKNOWN  # a proxy that sends all tokens at once makes no server faster
