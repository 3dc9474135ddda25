"""Arrival processes: the laws that every process keeps, and the distribution that each one promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from workloads.arrivals.law import arrivals_at, law_of_upstream, parse_law
from workloads.arrivals.processes import (
    AllAtOnce,
    Arrivals,
    Constant,
    Exponential,
    Gamma,
    RampedUp,
    Recorded,
    offsets_within,
)
from workloads.elements.errors import WorkloadError

_RATES = st.floats(min_value=1e-3, max_value=1e6)
_SHAPES = st.floats(min_value=0.05, max_value=1e3)
_WITH_A_RATE = st.one_of(st.builds(Exponential, _RATES), st.builds(Gamma, _RATES, _SHAPES), st.builds(Constant, _RATES))
_RAMPS_S = st.floats(min_value=1e-3, max_value=1e4)
_PROCESSES = st.one_of(_WITH_A_RATE, st.builds(RampedUp, _WITH_A_RATE, _RAMPS_S), st.just(AllAtOnce()))
_SEEDS = st.integers(min_value=0, max_value=2**64)


@given(_PROCESSES, st.integers(min_value=1, max_value=300), _SEEDS)
def test_offsets_start_at_zero_and_never_decrease(arrivals: Arrivals, count: int, seed: int) -> None:
    offsets = arrivals.offsets_ns(count, seed)
    assert offsets.shape == (count,)
    assert offsets.dtype == np.int64
    assert offsets[0] == 0
    assert (np.diff(offsets) >= 0).all()


@given(_PROCESSES, _SEEDS)
def test_no_requests_have_no_offsets(arrivals: Arrivals, seed: int) -> None:
    assert arrivals.offsets_ns(0, seed).shape == (0,)


@given(_RATES, st.integers(min_value=1, max_value=100), st.integers(min_value=0, max_value=100), _SEEDS)
def test_a_longer_schedule_begins_like_a_shorter_one(rate: float, count: int, more: int, seed: int) -> None:
    arrivals = Exponential(rate)
    assert arrivals.offsets_ns(count + more, seed)[:count].tolist() == arrivals.offsets_ns(count, seed).tolist()


@pytest.mark.parametrize("rate", [0.5, 10.0, 4_000.0])
def test_exponential_gaps_have_the_mean_that_the_rate_asks_for(rate: float) -> None:
    count = 100_001
    mean_gap_s = Exponential(rate).offsets_ns(count, seed=1)[-1] / 1e9 / (count - 1)
    assert mean_gap_s * rate == pytest.approx(1.0, abs=4 / np.sqrt(count))  # 4 standard errors of an exponential's mean


def test_exponential_gaps_of_the_default_seed_pass_for_exponential() -> None:
    gaps_s = np.diff(Exponential(20.0).offsets_ns(5_001, seed=0)) / 1e9
    assert kstest(gaps_s, "expon", args=(0, 1 / 20)).pvalue > 0.01


def test_exponential_gaps_pass_for_exponential_as_often_as_they_should() -> None:
    # One seed in a hundred fails a test at 1 % (seed 2 does, with 5,000 gaps), so single seeds prove little. Over the
    # first 300 seeds, none left out, the p-values of a true exponential are uniform.
    p_values = [
        kstest(np.diff(Exponential(20.0).offsets_ns(1_001, seed)) / 1e9, "expon", args=(0, 1 / 20)).pvalue
        for seed in range(300)
    ]
    assert kstest(p_values, "uniform").pvalue > 0.01


def test_the_ks_test_would_notice_another_distribution() -> None:
    gaps_s = np.diff(Exponential(20.0).offsets_ns(5_001, seed=0)) / 1e9
    assert kstest(gaps_s, "expon", args=(0, 1 / 22)).pvalue < 0.001
    assert kstest(np.full(5_000, 1 / 20), "expon", args=(0, 1 / 20)).pvalue < 0.001


def test_exponential_gaps_are_independent_of_their_neighbours() -> None:
    gaps = np.diff(Exponential(20.0).offsets_ns(20_001, seed=3)).astype(float)
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 4 / np.sqrt(gaps.size)


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_gamma_gaps_keep_the_rate_and_spread_as_their_shape_says(shape: float) -> None:
    count = 200_001
    gaps = np.diff(Gamma(20.0, shape).offsets_ns(count, seed=1)) / 1e9 * 20.0
    assert gaps.mean() == pytest.approx(1.0, abs=4 / np.sqrt(shape * count))
    assert gaps.var() == pytest.approx(1 / shape, rel=0.05)
    assert kstest(gaps[:5_000], "gamma", args=(shape, 0, 1 / shape)).pvalue > 0.01


def test_gamma_gaps_of_another_shape_are_noticed() -> None:
    gaps_s = np.diff(Gamma(20.0, 0.8).offsets_ns(5_001, seed=0)) / 1e9
    assert kstest(gaps_s, "expon", args=(0, 1 / 20)).pvalue < 0.001


def test_the_same_seed_gives_the_same_offsets_and_another_seed_others() -> None:
    arrivals = Exponential(10.0)
    assert arrivals.offsets_ns(50, 7).tolist() == arrivals.offsets_ns(50, 7).tolist()
    assert arrivals.offsets_ns(50, 7).tolist() != arrivals.offsets_ns(50, 8).tolist()


def test_constant_arrivals_are_exact() -> None:
    assert Constant(8.0).offsets_ns(5, seed=0).tolist() == [0, 125_000_000, 250_000_000, 375_000_000, 500_000_000]


def test_constant_gaps_that_are_no_whole_nanoseconds_do_not_accumulate() -> None:
    offsets = Constant(3.0).offsets_ns(300_001, seed=0)
    assert offsets[:4].tolist() == [0, 333_333_333, 666_666_667, 1_000_000_000]
    assert offsets[-1] == 100_000 * 1_000_000_000


def test_a_rate_too_low_for_nanoseconds_is_named() -> None:
    with pytest.raises(WorkloadError, match=r"^request_rate is so low that the last request would come years from now$"):
        Constant(1e-12).offsets_ns(2, seed=0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("time_delay_dist", ["exponential_dist", "constant"])
@pytest.mark.parametrize("rate", [1e-12, 1e-300])
def test_a_rate_too_low_for_nanoseconds_is_refused_or_kept_in_order(rate: float, time_delay_dist: str) -> None:
    try:
        offsets = arrivals_at(rate, law_of_upstream(time_delay_dist)).offsets_ns(10, seed=0)
    except WorkloadError:
        return
    assert offsets[0] == 0
    assert (np.diff(offsets) >= 0).all()


@pytest.mark.parametrize(
    ("arrivals", "text"),
    [
        (Exponential(10.0), "exponential arrivals at 10 requests/s"),
        (Gamma(10.0, 0.5), "gamma arrivals (shape 0.5) at 10 requests/s"),
        (Constant(0.25), "constant arrivals at 0.25 requests/s"),
        (AllAtOnce(), "all requests at once"),
        (Recorded((0, 500_000_000)), "the trace's own arrivals, 2 requests/s"),
        (Recorded((0, 0)), "the trace's own arrivals"),
    ],
)
def test_a_process_prints_itself(arrivals: Arrivals, text: str) -> None:
    assert str(arrivals) == text


# ---- ramps


@given(_WITH_A_RATE, _RAMPS_S, _SEEDS)
def test_after_the_ramp_the_gaps_are_those_of_the_process_itself(arrivals: Arrivals, ramp_up_s: float, seed: int) -> None:
    steady, ramped = arrivals.offsets_ns(200, seed), RampedUp(arrivals, ramp_up_s).offsets_ns(200, seed)
    ramp_ns = round(ramp_up_s * 1e9)
    after = steady >= ramp_ns // 2
    assert (ramped[after] - steady[after] == ramp_ns - ramp_ns // 2).all()
    assert (ramped[~after] <= ramp_ns).all()
    assert (ramped >= steady).all()


def test_the_rate_rises_evenly_from_nothing() -> None:
    offsets_s = RampedUp(Constant(100.0), 10.0).offsets_ns(1_000, 0) / 1e9
    counts = np.histogram(offsets_s, np.arange(0, 14))[0]  # of each second: 100 · (t + 1/2) / 10 while it rises
    assert counts[:10] == pytest.approx(100 * (np.arange(10) + 0.5) / 10, abs=1.01)
    assert counts[10:12].tolist() == [100, 100]


def test_a_ramp_prints_itself() -> None:
    assert str(RampedUp(Exponential(10), 5)) == "exponential arrivals at 10 requests/s, the rate rising over 5 s"


# ---- a duration


@settings(max_examples=50)
@given(
    st.builds(RampedUp, st.builds(Exponential, st.floats(1, 500)), st.floats(0.1, 5))
    | st.builds(Gamma, st.floats(1, 500), st.floats(0.2, 9)),
    st.floats(0.01, 8.0),
    _SEEDS,
    st.none() | st.integers(0, 2_000),
)
def test_a_duration_cuts_the_process_where_it_is_over(
    arrivals: Arrivals, duration_s: float, seed: int, at_most: int | None
) -> None:
    within = offsets_within(arrivals, duration_s, seed, at_most)
    longer = arrivals.offsets_ns(20_000, seed)
    expected = longer[longer < round(duration_s * 1e9)][:at_most]
    assert within.tolist() == expected.tolist()


def test_an_arrival_at_the_end_of_a_duration_is_beyond_it() -> None:
    assert offsets_within(Constant(0.25), 12.0, 0).tolist() == [0, 4_000_000_000, 8_000_000_000]


def test_more_arrivals_than_anyone_can_prepare_are_refused() -> None:
    with pytest.raises(WorkloadError) as refused:
        offsets_within(Constant(1e6), 1e6, 0)
    problem = "more than 10,000,000 requests would arrive; lower request_rate or duration"
    assert str(refused.value) == f"duration 1e+06: {problem}"


def test_a_burst_that_is_counted_has_an_end() -> None:
    assert offsets_within(AllAtOnce(), 5.0, 0, at_most=7).tolist() == [0] * 7


@pytest.mark.parametrize(
    "law", ["exponential", "constant", "gamma:cv=2", "gamma:cv=0.3", "weibull:cv=1.5", "bursts:size=1", "bursts:size=20"]
)
def test_drawn_gaps_have_the_asked_rate_and_variation(law: str) -> None:
    arrivals = arrivals_at(20.0, parse_law(law))
    gaps = np.diff(arrivals.offsets_ns(200_001, seed=4)) / 1e9
    assert arrivals.asked_rate_per_s == 20.0
    assert arrivals.asked_gap_cv is not None
    assert gaps.mean() == pytest.approx(1 / 20, rel=0.04)
    assert gaps.std() / gaps.mean() == pytest.approx(arrivals.asked_gap_cv, rel=0.04, abs=1e-6)


@pytest.mark.parametrize(("count", "offsets_ns"), [(0, []), (2, [0, 5]), (4, [0, 5, 9])])
def test_a_trace_s_arrivals_are_its_first_times(count: int, offsets_ns: list[int]) -> None:
    offsets = Recorded((0, 5, 9)).offsets_ns(count, 0)
    assert offsets.tolist() == offsets_ns
    assert offsets.dtype == np.int64


def test_a_trace_asks_for_its_own_rate_and_variation() -> None:
    arrivals = Recorded((0, 1_000_000_000, 4_000_000_000))
    assert (arrivals.asked_rate_per_s, arrivals.asked_gap_cv) == (0.5, 0.5)
    assert Recorded((2_000_000_000, 3_000_000_000, 6_000_000_000)).asked_rate_per_s == 0.5  # after a silence
    at_once = Recorded((7, 7))
    assert (at_once.asked_rate_per_s, at_once.asked_gap_cv) == (None, None)
    assert (AllAtOnce().asked_rate_per_s, AllAtOnce().asked_gap_cv) == (None, None)
    assert RampedUp(Gamma(5.0, 4.0), 2.0).asked_gap_cv == 0.5
    assert RampedUp(Gamma(5.0, 4.0), 2.0).asked_rate_per_s == 5.0
