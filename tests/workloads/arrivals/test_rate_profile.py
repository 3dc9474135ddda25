"""Rates that change over time: spelt, parsed back, and followed by arrivals whose gaps keep their law on that clock."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from workloads.arrivals.law import ArrivalLaw, parse_law
from workloads.arrivals.processes import Constant, Exponential, offsets_within
from workloads.arrivals.rate_profile import OnOff, Piecewise, Profiled, RateProfile, Sine, parse_profile, stages
from workloads.elements.errors import WorkloadError

_LENGTHS_S = st.floats(0.1, 1e4)
_RATES = st.floats(0.0, 1e3)
_STAGES = st.lists(st.tuples(_LENGTHS_S, _RATES), min_size=1, max_size=6).filter(
    lambda all_of: max(r for _, r in all_of) > 1e-3
)


@st.composite
def _piecewise(draw: st.DrawFn) -> Piecewise:
    steps = draw(st.lists(st.tuples(st.floats(0.0, 1e3), _RATES), min_size=1, max_size=6))
    at_s, points = 0.0, [(0.0, draw(st.floats(1e-3, 1e3)))]
    for step, rate in steps:
        at_s += step
        points.append((at_s, rate))
    return Piecewise((*points, (at_s + 1.0, 2.0)))


_PROFILES = st.one_of(
    st.builds(Sine, st.floats(0.0, 1.0), _LENGTHS_S),
    st.builds(OnOff, _LENGTHS_S, st.floats(0.0, 1e4)),
    _STAGES.map(lambda all_of: stages(tuple(all_of))),
    _piecewise(),
)


@given(
    st.one_of(st.builds(Sine, st.floats(0.0, 1.0), _LENGTHS_S), st.builds(OnOff, _LENGTHS_S, st.floats(0.0, 1e4)), _piecewise())
)
def test_a_profile_parses_what_it_prints(profile: RateProfile) -> None:
    assert parse_profile(str(profile)) == profile


def test_stages_parse_what_they_print() -> None:
    text = "stages:5/s*60s,0/s*0.5s,12.5/s*120s"
    assert str(parse_profile(text)) == text
    assert str(parse_profile("Piecewise:0=5,1min=0.5")) == "piecewise:0s=5/s,60s=0.5/s"
    assert parse_profile("Stages:5*1min, 0/s*500ms ,12.5/s*2m") == parse_profile(text)


@given(_PROFILES, st.lists(st.floats(0.0, 1e4), min_size=1, max_size=40).map(sorted))
def test_arrivals_keep_their_order_and_the_rate_up_to_each_of_them_sums_to_its_place(
    profile: RateProfile, places: list[float]
) -> None:
    operational = np.array(places)
    times_s = profile.times_s(operational)
    assert (np.diff(times_s) >= -1e-9 * np.maximum(1.0, times_s[1:])).all()
    within = times_s <= (math.inf if profile.end_s is None else profile.end_s)
    assert _integral(profile, times_s[within]) == pytest.approx(operational[within], rel=1e-6, abs=1e-6)


def _integral(profile: RateProfile, at_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """The integrated rate, by another way than the one under test."""
    match profile:
        case Sine(amplitude, period_s):
            half_s = period_s / (2.0 * math.pi)
            return at_s + amplitude * half_s * 2.0 * np.sin(at_s / (2.0 * half_s)) ** 2
        case OnOff(on_s, off_s):
            rounds, rest_s = np.divmod(at_s, on_s + off_s)
            return (rounds * on_s + np.minimum(rest_s, on_s)) * (on_s + off_s) / on_s
        case Piecewise(points):
            total = np.zeros_like(at_s)
            for (begin_s, first), (end_s, last) in itertools.pairwise(points):
                spent_s = np.clip(at_s - begin_s, 0.0, end_s - begin_s)
                share = spent_s / (end_s - begin_s) if end_s > begin_s else 0.0
                total += spent_s * (first + (last - first) * share / 2.0)
            return total
    raise AssertionError(profile)


@given(_PROFILES, st.floats(0.1, 1e3))
def test_the_asked_rate_is_the_integral_of_the_rate_over_the_time(profile: RateProfile, end_s: float) -> None:
    end_s = end_s if profile.end_s is None else profile.end_s
    rate = 1.0 if profile.is_absolute else 3.0
    asked = Profiled(parse_law("exponential").at(rate), profile, rate).asked_rate_until(end_s)
    assert asked == pytest.approx(rate * float(_integral(profile, np.array([end_s]))[0]) / end_s, rel=1e-5, abs=1e-5)


def test_the_asked_rate_of_stages_is_their_mean_and_that_of_a_cycle_the_given_one() -> None:
    law = parse_law("gamma:cv=2")
    assert Profiled(law.at(1.0), parse_profile("stages:5/s*60s,10/s*60s"), 1.0).asked_rate_per_s == pytest.approx(7.5)
    assert Profiled(law.at(4.0), parse_profile("sine:amplitude=0.5,period=600s"), 4.0).asked_rate_per_s == 4.0


_LAW = st.sampled_from([parse_law(text) for text in ("exponential", "gamma:cv=2", "weibull:cv=0.5", "constant")])


@given(_LAW, st.integers(0, 99))
def test_gaps_keep_their_law_on_the_profile_s_clock(law: ArrivalLaw, seed: int) -> None:
    profile = parse_profile("stages:5/s*20s,40/s*10s,10/s*1000s")
    offsets_s = Profiled(law.at(1.0), profile, 1.0).offsets_ns(2_000, seed) / 1e9
    assert np.diff(_integral(profile, offsets_s)) == pytest.approx(np.diff(law.at(1.0).offsets_ns(2_000, seed) / 1e9), abs=1e-6)


@pytest.mark.parametrize(
    ("text", "rate_per_s", "from_s", "to_s", "expected"),
    [
        ("stages:5/s*100s,50/s*100s,0/s*50s,20/s*100s", 1.0, 0, 100, 500),
        ("stages:5/s*100s,50/s*100s,0/s*50s,20/s*100s", 1.0, 100, 200, 5_000),
        ("stages:5/s*100s,50/s*100s,0/s*50s,20/s*100s", 1.0, 200, 250, 0),
        ("stages:5/s*100s,50/s*100s,0/s*50s,20/s*100s", 1.0, 250, 350, 2_000),
        ("piecewise:0s=0/s,100s=100/s,200s=100/s", 1.0, 0, 100, 5_000),
        ("piecewise:0s=0/s,100s=100/s,200s=100/s", 1.0, 100, 200, 10_000),
        ("sine:amplitude=0.8,period=400s", 50.0, 0, 200, 50 * (200 + 0.8 * 400 / math.pi)),
        ("sine:amplitude=0.8,period=400s", 50.0, 0, 400, 50 * 400),
        ("on_off:on=10s,off=30s", 25.0, 0, 10, 1_000),
        ("on_off:on=10s,off=30s", 25.0, 10, 40, 0),
        ("on_off:on=10s,off=30s", 25.0, 0, 400, 10_000),
    ],
)
def test_arrivals_between_two_times_are_as_many_as_the_rate_makes(
    text: str, rate_per_s: float, from_s: float, to_s: float, expected: float
) -> None:
    profile = parse_profile(text)
    arrivals = Profiled(Exponential(rate_per_s), profile, rate_per_s)
    counts = [
        int(((offsets := offsets_within(arrivals, 400.0, seed) / 1e9) >= from_s).sum() - (offsets >= to_s).sum())
        for seed in range(8)
    ]
    assert np.mean(counts) == pytest.approx(expected, abs=max(1.0, 4.5 * math.sqrt(expected / 8)))
    if expected > 100:
        assert stats.poisson.sf(max(counts), expected) > 1e-5


def test_the_end_of_a_profile_ends_the_arrivals() -> None:
    arrivals = Profiled(Exponential(1.0), parse_profile("stages:10/s*5s,20/s*5s"), 1.0)
    assert arrivals.profile.end_s == 10.0
    assert arrivals.peak_rate_per_s == 20.0
    assert 100 < offsets_within(arrivals, 10.0, 0).size < 200
    assert offsets_within(arrivals, 10.0, 0).tolist() == offsets_within(arrivals, 11.0, 0).tolist()


_FORMS = "sine:amplitude=0.5,period=600s, on_off:on=10s,off=20s, stages:5/s*60s,10/s*60s or piecewise:0s=5/s,60s=10/s"
_ON_OFF_LIMITS = f"the time with requests must be above 0 s, and both at most 1e+07 s; write {_FORMS}"
_HIGHEST = "give at most 1,000,000 requests/s, and at most 10,000,000 s"
_POINTS = "give points from 0s on with rising times, and a rate above 0, as piecewise:0s=5/s,60s=10/s"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", f"'' is no profile of a rate; write {_FORMS}"),
        (" square :on=1", f"'square' is no profile of a rate; write {_FORMS}"),
        ("sine:amplitude=0.5", f"sine needs its 'period'; write {_FORMS}"),
        ("sine:amplitude=1.01,period=5s", f"the amplitude is a share of the mean rate, from 0 to 1; write {_FORMS}"),
        ("sine:amplitude=0.5,period=0s", f"the period must be above 0 s, and at most 1e+07 s; write {_FORMS}"),
        ("sine:amplitude=0.5,period=10000001s", f"the period must be above 0 s, and at most 1e+07 s; write {_FORMS}"),
        ("sine:amplitude=0.5,periods=5s", f"sine has no 'periods'; write {_FORMS}"),
        ("sine:amplitude=500ms,period=5s", f"'amplitude=500ms' is not a name and a number; write {_FORMS}"),
        ("on_off:on=0s,off=5s", _ON_OFF_LIMITS),
        ("on_off:on=10000001s,off=5s", _ON_OFF_LIMITS),
        ("on_off:on=5s,off=10000001s", _ON_OFF_LIMITS),
        ("on_off:10,20", f"'10' is not a name and a number; write {_FORMS}"),
        ("on_off:on=5s", f"on_off needs its 'off'; write {_FORMS}"),
        ("stages", f"'' is no stage or point; write {_FORMS}"),
        ("stages:5/s", f"'5/s' is no stage or point; write {_FORMS}"),
        ("stages:5/s*60s,x", f"'x' is no stage or point; write {_FORMS}"),
        ("stages:x*60s", f"'x*60s' is no stage or point; write {_FORMS}"),
        ("stages:5/s*x", f"'5/s*x' is no stage or point; write {_FORMS}"),
        ("stages:60s*5/s", f"'60s*5/s' is no stage or point; write {_FORMS}"),
        ("stages:5m*60s", f"'5m*60s' is no stage or point; write {_FORMS}"),
        ("piecewise:0s=5/s,60s=10s", f"'60s=10s' is no stage or point; write {_FORMS}"),
        ("piecewise:0/s=5s,60s=10/s", f"'0/s=5s' is no stage or point; write {_FORMS}"),
        ("piecewise:0s=5/s,x", f"'x' is no stage or point; write {_FORMS}"),
        ("stages:5/s*60s,5/s*0s", "each stage has a length above 0 s, and one of them a rate above 0"),
        ("stages:0/s*9s", "each stage has a length above 0 s, and one of them a rate above 0"),
        ("stages:1e99/s*9s", f"'1e99/s*9s': {_HIGHEST}"),
        ("stages:1000001/s*9s", f"'1000001/s*9s': {_HIGHEST}"),
        ("stages:1/s*10000001s", f"'1/s*10000001s': {_HIGHEST}"),
        ("piecewise:0s=1000001/s,9s=1/s", f"'0s=1000001/s': {_HIGHEST}"),
        ("piecewise:0s=1/s,10000001s=1/s", f"'10000001s=1/s': {_HIGHEST}"),
        ("piecewise:0s=5/s", _POINTS),
        ("piecewise:1s=5/s,2s=5/s", _POINTS),
        ("piecewise:0s=5/s,9s=1/s,5s=5/s", _POINTS),
        ("piecewise:0s=0/s,9s=0/s", _POINTS),
    ],
)
def test_any_other_text_is_an_error_that_says_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(WorkloadError) as error:
        parse_profile(text)
    assert str(error.value) == f"rate_profile {text}: {problem}"


def test_the_highest_rate_and_the_longest_time_are_allowed() -> None:
    assert parse_profile("stages:1e6/s*1e7s") == Piecewise(((0.0, 1e6), (1e7, 1e6)))
    assert parse_profile("piecewise:0s=1e6/s,1e7s=0/s") == Piecewise(((0.0, 1e6), (1e7, 0.0)))
    assert parse_profile("sine:amplitude=1,period=1e7s") == Sine(1.0, 1e7)
    assert parse_profile("on_off:on=1e7s,off=1e7s") == OnOff(1e7, 1e7)


def test_rates_below_one_a_second_are_rates() -> None:
    assert parse_profile("stages:0.5/s*9s") == Piecewise(((0.0, 0.5), (9.0, 0.5)))
    assert parse_profile("piecewise:0s=0.5/s,9s=0/s") == Piecewise(((0.0, 0.5), (9.0, 0.0)))


def test_arrivals_of_a_constant_rate_are_exact_and_whole() -> None:
    offsets = Profiled(Constant(1.0), parse_profile("stages:2/s*100s"), 1.0).offsets_ns(5, 0)
    assert offsets.tolist() == [0, 500_000_000, 1_000_000_000, 1_500_000_000, 2_000_000_000]
    assert offsets.dtype == np.int64


def test_an_arrival_that_is_due_where_a_pause_begins_comes_at_its_end() -> None:
    profile = parse_profile("stages:0/s*10s,5/s*10s,0/s*10s,5/s*10s")
    assert profile.times_s(np.array([0.0, 25.0, 50.0, 75.0])) == pytest.approx([10.0, 15.0, 30.0, 35.0])


def test_a_rate_that_rises_within_less_than_a_second_is_followed() -> None:
    profile = parse_profile("piecewise:0s=0/s,0.5s=10/s,9s=10/s")  # 10·t² requests up to t ≤ 1/2, then 10 a second
    assert profile.times_s(np.array([0.4, 1.6, 2.5, 12.5])) == pytest.approx([0.2, 0.4, 0.5, 1.5])


def test_what_is_due_at_the_end_of_a_profile_or_later_is_beyond_it_and_in_order() -> None:
    within, *beyond = parse_profile("stages:5/s*60s").times_s(np.array([299.0, 300.0, 301.0, 400.0])).tolist()
    assert within == pytest.approx(59.8)
    assert 60.0 < beyond[0] < beyond[1] < beyond[2]


def test_a_profile_is_part_of_what_the_arrivals_print() -> None:
    assert str(Profiled(Exponential(5.0), parse_profile("sine:amplitude=0.5,period=60s"), 5.0)) == (
        "exponential arrivals at 5 requests/s on average, the rate by sine:amplitude=0.5,period=60s"
    )
    assert str(Profiled(Exponential(1.0), parse_profile("stages:5/s*60s"), 1.0)) == (
        "exponential arrivals, the rate by stages:5/s*60s"
    )


# ---- the rate at a time


_ORDINARY = st.one_of(  # none changes within a millisecond, except steps
    st.builds(Sine, st.floats(0.0, 0.9), st.floats(1.0, 1e3)),
    st.builds(OnOff, st.floats(1.0, 1e3), st.floats(1.0, 1e3)),
    st.lists(st.tuples(st.floats(1.0, 100.0), st.floats(0.1, 100.0)), min_size=1, max_size=6).map(
        lambda all_of: stages(tuple(all_of))
    ),
)


@given(_ORDINARY, st.floats(0.0, 1e3))
def test_a_bit_more_than_a_request_takes_as_long_as_the_rate_there_says(profile: RateProfile, place: float) -> None:
    step = 1e-4
    begin_s, end_s = profile.times_s(np.array([place, place + step])).tolist()
    rates = [profile.rate_at(begin_s + share * (end_s - begin_s)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    if min(rates) < 0.5 * max(rates) or max(rates) == 0.0:  # a step, or a pause, lies between, or the end before
        return
    assert step / max(rates) * 0.999 - 1e-8 <= end_s - begin_s <= step / min(rates) * 1.001 + 1e-8


@pytest.mark.parametrize(
    ("text", "at_s", "rate"),
    [
        ("sine:amplitude=0.5,period=8s", 2.0, 1.5),
        ("sine:amplitude=0.5,period=8s", 6.0, 0.5),
        ("on_off:on=1s,off=3s", 0.5, 4.0),
        ("on_off:on=1s,off=3s", 1.0, 0.0),
        ("on_off:on=1s,off=3s", 4.0, 4.0),
        ("stages:5/s*60s,20/s*30s", 59.9, 5.0),
        ("stages:5/s*60s,20/s*30s", 60.0, 20.0),
        ("stages:5/s*60s,20/s*30s", 90.0, 0.0),
        ("piecewise:0s=5/s,10s=15/s", 5.0, 10.0),
        ("piecewise:0s=0/s,10s=10/s,30s=50/s", 20.0, 30.0),
    ],
)
def test_the_rate_at_a_time_is_that_of_the_curve_and_at_a_step_the_later_one(text: str, at_s: float, rate: float) -> None:
    assert parse_profile(text).rate_at(at_s) == pytest.approx(rate)
