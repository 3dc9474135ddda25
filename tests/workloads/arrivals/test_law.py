"""Laws of gaps: spelt, parsed back, and held to their mean, variance and distribution."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workloads.arrivals.law import (
    CONSTANT,
    EXPONENTIAL,
    ArrivalLaw,
    LawName,
    arrivals_at,
    law_of_upstream,
    parse_law,
    weibull_cv,
)
from workloads.arrivals.processes import AllAtOnce, Bursts, Constant, Exponential, Gamma, Weibull
from workloads.elements.errors import WorkloadError

_LAWS = st.one_of(
    st.just(EXPONENTIAL),
    st.just(CONSTANT),
    st.builds(ArrivalLaw, st.just(LawName.GAMMA), st.floats(0.01, 1e6)),
    st.builds(ArrivalLaw, st.just(LawName.WEIBULL), st.floats(0.1, 1e3)),
    st.builds(ArrivalLaw, st.just(LawName.BURSTS), st.integers(1, 1_000_000).map(float)),
)


@given(_LAWS)
def test_a_law_parses_what_it_prints(law: ArrivalLaw) -> None:
    assert parse_law(str(law)) == law


@pytest.mark.parametrize(
    ("text", "arrivals"),
    [
        ("exponential", Exponential(5.0)),
        (" Constant ", Constant(5.0)),
        ("gamma:cv=2", Gamma(5.0, 0.25)),
        ("gamma:cv=10", Gamma(5.0, 0.01)),
        ("GAMMA:shape=0.5", Gamma(5.0, 0.5)),
        ("gamma:shape=1e6", Gamma(5.0, 1e6)),
        ("weibull:cv=1", Weibull(5.0, pytest.approx(1.0))),
        ("weibull:shape=0.7", Weibull(5.0, 0.7)),
        ("weibull:shape=0.1", Weibull(5.0, 0.1)),
        ("weibull:shape=1000", Weibull(5.0, 1000.0)),
        ("bursts:size=20", Bursts(5.0, 20)),
        ("bursts:size=1000000", Bursts(5.0, 1_000_000)),
    ],
)
def test_a_text_is_a_law_at_a_rate(text: str, arrivals: object) -> None:
    assert parse_law(text).at(5.0) == arrivals


@pytest.mark.parametrize(
    ("law", "text"),
    [
        (EXPONENTIAL, "exponential"),
        (ArrivalLaw(LawName.GAMMA, 0.25), "gamma:shape=0.25"),
        (ArrivalLaw(LawName.WEIBULL, 2.0), "weibull:shape=2"),
        (ArrivalLaw(LawName.BURSTS, 20.0), "bursts:size=20"),
    ],
)
def test_a_law_prints_its_name_and_its_parameter_in_small_letters(law: ArrivalLaw, text: str) -> None:
    assert str(law) == text


_GAMMA_LIMITS = "gamma gaps have a cv from 0.001 to 10, a shape from 0.01 to 1e6"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is no law of gaps"),
        ("poisson", "'poisson' is no law of gaps"),
        ("gamma", "gamma takes one number, cv or shape"),
        ("gamma:2", "'2' is not a name and a number"),
        ("gamma:cv=2,shape=1", "gamma takes one number, cv or shape"),
        ("gamma:cv=2,cv=2", "'cv=2' is not a name and a number"),
        ("gamma:cv=0", _GAMMA_LIMITS),
        ("gamma:cv=11", _GAMMA_LIMITS),
        ("gamma:shape=0.0099", _GAMMA_LIMITS),
        ("gamma:shape=1000001", _GAMMA_LIMITS),
        ("gamma:cv=-1", "'cv=-1' is not a name and a number"),
        ("gamma:2=3", "'2=3' is not a name and a number"),
        ("gamma:cv", "'cv' is not a name and a number"),
        ("gamma:cv=500ms", "'cv=500ms' is not a name and a number"),
        ("gamma:shape=2s", "'shape=2s' is not a name and a number"),
        ("bursts:size=2m", "'size=2m' is not a name and a number"),
        ("gamma:cv=1e999", "'cv=1e999' is not a name and a number"),
        ("gamma:cv=nan", "'cv=nan' is not a name and a number"),
        ("weibull:cv=1e9", "Weibull gaps have a cv from 0.0013 to 429.8"),
        ("weibull:cv=0.001", "Weibull gaps have a cv from 0.0013 to 429.8"),
        ("weibull:shape=0.099", "Weibull gaps have a shape from 0.1 to 1000"),
        ("weibull:shape=1001", "Weibull gaps have a shape from 0.1 to 1000"),
        ("weibull", "weibull takes one number, cv or shape"),
        ("weibull:size=2", "weibull takes one number, cv or shape"),
        ("constant:size=2", "constant has no 'size'"),
        ("exponential:cv=1", "exponential has no 'cv'"),
        ("bursts", "bursts needs its 'size'"),
        ("bursts:size=1.5", "a burst has from 1 to 1,000,000 requests"),
        ("bursts:size=0", "a burst has from 1 to 1,000,000 requests"),
        ("bursts:size=1000001", "a burst has from 1 to 1,000,000 requests"),
        ("bursts:cv=2", "bursts has no 'cv'"),
    ],
)
def test_any_other_text_is_an_error_that_says_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(WorkloadError) as error:
        parse_law(text)
    forms = "exponential, constant, gamma:cv=2, weibull:cv=2 or bursts:size=20"
    assert str(error.value) == f"arrival {text}: {problem}; write {forms}"


def test_the_limits_of_a_weibull_cv_that_the_error_names_are_within_them() -> None:
    with pytest.raises(WorkloadError) as error:
        parse_law("weibull:cv=1e9")
    limits = re.search(r"a cv from (\S+) to ([0-9.]+);", str(error.value))
    assert limits is not None
    for cv in limits.groups():
        assert parse_law(f"weibull:cv={cv}").name is LawName.WEIBULL


@given(st.floats(0.15, 10.0))
def test_a_cv_gives_gaps_of_that_cv(cv: float) -> None:
    shape = parse_law(f"weibull:cv={cv!r}").parameter
    assert shape is not None
    assert weibull_cv(shape) == pytest.approx(cv, rel=1e-6)
    gamma = parse_law(f"gamma:cv={cv!r}").parameter
    assert gamma is not None
    assert 1.0 / math.sqrt(gamma) == pytest.approx(cv)


def _expected(law: ArrivalLaw, rate_per_s: float) -> stats.rv_continuous:
    shape = law.parameter or 1.0
    match law.name:
        case LawName.GAMMA:
            return stats.gamma(shape, scale=1.0 / (rate_per_s * shape))
        case LawName.WEIBULL:
            return stats.weibull_min(shape, scale=1.0 / (rate_per_s * math.gamma(1.0 + 1.0 / shape)))
        case _:
            return stats.expon(scale=1.0 / rate_per_s)


@pytest.mark.parametrize("rate_per_s", [0.05, 2.0])
@pytest.mark.parametrize(
    "text", ["exponential", "gamma:cv=2", "gamma:cv=0.3", "weibull:cv=2", "weibull:cv=0.4", "weibull:cv=1"]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_gaps_have_the_law_s_mean_variance_and_distribution(text: str, rate_per_s: float, seed: int) -> None:
    count = 40_000
    law = parse_law(text)
    gaps_s = np.diff(law.at(rate_per_s).offsets_ns(count, seed)) / 1e9
    expected = _expected(law, rate_per_s)
    error = expected.std() / math.sqrt(count)
    assert gaps_s.mean() == pytest.approx(1.0 / rate_per_s, abs=4.5 * error)
    fourth = float(expected.stats("k")) + 3.0
    assert gaps_s.var() == pytest.approx(expected.var(), abs=5.0 * expected.var() * math.sqrt((fourth - 1.0) / count))
    assert stats.kstest(gaps_s, expected.cdf).pvalue > 1e-3


@pytest.mark.parametrize("size", [1, 7, 50])
def test_bursts_come_at_once_in_exponential_gaps_and_keep_the_rate(size: int) -> None:
    offsets_ns = Bursts(20.0, size).offsets_ns(100_000, 3)
    begins = offsets_ns[::size]
    assert all((offsets_ns[k::size] == begins[: offsets_ns[k::size].size]).all() for k in range(size))
    gaps_s = np.diff(begins) / 1e9
    assert gaps_s.mean() == pytest.approx(size / 20.0, rel=4.5 / math.sqrt(gaps_s.size))
    assert stats.kstest(gaps_s, stats.expon(scale=size / 20.0).cdf).pvalue > 1e-3
    assert offsets_ns.size == 100_000
    assert Bursts(20.0, size).offsets_ns(0, 3).size == 0


def test_constant_gaps_are_exact() -> None:
    assert set(np.diff(parse_law("constant").at(8.0).offsets_ns(100, 0)).tolist()) == {125_000_000}


def test_upstream_s_names_are_the_same_laws() -> None:
    assert law_of_upstream("gamma_dist", 0.25) == parse_law("gamma:cv=2")
    assert law_of_upstream("exponential_dist") == parse_law("exponential")
    assert law_of_upstream("constant") == parse_law("constant")


@pytest.mark.parametrize("shape", [0.0, -1.0, 1e-3, 1e9, float("nan"), float("inf")])
def test_an_impossible_burstiness_is_refused_by_the_option_s_name(shape: float) -> None:
    with pytest.raises(WorkloadError, match=r"^burstiness .*: give a shape from 0\.01 to 1e\+06$"):
        arrivals_at(10.0, law_of_upstream("gamma_dist", shape))


def test_a_burstiness_just_beyond_the_range_is_named_as_it_was_given() -> None:
    with pytest.raises(WorkloadError, match=r"^burstiness 1000001: give a shape from 0\.01 to 1e\+06$"):
        law_of_upstream("gamma_dist", 1_000_001.0)


@pytest.mark.parametrize(("rate", "dist"), [(10.0, "exponential_dist"), (10.0, "constant")])
def test_a_burstiness_that_would_be_ignored_is_refused(rate: float, dist: str) -> None:
    with pytest.raises(WorkloadError, match=r"^burstiness is the shape of gamma gaps; it needs gamma_dist and a request_rate$"):
        arrivals_at(rate, law_of_upstream(dist, 2.0))


def test_less_than_a_request_per_second_is_a_rate() -> None:
    assert arrivals_at(0.5, law_of_upstream("constant")) == Constant(0.5)
    assert arrivals_at(1e9, EXPONENTIAL) == Exponential(1e9)


@pytest.mark.parametrize("shape", [0.01, 1e6])
def test_the_smallest_and_the_largest_burstiness_are_allowed(shape: float) -> None:
    assert arrivals_at(1.0, law_of_upstream("gamma_dist", shape)) == Gamma(1.0, shape)


def test_minus_one_sends_everything_at_once() -> None:
    arrivals = arrivals_at(-1, law_of_upstream("exponential_dist"))
    assert arrivals == AllAtOnce()
    assert arrivals.offsets_ns(4, seed=0).tolist() == [0, 0, 0, 0]


def test_minus_one_sends_everything_at_once_whatever_the_distribution() -> None:
    assert arrivals_at(-1.0, law_of_upstream("constant")) == AllAtOnce()


def test_the_options_choose_the_process() -> None:
    assert arrivals_at(2.5, law_of_upstream("exponential_dist")) == Exponential(2.5)
    assert arrivals_at(2.5, law_of_upstream("constant")) == Constant(2.5)
    assert arrivals_at(2.5, law_of_upstream("gamma_dist", 0.5)) == Gamma(2.5, 0.5)
    assert arrivals_at(2.5, law_of_upstream("gamma_dist")) == Gamma(2.5, 1.0)


@pytest.mark.parametrize("rate", [0.0, -0.0, -2.0, -0.5, 1.1e9, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("time_delay_dist", ["exponential_dist", "constant"])
def test_an_impossible_rate_is_refused_by_the_option_s_name(rate: float, time_delay_dist: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        arrivals_at(rate, law_of_upstream(time_delay_dist))
    rule = "give requests per second, more than 0 and up to 1,000,000,000, or -1 to send everything at once"
    assert str(refused.value) == f"request_rate {rate:g}: {rule}"
