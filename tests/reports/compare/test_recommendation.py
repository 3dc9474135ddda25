"""What a comparison recommends, against simulated repeats."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bench_records.record import Record
from reports.compare.comparison import Arm, ArmComparison
from reports.compare.difference import Difference, Verdict, between_pairs, between_runs
from reports.compare.measures import Measure
from reports.compare.recommendation import CHANGE, affordable, recommend
from reports.compare.spread import Evidence, Spread
from reports.metrics.catalogue import E2E, TPOT, TTFT
from reports.run_report import RunReport

_P99 = Measure(TTFT, 0.99)


def _difference(spread: Spread | None) -> Difference:
    return Difference(_P99, 1.0, 1.0, 0.0, None, None, None, None, None if spread is None else spread.evidence,
                      Verdict.NONE, None, spread)  # fmt: skip


@pytest.mark.parametrize("evidence", [Evidence.RUNS, Evidence.RUN_PAIRS])
def test_the_recommended_repeats_find_the_change_in_four_of_five_cases(evidence: Evidence) -> None:
    sd, between = 0.03, between_pairs if evidence is Evidence.RUN_PAIRS else between_runs
    error = sd * math.sqrt(2.0 / 3.0)  # of three repeats
    found = recommend([_difference(Spread(0.0, error, 2.0, evidence))], runs=3, requests=3_000)
    assert found is not None
    assert found.requests == 3_000
    rng = np.random.default_rng(1)
    shown = [
        between(rng.normal(0.0, sd, found.repeats), rng.normal(math.log1p(CHANGE), sd, found.repeats)).p_value < 0.05
        for _ in range(400)
    ]
    assert 0.76 < np.mean(shown) < 0.97  # whole runs, so seldom exactly 80 %


def test_single_runs_are_recommended_more_requests_the_larger_their_error() -> None:
    few, many = (recommend([_difference(Spread(0.0, e, 16.0, Evidence.REQUESTS))], 1, 3_000) for e in (0.05, 0.2))
    assert few is not None
    assert many is not None
    assert (few.repeats, many.repeats) == (5, 5)
    assert few.requests >= 3_000
    assert many.requests / few.requests == pytest.approx(16.0, rel=0.2)
    assert few.text == f"To show 5% of TTFT p99 in four of five cases: 5 repeats of about {few.requests:,} requests each."


@pytest.mark.parametrize("spread", [None, Spread(0.0, 0.0, 2.0, Evidence.RUNS), Spread(0.0, 9.0, 2.0, Evidence.RUNS)])
def test_nothing_is_recommended_without_an_error_or_at_no_affordable_number(spread: Spread | None) -> None:
    assert recommend([_difference(spread)], 3, 3_000) is None


@pytest.mark.parametrize(("a", "b"), [(1, 3), (3, 1), (2, 6), (6, 2), (4, 4)])
def test_sides_of_other_numbers_of_runs_are_recommended_as_many_repeats_as_equal_ones(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], a: int, b: int
) -> None:
    """Runs with a standard deviation of 6 %: 25 repeats show 5 % (2.860 · 0.06 · √(2 / 25) < log 1.05), and eight 10 %."""
    run, sd = make_report(steady_run(20)), 0.06
    differences = (_difference(Spread(0.0, sd * math.sqrt(1.0 / a + 1.0 / b), a + b - 2.0, Evidence.RUNS)),)
    sides = Arm("a", (run,) * a), Arm("b", (run,) * b)
    comparison = ArmComparison(*sides, differences, curve=(), pairs=None, disagreements=(), conditions=())
    assert comparison.recommendation is not None
    assert comparison.affordable is not None
    assert (comparison.recommendation.change, comparison.recommendation.repeats) == (0.05, 25)
    assert (comparison.affordable.change, comparison.affordable.repeats) == (0.10, 8)


# ---- numbers worked out by hand


def _named(measure: Measure, spread: Spread | None) -> Difference:
    return replace(_difference(spread), measure=measure)


@pytest.mark.parametrize(
    ("error", "requests", "recommended"),
    [
        # With five runs on each side Student's t with 8 degrees of freedom needs 2.306 + 0.889 errors, here 5 % or log 1.05.
        (0.05, 3_000, 6_500),  # (3.1949 · 0.05 / 0.04879)² / 5 · 3,000 = 6,432
        (0.2, 3_000, 110_000),  # 102,910
        (0.05, 7, 16),  # 15.01
        (0.01, 3_000, 3_000),  # fewer would do
        (0.01, 3_210, 3_300),
        (0.01, 7, 7),
        (0.01, 70, 70),
    ],
)
def test_five_longer_runs_show_what_single_ones_do_not(error: float, requests: int, recommended: int) -> None:
    found = recommend([_difference(Spread(0.0, error, 16.0, Evidence.REQUESTS))], 1, requests)
    assert found is not None
    assert (found.repeats, found.requests, found.change, found.title) == (5, recommended, 0.05, "TTFT p99")


def _error_that_repeats_show(repeats: int, freedom: int, runs: int) -> float:
    """The largest error of ``runs`` repeats of which this many repeats show 5 % in four of five cases."""
    from scipy.stats import t

    return float(math.log(1.05) / (t.ppf(0.975, freedom) + t.ppf(0.8, freedom)) * math.sqrt(repeats / runs))


@pytest.mark.parametrize(
    ("repeats", "evidence", "freedom"),
    [
        (2, Evidence.RUNS, 2),
        (7, Evidence.RUNS, 12),
        (100, Evidence.RUNS, 198),
        (2, Evidence.RUN_PAIRS, 1),
        (7, Evidence.RUN_PAIRS, 6),
        (100, Evidence.RUN_PAIRS, 99),
    ],
)
def test_the_fewest_repeats_that_show_the_change_up_to_a_hundred(repeats: int, evidence: Evidence, freedom: int) -> None:
    limit = _error_that_repeats_show(repeats, freedom, runs=3)
    below, above = (
        recommend([_difference(Spread(0.0, factor * limit, 2.0, evidence))], runs=3, requests=3_000)
        for factor in (0.9999, 1.0001)
    )
    assert below is not None
    assert (below.repeats, below.requests) == (repeats, 3_000)
    if repeats == 100:
        assert above is None
    else:
        assert above is not None
        assert above.repeats == repeats + 1


@pytest.mark.parametrize("tested", [1, 4, 8])
def test_the_more_measures_are_tested_the_smaller_an_error_has_to_be(tested: int) -> None:
    """Holm's first step judges each of them at 5 % of their number; one without an error is not tested."""
    from scipy.stats import t

    limit = math.log(1.05) / (t.ppf(1.0 - 0.025 / tested, 12) + t.ppf(0.8, 12)) * math.sqrt(7 / 3)  # 7 repeats, of 3
    others = [_named(Measure(TPOT), spread) for spread in (*[Spread(0.0, 0.1, 2.0, Evidence.RUNS)] * (tested - 1), None)]
    for factor, repeats in ((0.9999, 7), (1.0001, 8)):
        found = recommend([_difference(Spread(0.0, factor * float(limit), 2.0, Evidence.RUNS)), *others], 3, 3_000)
        assert found is not None
        assert found.repeats == repeats


