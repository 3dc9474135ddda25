from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from bench_records.manifest import ClockOffsets
from harness.host.clock import PreciseSleeper, now_ns, read_clock_offsets, wall_time

_MS = 1_000_000
_LATE_NS = 50 * _MS
_TRIES = 50  # other processes share the machine: one of them has to be in time


def _with_sleeper(work: Callable[[PreciseSleeper], Awaitable[None]]) -> None:
    async def run() -> None:
        sleeper = PreciseSleeper()
        try:
            await work(sleeper)
        finally:
            sleeper.close()

    uvloop.run(run())


def test_clock_is_the_monotonic_clock_of_the_host() -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert before <= now_ns() <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def test_wakes_at_or_after_the_time_and_not_much_later() -> None:
    async def work(sleeper: PreciseSleeper) -> None:
        for _ in range(_TRIES):
            start = now_ns()
            late = []
            for step in range(1, 41):  # 40 wake-ups, 2.5 ms apart
                due = start + step * 2_500_000
                await sleeper.until(due)
                late.append(now_ns() - due)
            assert min(late) >= 0
            if max(late) < _LATE_NS and sorted(late)[len(late) // 2] < 5 * _MS:
                return
        raise AssertionError(f"late by {late} ns")

    _with_sleeper(work)


def test_works_on_the_plain_event_loop_too() -> None:
    async def run() -> None:
        sleeper = PreciseSleeper()
        late = []
        for _ in range(_TRIES):
            due = now_ns() + 10 * _MS
            await sleeper.until(due)
            late.append(now_ns() - due)
            if late[-1] < _LATE_NS:
                break
        assert 0 <= min(late) < _LATE_NS
        sleeper.close()

    asyncio.run(run())


def test_past_times_return_at_once_but_let_others_run() -> None:
    async def work(sleeper: PreciseSleeper) -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        elapsed = []
        for tried in range(1, _TRIES + 1):
            started = now_ns()
            for _ in range(10):
                await sleeper.until(started - 1)
            elapsed.append(now_ns() - started)
            assert turns >= 9 * tried
            if elapsed[-1] < _LATE_NS:
                break
        task.cancel()
        assert min(elapsed) < _LATE_NS

    _with_sleeper(work)


def test_wake_ends_the_sleep_now() -> None:
    async def work(sleeper: PreciseSleeper) -> None:
        slept = []
        for _ in range(_TRIES):
            started = now_ns()
            asyncio.get_running_loop().call_later(0.01, sleeper.wake)
            await sleeper.until(started + 60_000 * _MS)
            slept.append(now_ns() - started)
            if slept[-1] < 10 * _MS + _LATE_NS:
                break
        assert min(slept) < 10 * _MS + _LATE_NS

    _with_sleeper(work)


def test_sleep_after_a_wake_lasts_until_its_own_time() -> None:
    async def work(sleeper: PreciseSleeper) -> None:
        first = now_ns() + 15 * _MS
        asyncio.get_running_loop().call_later(0.001, sleeper.wake)
        await sleeper.until(first)
        second = first + 20 * _MS
        await sleeper.until(second)  # the timer of the first sleep must not end this one
        assert now_ns() >= second

    _with_sleeper(work)


def test_wake_without_a_sleep_does_nothing_to_the_next() -> None:
    async def work(sleeper: PreciseSleeper) -> None:
        sleeper.wake()
        due = now_ns() + 10 * _MS
        await sleeper.until(due)
        sleeper.wake()
        assert now_ns() >= due

    _with_sleeper(work)


def test_others_run_while_it_sleeps() -> None:
    async def work(sleeper: PreciseSleeper) -> None:
        ticks = 0

        async def other() -> None:
            nonlocal ticks
            while ticks < 3:
                await asyncio.sleep(0.001)
                ticks += 1
            sleeper.wake()

        task = asyncio.create_task(other())
        started = now_ns()
        await sleeper.until(started + 60_000 * _MS)
        assert ticks == 3
        assert now_ns() - started < 10_000 * _MS
        await task

    _with_sleeper(work)


# ---- offsets to the other clocks


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


def test_of_several_readings_the_least_disturbed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two readings the process may be kept from running: that must not pass for a step of the clock."""
    steps_ns = itertools.cycle([50, 10**9, 50, 50, 50, 50, 50, 50, 10**9])
    now = itertools.accumulate(steps_ns)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(now))
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: next(now) + 7_000)
    assert read_clock_offsets() == ClockOffsets(realtime_minus_monotonic_ns=7_000, boottime_minus_monotonic_ns=7_000)


def test_a_date_is_that_of_its_moment_however_disturbed_a_reading_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.accumulate(itertools.cycle([50, 10**9, 50, 50, 50, 50, 50, 50, 10**9]))
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(now))
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: next(now) + 1_795_310_631_000_007_000)
    assert wall_time(2_500).isoformat() == "2026-11-22T01:23:51.000009+00:00"
