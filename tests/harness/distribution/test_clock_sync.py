"""Differences of clocks from exchanges over simulated networks, where the truth is known."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.distribution.clock_sync import ClockExchange, offset_at, report_clock

_S, _MS = 1_000_000_000, 1_000_000


def _exchange(sent_ns: int, there_ns: int, work_ns: int, back_ns: int, offset_ns: float, drift: float = 0.0) -> ClockExchange:
    """An exchange of a host whose clock is ahead by ``offset_ns`` at time 0 and gains ``drift`` of the time."""

    def theirs(true_ns: int) -> int:
        return round(true_ns + offset_ns + drift * true_ns)

    received, answered = sent_ns + there_ns, sent_ns + there_ns + work_ns
    return ClockExchange(sent_ns, theirs(received), theirs(answered), answered + back_ns)


@given(
    offset_ns=st.integers(-(10**15), 10**15),
    drift_ppm=st.floats(-150, 150),
    delays_ms=st.lists(st.tuples(st.floats(0.05, 80), st.floats(0, 5), st.floats(0.05, 80)), min_size=1, max_size=40),
    at_s=st.floats(0, 10),
)
def test_the_true_difference_is_within_the_uncertainty_however_unequal_the_ways(
    offset_ns: int, drift_ppm: float, delays_ms: list[tuple[float, float, float]], at_s: float
) -> None:
    exchanges = [
        _exchange(k * _S // 5, round(there * _MS), round(work * _MS), round(back * _MS), offset_ns, drift_ppm * 1e-6)
        for k, (there, work, back) in enumerate(delays_ms)
    ]
    at_ns = round(at_s * _S)
    found = offset_at(exchanges, at_ns)
    assert found is not None
    true_ns = offset_ns + drift_ppm * 1e-6 * at_ns
    assert abs(found.offset_ns - true_ns) <= found.uncertainty_ns + 2


def test_the_uncertainty_is_that_of_the_quickest_way_there_and_the_quickest_back() -> None:
    slow_back, slow_there = _exchange(0, 1 * _MS, 0, 50 * _MS, 0), _exchange(_MS, 60 * _MS, 0, 2 * _MS, 0)
    found = offset_at([slow_back, slow_there], 50 * _MS)
    assert found is not None
    assert found.uncertainty_ns == pytest.approx(1.5 * _MS, abs=0.02 * _MS)


def test_no_exchange_is_no_difference() -> None:
    assert offset_at([], 0) is None
    assert report_clock([], 0, _S) is None


def test_drift_over_a_run_is_found_within_its_uncertainty() -> None:
    noise = Random(3)
    exchanges = [
        _exchange(
            k * _S // 4,
            round(noise.expovariate(1 / _MS)) + 10_000,
            1_000,
            round(noise.expovariate(1 / _MS)) + 10_000,
            7e9,
            40e-6,
        )
        for k in range(480)
    ]
    report = report_clock(exchanges, 10 * _S, 110 * _S)
    assert report is not None
    assert report.end is not None
    assert report.drift_ppm is not None
    assert report.drift_uncertainty_ppm is not None
    assert abs(report.drift_ppm - 40) <= report.drift_uncertainty_ppm < 20
    assert (report.jump_ns, report.exchanges) == (None, 480)


@pytest.mark.parametrize("jump_ms", [30, -30])
def test_a_clock_that_jumps_is_found(jump_ms: int) -> None:
    exchanges = [_exchange(k * _S, _MS, 0, _MS, jump_ms * _MS if k >= 20 else 0) for k in range(40)]
    report = report_clock(exchanges, 5 * _S, 35 * _S)
    assert report is not None
    assert report.jump_ns == pytest.approx(28 * _MS, abs=0.5 * _MS)  # the rest could be the network


def test_a_jump_before_the_run_is_no_fault_of_it() -> None:
    exchanges = [_exchange(k * _S, _MS, 0, _MS, 30 * _MS if k >= 3 else 0) for k in range(40)]
    report = report_clock(exchanges, 20 * _S, 35 * _S)
    assert report is not None
    assert report.jump_ns is None
    assert report.start.offset_ns == pytest.approx(30 * _MS, abs=_MS)


def test_a_run_without_exchanges_has_its_start_alone() -> None:
    report = report_clock([_exchange(0, _MS, 0, _MS, 5)], 2 * _S, 9 * _S)
    assert report is not None
    assert (report.end, report.drift_ppm) == (None, None)
