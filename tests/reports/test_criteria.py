"""The grammar of criteria: every spelling of a number, and one sentence for what is none."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.criteria import (
    HeldRequirement,
    Requirement,
    parse_fail_if,
    parse_held,
    parse_limit,
    parse_slo,
    parse_stop_if,
    parse_until,
)
from reports.metrics.catalogue import ATTAINMENT, E2E, FAILED_SHARE, GOODPUT, ITL, TPOT, TTFT
from reports.metrics.goodput import Objective


@pytest.mark.parametrize(
    ("text", "criterion"),
    [
        ("ttft<=200", Objective(TTFT, 200.0)),
        ("ttft_ms<=200", Objective(TTFT, 200.0)),
        (" ttft < 0.2 s ", Objective(TTFT, 200.0)),
        ("tpot<=30ms", Objective(TPOT, 30.0)),
        ("p99_ttft<=300ms", Requirement(TTFT, 0.99, True, 300.0)),
        ("p99_ttft_ms<=300", Requirement(TTFT, 0.99, True, 300.0)),
        ("p50_e2e<=1.5s", Requirement(E2E, 0.50, True, 1_500.0)),
        ("mean_tpot<=25", Requirement(TPOT, None, True, 25.0)),
        ("goodput>=20", Requirement(GOODPUT, None, False, 20.0)),
        ("goodput >= 20 requests/s", Requirement(GOODPUT, None, False, 20.0)),
        ("attainment>=99%", Requirement(ATTAINMENT, None, False, 0.99)),
        ("failed_share<=1%", Requirement(FAILED_SHARE, None, True, 0.01)),
        ("failed_share<=0.01", Requirement(FAILED_SHARE, None, True, 0.01)),
        ("attainment>=100%", Requirement(ATTAINMENT, None, False, 1.0)),
        ("ttft=<0.5", Objective(TTFT, 0.5)),
        ("goodput=>20", Requirement(GOODPUT, None, False, 20.0)),
        ("goodput>0", Requirement(GOODPUT, None, False, 0.0)),
        ("failed_share<=0%", Requirement(FAILED_SHARE, None, True, 0.0)),
        ("p50_0_ttft<=3", Requirement(TTFT, 0.50, True, 3.0)),
        ("mean_itl<=3", Requirement(ITL, None, True, 3.0)),
        ("P99_TTFT<=300MS", Requirement(TTFT, 0.99, True, 300.0)),
        ("Mean_TPOT<=25", Requirement(TPOT, None, True, 25.0)),
        ("TTFT<=200ms", Objective(TTFT, 200.0)),
        ("Goodput>=20", Requirement(GOODPUT, None, False, 20.0)),
        ("goodput>=.5/s", Requirement(GOODPUT, None, False, 0.5)),
        ("ttft<=200us", Objective(TTFT, 0.2)),
        ("ttft<=1.001s", Objective(TTFT, 1_001.0)),  # 1.001 times 1,000 is less
        ("attainment>=95%", Requirement(ATTAINMENT, None, False, 0.95)),  # 95 times 0.01 is more
    ],
)
def test_what_has_to_hold(text: str, criterion: Objective | Requirement) -> None:
    assert parse_slo(text) == criterion


@pytest.mark.parametrize(
    ("text", "requirement"),
    [
        ("p99_ttft>300ms", "p99_ttft<=300ms"),
        ("goodput<20", "goodput>=20"),
        ("failed_share>1%", "failed_share<=1%"),
        ("mean_tpot>=25", "mean_tpot<=25ms"),
        ("p99_ttft=>300ms", "p99_ttft<=300ms"),
        ("goodput<=20", "goodput>=20"),
        ("goodput=<20", "goodput>=20"),
    ],
)
def test_what_fails_a_build_is_the_opposite_of_what_has_to_hold(text: str, requirement: str) -> None:
    assert str(parse_fail_if(text)) == requirement
    assert parse_fail_if(text) == parse_slo(requirement)


_SHARE = "the limit of a share goes from 0% to 100%; write its unit, as in "
_UPPER = "an objective of each request is an upper limit; write "
_FORM = "write a number, a sign and a limit, as p99_ttft<=300ms, ttft<=200ms or goodput>=20"
_BY_LOAD = "a sweep fails by the highest load that held, as held<20; criteria of a run go after its verb"
_NO_PLUS = "a limit has no '+': it is the sign of a change in %, which needs a baseline (bench compare)"
_NAMES = "ttft, ttfo, e2e, tpot, itl, icl, request_throughput, output_token_throughput, goodput, attainment, failed_share"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("p99_ttft", _FORM),
        ("ttft<=nan", _FORM),
        ("latency<=3", f"'latency' is none of {_NAMES}"),
        ("p90_ttft<=3", "of p90 no interval is computed; use p50, p99 or mean"),
        ("itl<=3", "objectives of each request limit ttft, e2e, tpot; for the run write p99_itl or its mean"),
        ("ttft>=3", f"{_UPPER}ttft<=3ms"),
        ("ttft>=0.3s", f"{_UPPER}ttft<=0.3s"),
        ("ttft<=0", "the limit must be above 0 ms"),
        ("ttft<=3kg", "'kg' is no unit of ttft; use ms or s or us"),
        ("p99_goodput>=3", "goodput has no p99; write goodput alone"),
        ("goodput>=-1", "the limit must be a number of at least 0"),
        ("goodput>=1e999", "the limit must be a number of at least 0"),
        ("goodput>=20%", "a change in % needs a baseline: give it to bench compare"),
        ("p99_ttft<=+5ms", _NO_PLUS),  # no change of 5 ms
        ("attainment>=+99%", _NO_PLUS),
        ("goodput>=20ms", "'ms' is no unit of goodput; use /s or requests/s"),
        ("goodput>=20 tokens/s", "'tokens/s' is no unit of goodput; use /s or requests/s"),
        # ten times as many, and would hold
        ("output_token_throughput>=20 requests/s", "'requests/s' is no unit of output_token_throughput; use /s or tokens/s"),
        ("failed_share<=1", f"{_SHARE}failed_share<=1%"),  # as a share it would hold whatever failed
        ("failed_share<=5", f"{_SHARE}failed_share<=5%"),
        ("failed_share<=100", f"{_SHARE}failed_share<=100%"),
        ("failed_share<=101", f"{_SHARE}failed_share<=1%"),
        ("attainment>=101%", f"{_SHARE}attainment>=99%"),
    ],
)
def test_no_criterion_is_refused_with_the_remedy(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'{text!r}: {problem}')}$"):
        parse_slo(text)


@pytest.mark.parametrize(
    ("text", "criterion"),
    [
        ("p90_ttft<=3", Requirement(TTFT, 0.9, True, 3.0)),
        ("P99_9_E2E<=3s", Requirement(E2E, 0.999, True, 3_000.0)),
        ("p0.7_itl=>3", Requirement(ITL, 0.007, False, 3.0)),
        ("p99_5_ttft<=300ms", Requirement(TTFT, 0.995, True, 300.0)),
        ("mean_ttft<=3", Requirement(TTFT, None, True, 3.0)),
        ("ttft<=3", Objective(TTFT, 3.0)),
        ("failed_share<=1%", Requirement(FAILED_SHARE, None, True, 0.01)),
    ],
)
def test_a_limit_on_a_share_of_the_requests_may_be_one_on_any_percentile(text: str, criterion: Objective | Requirement) -> None:
    assert parse_limit(text) == criterion


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", _FORM),
        ("p100_ttft<=3", "p100 is no percentile between 0 and 100"),
        ("p0_ttft<=3", "p0 is no percentile between 0 and 100"),
        ("p9_x<=3", f"'x' is none of {_NAMES}"),
        ("p99_goodput>=3", "goodput has no p99; write goodput alone"),
        ("p90_ttft<=3%", "a change in % needs a baseline: give it to bench compare"),
    ],
)
def test_what_is_no_limit_is_refused_in_the_user_s_own_words(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'{text!r}: {problem}')}$"):
        parse_limit(text)


@pytest.mark.parametrize("text", ["p90_ttft>3", "latency<3", "goodput>-1", "p99_goodput<=3", "ttft<200"])
def test_what_fails_no_build_is_refused_in_the_user_s_own_words(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))}: "):
        parse_fail_if(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("p99_ttft>", "write a number, a sign and a limit, as p99_ttft>300ms, attainment<95% or goodput<20"),
        ("failed_share>1", f"{_SHARE}failed_share>1%"),
        ("failed_share>5", f"{_SHARE}failed_share>5%"),
        ("attainment<95", f"{_SHARE}attainment<95%"),
        ("attainment<995", f"{_SHARE}attainment<99%"),
        ("ttft>200ms", "a run fails by a number of its own: write p99_ttft, p50_ttft or mean_ttft"),
    ],
)
def test_an_example_fails_a_bad_build_and_not_a_good_one(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'{text!r}: {problem}')}$"):
        parse_fail_if(text)


@pytest.mark.parametrize(
    ("text", "at_least", "written"),
    [("held<20", 20.0, "held>=20"), (" HELD < 0.5 ", 0.5, "held>=0.5"), ("held<1e3", 1_000.0, "held>=1000")],
)
def test_a_sweep_fails_by_the_highest_load_that_held(text: str, at_least: float, written: str) -> None:
    requirement = parse_held(text)
    assert requirement == HeldRequirement(at_least)
    assert str(requirement) == written


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("held", "write a number, a sign and a limit, as held<20"),
        *((text, _BY_LOAD) for text in ("p99_held<3", "goodput<3", "held>3", "held<=3", "held<3ms")),
        ("held<+20", _NO_PLUS),
        *((text, "the limit must be a number above 0") for text in ("held<0", "held<-1", "held<1e999")),
    ],
)
def test_what_else_a_sweep_would_fail_by_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'{text!r}: {problem}')}$"):
        parse_held(text)


@given(st.text(max_size=30))
def test_any_text_is_a_criterion_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parse_slo(text), Objective | Requirement)


@given(
    st.sampled_from(["p99_ttft", "p50_e2e", "mean_tpot", "goodput", "attainment", "request_throughput"]), st.floats(0.001, 1e9)
)
def test_a_requirement_is_written_as_it_is_read(name: str, limit: float) -> None:
    requirement = parse_slo(f"{name}<={limit % 100!r}%" if name == "attainment" else f"{name}<={limit!r}")
    again = parse_slo(str(requirement))
    assert isinstance(requirement, Requirement)
    assert isinstance(again, Requirement)
    assert again.limit == pytest.approx(requirement.limit, rel=1e-14)
    assert (again.metric, again.q, again.at_most) == (requirement.metric, requirement.q, requirement.at_most)


@pytest.mark.parametrize(
    ("text", "requirement"),
    [
        ("p99_ttft>500ms", Requirement(TTFT, 0.99, True, 500.0)),
        ("p70_e2e >= 2s", Requirement(E2E, 0.70, True, 2_000.0)),
        ("p99_5_tpot>30", Requirement(TPOT, 0.995, True, 30.0)),
        ("p99.5_tpot>30", Requirement(TPOT, 0.995, True, 30.0)),
        ("P99_9_TTFT=>5", Requirement(TTFT, 0.999, True, 5.0)),
        ("failed_share>5%", Requirement(FAILED_SHARE, None, True, 0.05)),
    ],
)
def test_a_run_may_be_ended_by_any_percentile_of_an_objectives_latency(text: str, requirement: Requirement) -> None:
    assert parse_stop_if(text) == requirement


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("p99_ttft", "write a number, a sign and a limit, as p99_ttft>500ms or failed_share>5%"),
        ("p99_ttft <= 500ms", "a run ends where requests are beyond a limit; write p99_ttft>500ms"),
        ("failed_share=<5%", "a run ends where requests are beyond a limit; write failed_share>5%"),
        *(
            (text, "a run ends by requests that can be counted: p99_ttft, p99_e2e, p99_tpot, or failed_share")
            for text in ("mean_ttft>500ms", "ttft>5", "p99_itl>5ms", "goodput>5", "p99_failed_share>5%")
        ),
        ("p100_ttft>5ms", "p100 is no percentile between 0 and 100"),
        ("p0_ttft>5ms", "p0 is no percentile between 0 and 100"),
        ("p99_x>5ms", f"'x' is none of {_NAMES}"),
        ("p99_ttft>5kg", "'kg' is no unit of ttft; use ms or s or us"),
    ],
)
def test_no_other_number_may_end_a_run(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'{text!r}: {problem}')}$"):
        parse_stop_if(text)


@pytest.mark.parametrize("text", ["p99_ttft±5%", "P99_TTFT +- 5 %", "p99_ttft_ms+/-5.0%"])
def test_every_spelling_of_a_precision(text: str) -> None:
    goal = parse_until(text)
    assert (goal.metric, goal.q, goal.share, str(goal)) == (TTFT, 0.99, 0.05, "p99_ttft±5%")
    mean = parse_until("mean_tpot±2.9%")
    assert (mean.metric, mean.q, mean.share, str(mean)) == (TPOT, None, 0.029, "mean_tpot±2.9%")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *(
            (text, "write a number and its precision, for example 'p99_ttft±5%' or 'mean_e2e+-2%'")
            for text in ("p99_ttft<5%", "ttft±5%", "p99_ttft±5ms")
        ),
        ("p99_x±5%", f"'x' is none of {_NAMES}"),
        ("p90_ttft±5%", "of p90 no interval is computed; use p50, p99 or mean"),
        ("mean_itl±5%", "a run ends by the precision of a latency: p99_ttft, p99_e2e, p99_tpot, or their p50 or mean"),
        ("p99_ttft±100%", "the precision must be above 0 % and below 100 %"),
        ("p99_ttft±0%", "the precision must be above 0 % and below 100 %"),
    ],
)
def test_no_other_text_is_a_precision(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'{text!r}: {problem}')}$"):
        parse_until(text)
