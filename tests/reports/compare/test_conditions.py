"""Conditions of ``--fail_if``: what is read, and on which side of which bound a build fails."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bench_records.record import Record
from reports.compare.conditions import AbsoluteCondition, Status, check_conditions, parse_condition
from reports.compare.difference import Difference, Verdict, compare_measures
from reports.compare.measures import MEASURES, Measure, Measured
from reports.compare.spread import Evidence, Spread
from reports.errors import ConditionError
from reports.metrics.catalogue import FAILED_SHARE, TTFT
from reports.run_report import RunReport
from reports.statistics.estimate import Cause, TooFew

P99_TTFT, FAILED = Measure(TTFT, 0.99), Measure(FAILED_SHARE)
T_975, T_9875 = 2.228138852, 2.633766914  # Student's t with 10 degrees of freedom


def _points(estimate: float, error: float, evidence: Evidence = Evidence.RUNS) -> Difference:
    """The share of failures changed by ``estimate``, with 10 degrees of freedom."""
    spread = Spread(estimate, error, 10.0, evidence)
    return Difference(FAILED, 0.0, estimate, estimate, None, None, None, None, evidence, Verdict.NONE, None, spread)


def _unknown(reason: str | None) -> Difference:
    return Difference(FAILED, None, None, None, None, None, None, None, None, Verdict.UNKNOWN, reason)


@pytest.mark.parametrize(
    ("text", "measure", "above", "amount"),
    [
        ("p99_ttft > +5%", P99_TTFT, True, 0.05),
        ("p99_ttft>5%", P99_TTFT, True, 0.05),
        (" p99_ttft  <  -12.5 % ", P99_TTFT, False, -0.125),
        ("failed_share > 1.25pp", FAILED, True, 0.0125),
        ("failed_share < -1 pp", FAILED, False, -0.01),
        ("FAILED_SHARE > +1PP", FAILED, True, 0.01),
        ("P99_TTFT >= +5%", P99_TTFT, True, 0.05),
        ("p99_ttft_ms > +5%", P99_TTFT, True, 0.05),
    ],
)
def test_a_condition_is_a_measure_a_side_and_an_amount(text: str, measure: Measure, above: bool, amount: float) -> None:
    condition = parse_condition(text)
    assert (condition.measure, condition.above, condition.amount) == (measure, above, pytest.approx(amount))
    assert condition.text == text.strip()


def test_a_condition_of_no_measure_names_all_of_them() -> None:
    with pytest.raises(ConditionError, match=r"^'p98_ttft > 5%': a change is written as") as refused:
        parse_condition("p98_ttft > 5%")
    assert ", ".join(measure.name for measure in MEASURES) in str(refused.value)


def test_what_is_no_condition_at_all_is_refused_with_both_forms() -> None:
    with pytest.raises(ConditionError, match=r"^'p99_ttft': .* as p99_ttft>300ms.*; a change is written as 'p99_ttft>\+5%'"):
        parse_condition("p99_ttft")


def test_a_change_in_milliseconds_is_not_read_as_a_limit() -> None:
    with pytest.raises(ConditionError, match=r"^'p99_ttft>\+5ms': a limit has no '\+'.* is written as 'p99_ttft>\+5%'"):
        parse_condition("p99_ttft>+5ms")


def test_a_unit_in_a_name_is_that_of_a_latency() -> None:
    with pytest.raises(ConditionError, match=r"^'request_throughput_ms > \+5%': "):
        parse_condition("request_throughput_ms > +5%")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("failed_share > +5%", r"^'failed_share > \+5%': failed_share changes by pp \(percentage points\)$"),
        ("p99_ttft > 5pp", r"^'p99_ttft > 5pp': p99_ttft changes by %$"),
    ],
)
def test_a_condition_in_the_other_unit_names_the_right_one(text: str, message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        parse_condition(text)


@pytest.mark.parametrize(
    ("amount", "status"),
    [
        (0.10 - 0.01 * T_975 - 1e-6, Status.FAILED),
        (0.10 - 0.01 * T_975 + 1e-6, Status.UNDECIDED),
        (0.10 + 0.01 * T_975 - 1e-6, Status.UNDECIDED),
        (0.10 + 0.01 * T_975 + 1e-6, Status.PASSED),
    ],
)
def test_a_build_fails_or_passes_where_the_95_percent_interval_is_on_one_side_of_the_amount(
    amount: float, status: Status
) -> None:
    up = parse_condition(f"failed_share > {100 * amount:.6f}pp")
    down = parse_condition(f"failed_share < {-100 * amount:.6f}pp")
    assert check_conditions([up], [_points(0.10, 0.01)])[0].status is status
    assert check_conditions([down], [_points(-0.10, 0.01)])[0].status is status
    assert check_conditions([up], [_points(0.10, 0.01)])[0].failed is (status is Status.FAILED)


@pytest.mark.parametrize(("text", "estimate"), [("failed_share > 10pp", 0.10), ("failed_share < -10pp", -0.10)])
def test_a_bound_at_the_amount_does_not_fail(text: str, estimate: float) -> None:
    assert check_conditions([parse_condition(text)], [_points(estimate, 0.0)])[0].status is Status.PASSED


def test_conditions_share_the_significance_level() -> None:
    """Between the bounds at 97.5 % and at 98.75 %: fails alone, and not as one of two conditions."""
    amount = 0.10 - 0.01 * (T_975 + T_9875) / 2.0
    condition = parse_condition(f"failed_share > {100 * amount:.6f}pp")
    assert check_conditions([condition], [_points(0.10, 0.01)])[0].status is Status.FAILED
    assert [result.status for result in check_conditions([condition] * 2, [_points(0.10, 0.01)])] == [Status.UNDECIDED] * 2


@pytest.mark.parametrize(
    ("differences", "why"),
    [
        ([], "these runs do not have this measure"),
        ([_unknown(TooFew(9, 100))], "n too small"),
        ([_unknown(None)], "the change is unknown"),
        ([replace(_unknown(TooFew(9, 100)), change=0.5)], "n too small"),
    ],
)
def test_a_condition_without_a_bound_is_undecided_for_a_reason(differences: list[Difference], why: str) -> None:
    condition = parse_condition("failed_share > 1pp")
    (result,) = check_conditions([condition], differences)
    assert result.condition is condition
    assert (result.status, result.failed, result.why) == (Status.UNDECIDED, False, why)


@pytest.mark.parametrize(
    ("text", "evidence", "why"),
    [
        ("failed_share > 1pp", Evidence.RUNS, "changed by +10.00 pp, at least +7.77 pp by the 95 % interval"),
        ("failed_share > 9pp", Evidence.RUNS, "changed by +10.00 pp, between +7.77 pp and +12.23 pp by the 95 % interval"),
        ("failed_share < 9pp", Evidence.RUNS, "changed by +10.00 pp, between +7.77 pp and +12.23 pp by the 95 % interval"),
        ("failed_share > 13pp", Evidence.RUNS, "changed by +10.00 pp, at most +12.23 pp by the 95 % interval"),
        ("failed_share < 13pp", Evidence.RUNS, "changed by +10.00 pp, at most +12.23 pp by the 95 % interval"),
        ("failed_share < 1pp", Evidence.RUNS, "changed by +10.00 pp, at least +7.77 pp by the 95 % interval"),
        (
            "failed_share > 1pp",
            Evidence.REQUESTS,
            "changed by +10.00 pp between these starts, at least +7.77 pp by the 95 % interval",
        ),
    ],
)
def test_a_result_names_the_change_its_bound_and_single_starts(text: str, evidence: Evidence, why: str) -> None:
    (result,) = check_conditions([parse_condition(text)], [_points(0.10, 0.01, evidence)])
    assert result.why == why
    assert result.change == why.partition(", ")[0]
    assert result.condition.text == text


@pytest.mark.parametrize(
    ("text", "estimate", "status", "bounds"),
    [
        ("failed_share > 0.05pp", 0.0004, Status.PASSED, "changed by +0.04 pp, at most +0.04 pp"),
        ("failed_share > 0.5pp", 0.0050004, Status.FAILED, "changed by +0.50 pp, at least +0.50004 pp"),
        ("failed_share > 0.5pp", 0.0049996, Status.PASSED, "changed by +0.50 pp, at most +0.50 pp"),
        ("failed_share > 0.496pp", 0.0049599, Status.PASSED, "changed by +0.50 pp, at most +0.496 pp"),
        ("failed_share < -0.496pp", -0.0049599, Status.PASSED, "changed by -0.50 pp, at least -0.496 pp"),
        ("failed_share < -0.5pp", -0.0050004, Status.FAILED, "changed by -0.50 pp, at most -0.50004 pp"),
        ("failed_share < -0.7pp", -0.0069996, Status.PASSED, "changed by -0.70 pp, at least -0.70 pp"),
    ],
)
def test_a_bound_is_shown_on_its_side_of_the_amount(text: str, estimate: float, status: Status, bounds: str) -> None:
    (result,) = check_conditions([parse_condition(text)], [_points(estimate, 0.0)])
    assert (result.status, result.why) == (status, f"{bounds} by the 95 % interval")


def test_of_several_conditions_the_wider_bound_is_named_as_such() -> None:
    result = check_conditions([parse_condition("failed_share > 1pp")] * 2, [_points(0.10, 0.01)])[0]
    assert result.why == "changed by +10.00 pp, at least +7.37 pp by the 95 % interval of 2 conditions together"


@pytest.mark.parametrize("beyond", [-1e-9, 1e-9])
def test_one_condition_agrees_with_the_interval_beside_it(beyond: float) -> None:
    a, b = ([{FAILED.name: Measured(value, np.zeros(3))} for value in values] for values in ([0.1, 0.3, 0.2], [0.5, 0.6, 0.55]))
    (difference,) = compare_measures([FAILED], a, b, requests_paired=False, runs_paired=False)
    assert difference.interval is not None
    condition = parse_condition(f"failed_share > {100 * (difference.interval[0] - beyond):.9f}pp")
    assert check_conditions([condition], [difference])[0].failed is (beyond > 0)


@pytest.mark.parametrize(
    ("text", "name", "at_most", "limit"),
    [
        ("p99_ttft > 300ms", "p99_ttft", True, 300.0),
        ("p99_ttft > 0.3s", "p99_ttft", True, 300.0),
        ("p99_ttft > 5", "p99_ttft", True, 5.0),
        ("goodput < 20", "goodput", False, 20.0),
        ("failed_share > 1%", "failed_share", True, 0.01),
    ],
)
def test_a_limit_is_a_requirement_of_the_compared_runs(text: str, name: str, at_most: bool, limit: float) -> None:
    condition = parse_condition(text)
    assert isinstance(condition, AbsoluteCondition)
    assert (condition.requirement.name, condition.requirement.at_most) == (name, at_most)
    assert condition.requirement.limit == pytest.approx(limit)
    assert condition.text == text


@pytest.mark.parametrize(
    ("text", "count", "status", "why"),
    [
        ("failed_share > 1pp", 1_000, Status.PASSED, r"0\.0 % of 1,000 failed; upper bound 0\.30 %, 1\.0 % allowed; "),
        ("failed_share > 0.1pp", 1_000, Status.UNDECIDED, r"0\.0 % of 1,000 failed; 95 %: .*, 0\.10 % allowed; [\d,]+ "),
        ("failed_share > 1pp", 120, Status.UNDECIDED, r"0\.0 % of 120 failed; 95 %: .*, 1\.0 % allowed; "),
        ("failed_share > 0pp", 1_000, Status.UNDECIDED, r"0\.0 % of 1,000 failed; no number of requests can show that$"),
        ("failed_share > -1pp", 1_000, Status.FAILED, "at least"),
        ("failed_share < -1pp", 120, Status.PASSED, "at least"),
    ],
)
def test_failures_that_no_run_has_are_bounded_by_the_requests_of_the_arm(
    make_report: Callable[..., RunReport],
    steady_run: Callable[..., list[Record]],
    text: str,
    count: int,
    status: Status,
    why: str,
) -> None:
    """The difference of two shares of 0 has no error: 120 requests without a failure passed any condition."""
    (result,) = check_conditions([parse_condition(text)], [_points(0.0, 0.0)], [make_report(steady_run(count))])
    assert result.status is status, result.why
    assert re.match(f"changed by \\+0\\.00 pp[;,] {why}", result.why), result.why


def test_a_change_without_any_spread_has_no_interval_in_its_words() -> None:
    spread = Spread(0.2, 0.0, 2.0, Evidence.RUNS)
    change = math.expm1(0.2)
    known = Difference(
        P99_TTFT, 10.0, 12.2, change, None, None, 0.0, 0.0, Evidence.RUNS, Verdict.WORSE, Cause.NO_SPREAD, spread
    )
    results = [check_conditions([parse_condition(f"p99_ttft > +{limit}%")], [known])[0] for limit in (5, 25)]
    assert [result.status for result in results] == [Status.FAILED, Status.PASSED]
    assert {(result.change, result.why) for result in results} == {("changed by +22.1%", "changed by +22.1%: no spread")}


def test_a_relative_change_is_named_in_per_cent() -> None:
    """The limits of logarithms: exp(0.2) is 1.2214, and exp(0.2 - 0.01 · 2.2281) 1.1945."""
    spread = Spread(0.2, 0.01, 10.0, Evidence.RUNS)
    change = math.expm1(0.2)
    difference = Difference(P99_TTFT, 10.0, 12.2, change, None, None, None, None, Evidence.RUNS, Verdict.WORSE, None, spread)
    (result,) = check_conditions([parse_condition("p99_ttft > +5%")], [difference])
    assert result.why == "changed by +22.1%, at least +19.4% by the 95 % interval"


def test_limits_are_judged_of_the_runs_and_changes_of_the_differences(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    """A TTFT of 100 ms in every request, and a change of 10 points."""
    conditions = [parse_condition(text) for text in ("p50_ttft > 99ms", "failed_share > 1pp", "p50_ttft > 101ms")]
    results = check_conditions(conditions, [_points(0.10, 0.01)], [make_report(steady_run(120))])
    assert [result.condition for result in results] == conditions
    assert [result.status for result in results] == [Status.FAILED, Status.FAILED, Status.PASSED]
    found = [result.why.partition(",")[0].partition(";")[0] for result in results]
    assert found == ["100 ms", "changed by +10.00 pp", "100 ms"]


def test_a_change_without_an_upper_limit_is_said_to_have_none() -> None:
    """Its limit is the largest number that a logarithm is read as, of 24 digits in per cent."""
    spread = Spread(0.2, math.inf, 10.0, Evidence.RUNS)
    change = math.expm1(0.2)
    difference = Difference(P99_TTFT, 10.0, 12.2, change, None, None, None, None, Evidence.RUNS, Verdict.NONE, None, spread)
    for text in ("p99_ttft > +5%", "p99_ttft < -5%"):
        (result,) = check_conditions([parse_condition(text)], [difference])
        assert result.status is Status.UNDECIDED
        assert result.why == "changed by +22.1%, at least -100.0%, without an upper limit, by the 95 % interval"
