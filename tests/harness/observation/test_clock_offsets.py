"""How the system's clocks stand to each other."""

from __future__ import annotations

import itertools
import time

import pytest

from harness.observation.clock_offsets import ClockOffsets, read_clock_offsets


def test_offsets_lead_from_one_clock_to_the_other() -> None:
    offsets = read_clock_offsets()
    assert abs(time.time_ns() - time.monotonic_ns() - offsets.realtime_minus_monotonic_ns) < 1_000_000_000
    assert offsets.boottime_minus_monotonic_ns > -1_000_000  # sleep only adds to it


def test_a_clock_that_is_set_and_a_machine_that_sleeps_show(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.clock_gettime_ns
    before = read_clock_offsets()
    steps_ns = {time.CLOCK_REALTIME: -3_600_000_000_000, time.CLOCK_BOOTTIME: 60_000_000_000}
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: real(clock) + steps_ns.get(clock, 0))
    after = read_clock_offsets()
    assert after.realtime_minus_monotonic_ns - before.realtime_minus_monotonic_ns == pytest.approx(-3.6e12, abs=1e9)
    assert after.boottime_minus_monotonic_ns - before.boottime_minus_monotonic_ns == pytest.approx(6e10, abs=1e9)


def test_of_several_tries_the_least_disturbed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two readings the process may be kept from running: that must not pass for a step of the clock."""
    steps_ns = itertools.cycle([50, 10**9, 50, 50, 50, 50, 50, 50, 10**9])
    now = itertools.accumulate(steps_ns)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(now))
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: next(now) + 7_000)
    assert read_clock_offsets() == ClockOffsets(7_000, 7_000)
