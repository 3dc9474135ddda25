"""Doing something again and again on a thread."""

from __future__ import annotations

import signal
import threading
import time

from harness.host.periodic import Periodic


def test_action_is_called_again_and_again_until_stopped() -> None:
    called = threading.Semaphore(0)
    periodic = Periodic(0.01, called.release, "test")
    for _ in range(5):
        assert called.acquire(timeout=120)
    assert periodic.stop()
    while called.acquire(blocking=False):
        pass
    assert not called.acquire(timeout=0.1)


def test_calls_that_a_long_one_swallowed_are_not_made_up_for() -> None:
    starts_s: list[float] = []
    enough = threading.Event()

    def slow_at_first() -> None:
        starts_s.append(time.monotonic())
        if len(starts_s) == 1:
            time.sleep(0.65)
        if len(starts_s) == 6:
            enough.set()

    periodic = Periodic(0.1, slow_at_first, "test")
    assert enough.wait(120)
    periodic.stop()
    assert starts_s[5] - starts_s[1] >= 0.2  # not all at once, though one that is late and the next may be close


def test_signals_are_left_to_the_main_thread() -> None:
    masks: list[set[signal.Signals]] = []
    called = threading.Event()

    def look() -> None:
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))  # type: ignore[arg-type]
        called.set()

    periodic = Periodic(0.01, look, "test")
    assert called.wait(120)
    periodic.stop()
    assert {signal.SIGINT, signal.SIGTERM} <= masks[0]
