from __future__ import annotations

import os
import platform
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.host.cpu_priority import request_short_slices, run_at_low_priority


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_work_has_a_higher_niceness_and_nothing_else_has() -> None:
    before = _niceness()
    assert run_at_low_priority(_niceness) == min(19, before + 10)
    assert _niceness() == before
    assert run_at_low_priority(_niceness) == min(19, before + 10)  # not less and less


def test_arguments_go_in_and_the_result_comes_out() -> None:
    assert run_at_low_priority(divmod, 17, 5) == (3, 2)


def test_what_the_work_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run_at_low_priority(divmod, 1, 0)


def test_signals_are_taken_while_it_works() -> None:
    taken = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: taken.set())
    try:
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        assert run_at_low_priority(taken.wait, 30.0)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_thread_with_short_slices_keeps_its_niceness_and_policy() -> None:
    def request() -> tuple[bool, int, int]:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 3)
        return request_short_slices(), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)

    with ThreadPoolExecutor(1) as thread:
        done, niceness, policy = thread.submit(request).result()
    assert done == (platform.machine() in ("x86_64", "aarch64"))
    assert (niceness, policy) == (3, os.SCHED_OTHER)