@pytest.mark.parametrize("without", [None, Spread(0.0, 0.0, 2.0, Evidence.RUNS), Spread(0.0, math.inf, 2.0, Evidence.RUNS)])
def test_the_first_latency_with_an_error_decides_p99_before_p50_and_ttft_before_e2e(without: Spread | None) -> None:
    measures = [Measure(TTFT, 0.99), Measure(E2E, 0.99), Measure(TTFT, 0.5), Measure(E2E, 0.5)]
    known = Spread(0.0, 0.02, 2.0, Evidence.RUNS)
    for number, measure in enumerate(measures):
        differences = [_named(named, without if k < number else known) for k, named in enumerate(measures)]
        for order in (differences, differences[::-1], differences[number:]):
            found = recommend(order, 3, 3_000)
            assert found is not None
            assert found.title == measure.title
    assert recommend([_named(Measure(TPOT), known)], 3, 3_000) is None


def test_no_repeats_are_recommended_of_schedules_that_the_other_side_lacks() -> None:
    """They do not reduce what one schedule differs from another."""
    for evidence, recommended in ((Evidence.RUNS, True), (Evidence.SCHEDULES, False)):
        differences = [_difference(Spread(0.0, 0.02, 8.0, evidence))]
        assert (recommend(differences, 3, 3_000) is not None) is recommended
        assert (affordable(differences, 3, 3_000) is not None) is recommended


def test_no_other_latency_stands_in_for_one_that_no_affordable_number_shows() -> None:
    hopeless, easy = Spread(0.0, 9.0, 2.0, Evidence.RUNS), Spread(0.0, 0.02, 2.0, Evidence.RUNS)
    assert recommend([_named(Measure(TTFT, 0.99), hopeless), _named(Measure(E2E, 0.99), easy)], 3, 3_000) is None


# ---- the smallest change at a bearable cost


@pytest.mark.parametrize(
    ("error", "change", "requests"),
    [
        (0.01, 0.05, 1_000),
        (0.05, 0.05, 2_200),  # (3.195 · 0.05 / log 1.05)² / 5 is 2.145
        (0.1077, 0.05, 10_000),  # (3.195 · 0.1077 / log 1.05)² / 5 is 9.948, of which two digits are 10 times the requests
        (0.15, 0.10, 5_100),  # 5 % would take 19.3 times the requests; (3.195 · 0.15 / log 1.1)² / 5 is 5.06
        (0.50, 0.50, 3_200),  # 20 % would take 15.4 times; (3.195 · 0.5 / log 1.5)² / 5 is 3.1
        (3.00, None, None),  # 100 % would take 38 times
    ],
)
def test_the_smallest_change_that_at_most_ten_times_the_requests_show(
    error: float, change: float | None, requests: int | None
) -> None:
    found = affordable([_difference(Spread(0.0, error, 16.0, Evidence.REQUESTS))], 1, 1_000)
    assert (None if found is None else (found.change, found.repeats, found.requests)) == (
        None if change is None else (change, 5, requests)
    )


@pytest.mark.parametrize(
    ("deviation", "change", "repeats"),
    [
        (0.0565, 0.05, 12),  # 2.932 · 0.0565 / √12 is 0.0478, below log 1.05
        (0.0590, 0.10, 5),  # 5 % would take 13 repeats; 3.195 · 0.059 / √5 is 0.0843, below log 1.1
        (50.0, None, None),  # 100 repeats show no change of _CHANGES
    ],
)
def test_the_smallest_change_that_at_most_twelve_repeats_show(
    deviation: float, change: float | None, repeats: int | None
) -> None:
    found = affordable([_difference(Spread(0.0, deviation / 2.0, 6.0, Evidence.RUNS))], 4, 3_000)
    assert (None if found is None else (found.change, found.repeats, found.requests)) == (
        None if change is None else (change, repeats, 3_000)
    )


def test_without_an_error_nothing_is_affordable() -> None:
    assert affordable([_difference(None)], 4, 3_000) is None
