"""Real processes that send pulses to a watch whose clock the test moves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from serving.launch.pulse_watch import ENDED_S, SILENCE_S, PulseWatch
from serving.pulse import PIPE_VARIABLE, Pulse

_MODEL = """
import ctypes, sys, threading
from serving.pulse import send_pulses
closing = threading.Event()
pulses = threading.Thread(target=send_pulses, args=("my model", closing))
pulses.start()
for order in sys.stdin:
    if order == "end\\n":
        closing.set()
        pulses.join()
    if order == "keep the GIL\\n":
        print("keeping", flush=True)
        ctypes.PyDLL(None).sleep(600)
    print("done", flush=True)
"""
_STEP_S = 0.25


class _Watched:
    """A watch, its clock, and the process of a model that sends it pulses."""

    def __init__(self) -> None:
        self._now_s = 100.0
        self._watch = PulseWatch(self._now_s)
        self.model = subprocess.Popen(
            [sys.executable, "-c", _MODEL],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._watch.environment},
            pass_fds=[self._watch.writing_end],
        )

    def has_pulse(self) -> bool:
        assert self.after(0.0) is None
        return self.model.pid in self._watch.processes

    def order(self, order: str) -> str:
        """Give the model an order, and return its answer."""
        assert self.model.stdin is not None
        assert self.model.stdout is not None
        self.model.stdin.write(f"{order}\n")
        self.model.stdin.flush()
        return self.model.stdout.readline()

    def after(self, seconds: float) -> str | None:
        """What the watch says within ``seconds`` of its clock, which pass at once."""
        lost = self._watch.lost(self._now_s)
        for _ in range(round(seconds / _STEP_S)):
            self._now_s += _STEP_S
            lost = lost or self._watch.lost(self._now_s)
        return lost

    def after_one_step_of(self, seconds: float) -> str | None:
        self._now_s += seconds
        return self._watch.lost(self._now_s)


@pytest.fixture
def watched() -> Iterator[_Watched]:
    watched = _Watched()
    try:
        _wait_until(watched.has_pulse)
        yield watched
    finally:
        watched.model.kill()
        watched.model.communicate()


def test_process_that_cannot_run_python_is_lost_and_leaves_its_tracebacks(watched: _Watched) -> None:
    assert watched.order("keep the GIL") == "keeping\n"
    time.sleep(0.5)
    assert watched.after(SILENCE_S - 2) is None
    lost = watched.after(2)
    assert lost is not None
    assert f"The process of my model ({watched.model.pid}) ran no Python for 30 s" in lost
    assert watched.model.stderr is not None
    assert watched.model.stderr.readline().startswith("Thread 0x")


def test_process_that_ended_is_lost_soon(watched: _Watched) -> None:
    watched.model.kill()
    _wait_until(lambda: _state(watched.model.pid) == "Z")
    assert watched.after(ENDED_S + 1) == (
        f"The process of my model ({watched.model.pid}) ended, so its server was stopped. Start it again."
    )


def test_process_that_ends_in_order_is_not_lost(watched: _Watched) -> None:
    assert watched.order("end") == "done\n"
    watched.model.kill()
    assert watched.after(2 * SILENCE_S) is None


def test_stopped_process_is_not_lost(watched: _Watched) -> None:
    watched.model.send_signal(signal.SIGSTOP)
    _wait_until(lambda: _state(watched.model.pid) == "T")
    assert watched.after(3 * SILENCE_S) is None


def test_sleep_of_the_whole_machine_is_no_silence(watched: _Watched) -> None:
    assert watched.after_one_step_of(10 * SILENCE_S) is None


def test_pulses_end_a_silence(watched: _Watched) -> None:
    assert watched.after(SILENCE_S - 2) is None
    time.sleep(2.5)  # a pulse or two
    assert watched.after(SILENCE_S - 2) is None


@pytest.mark.parametrize("name", ["", "junk", "7", "1000000:1", "{descriptor}:1"])
def test_descriptor_that_is_not_the_pipe_gets_no_pulses(name: str) -> None:
    """A launcher between may close what it inherits, and open another file under that number."""
    reading_end, writing_end = os.pipe()
    try:
        model = subprocess.run(
            [sys.executable, "-c", _MODEL],
            input="end\n",
            capture_output=True,
            text=True,
            env={**os.environ, PIPE_VARIABLE: name.format(descriptor=writing_end)},
            pass_fds=[writing_end],
            timeout=120,
            check=False,
        )
        assert (model.returncode, model.stdout, model.stderr) == (0, "done\n", "")
        os.set_blocking(reading_end, False)
        with pytest.raises(BlockingIOError):
            os.read(reading_end, 1)
    finally:
        os.close(reading_end)
        os.close(writing_end)


def test_pulses_of_one_read_may_be_cut() -> None:
    watch = PulseWatch(0.0)
    line = Pulse(os.getpid(), "my model").line()
    os.write(watch.writing_end, line + line[:7])
    assert watch.lost(0.1) is None
    os.write(watch.writing_end, line[7:] + Pulse(os.getpid(), "my model", last=True).line())
    assert watch.lost(0.2) is None
    assert watch.processes == frozenset()


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return stat.read().rpartition(")")[2].split()[0]
