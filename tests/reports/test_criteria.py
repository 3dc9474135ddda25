"""The grammar of criteria: every spelling of a number, and one sentence for what is none."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.criteria import HeldRequirement, Requirement, parse_fail_if, parse_held, parse_slo, parse_stop_if, parse_until
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


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("p99_ttft", "as p99_ttft<=300ms"),
        ("latency<=3", "'latency' is none of ttft, "),
        ("p90_ttft<=3", "use p50, p99 or mean"),
        ("itl<=3", "write p99_itl"),
        ("itl<=3", "limit ttft, "),
        ("ttft>=3", "write ttft<=3ms"),
        ("ttft<=0", "above 0 ms"),
        ("ttft<=3kg", "use ms or s"),
        ("p99_goodput>=3", "write goodput alone"),
        ("goodput>=-1", "at least 0"),
        ("goodput>=1e999", "must be a number"),
        ("goodput>=20%", "a change in % needs a baseline: give it to bench compare"),
        ("p99_ttft<=+5ms", "a limit has no '+'"),  # no change of 5 ms
        ("attainment>=+99%", "a limit has no '+'"),
        ("goodput>=20ms", "is no unit of goodput"),
        ("goodput>=20 tokens/s", "is no unit of goodput; use /s or requests/s"),
        ("output_token_throughput>=20 requests/s", "use /s or tokens/s"),  # ten times as many, and would hold
        ("failed_share<=1", "write its unit, as in failed_share<=1%"),  # as a share it would hold whatever failed
        ("failed_share<=5", "from 0% to 100%"),
        ("attainment>=101%", "from 0% to 100%"),
    ],
)
def test_no_criterion_is_refused_with_the_remedy(text: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)) as error:
        parse_slo(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize("text", ["p90_ttft>3", "latency<3", "goodput>-1", "p99_goodput<=3", "ttft<200"])
def test_what_fails_no_build_is_refused_in_the_user_s_own_words(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))}: "):
        parse_fail_if(text)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("p99_ttft>", "as p99_ttft>300ms, attainment<95% or goodput<20"),
        ("failed_share>1", "as in failed_share>1%"),
        ("failed_share>5", "as in failed_share>5%"),
        ("attainment<95", "as in attainment<95%"),
        ("attainment<995", "as in attainment<99%"),
    ],
)
def test_an_example_fails_a_bad_build_and_not_a_good_one(text: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)):
        parse_fail_if(text)


def test_a_build_does_not_fail_by_single_requests() -> None:
    with pytest.raises(ValueError, match=r"write p99_ttft, p50_ttft or mean_ttft"):
        parse_fail_if("ttft>200ms")


@pytest.mark.parametrize(
    ("text", "at_least", "written"),
    [("held<20", 20.0, "held>=20"), (" HELD < 0.5 ", 0.5, "held>=0.5"), ("held<1e3", 1_000.0, "held>=1000")],
)
def test_a_sweep_fails_by_the_highest_load_that_held(text: str, at_least: float, written: str) -> None:
    requirement = parse_held(text)
    assert requirement == HeldRequirement(at_least)
    assert str(requirement) == written


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("held", "as held<20"),
        ("p99_held<3", "as held<20"),
        ("goodput<3", "as held<20"),
        ("held>3", "as held<20"),
        ("held<=3", "as held<20"),
        ("held<3ms", "as held<20"),
        ("held<0", "a number above 0"),
        ("held<-1", "a number above 0"),
        ("held<1e999", "a number above 0"),
    ],
)
def test_what_else_a_sweep_would_fail_by_is_refused(text: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)) as error:
        parse_held(text)
    assert repr(text) in str(error.value)


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
        ("failed_share>5%", Requirement(FAILED_SHARE, None, True, 0.05)),
    ],
)
def test_a_run_may_be_ended_by_any_percentile_of_an_objectives_latency(text: str, requirement: Requirement) -> None:
    assert parse_stop_if(text) == requirement


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("p99_ttft <= 500ms", "write p99_ttft>500ms$"),
        ("failed_share<=5%", "write failed_share>5%$"),
        ("mean_ttft>500ms", "requests that can be counted"),
        ("p99_itl>5ms", "requests that can be counted"),
        ("goodput>5", "requests that can be counted"),
        ("p100_ttft>5ms", "no percentile between 0 and 100"),
    ],
)
def test_no_other_number_may_end_a_run(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_stop_if(text)


@pytest.mark.parametrize("text", ["p99_ttft±5%", "P99_TTFT +- 5 %", "p99_ttft_ms+/-5.0%"])
def test_every_spelling_of_a_precision(text: str) -> None:
    goal = parse_until(text)
    assert (goal.metric, goal.q, goal.share, str(goal)) == (TTFT, 0.99, 0.05, "p99_ttft±5%")
    assert str(parse_until("mean_tpot±2.5%")) == "mean_tpot±2.5%"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("p99_ttft<5%", "write a number and its precision"),
        ("ttft±5%", "write a number and its precision"),
        ("p99_ttft±5ms", "write a number and its precision"),
        ("p90_ttft±5%", "no interval is computed"),
        ("mean_itl±5%", "by the precision of a latency"),
        ("p99_ttft±100%", "below 100 %"),
        ("p99_ttft±0%", "above 0 %"),
    ],
)
def test_no_other_text_is_a_precision(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_until(text)
