"""Meters of a worker. The garbage collector's: test_event_loop_sampler.py."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.observation.meters import ThreadMeter, ThreadUsage


def test_usage_is_that_of_the_reading_thread_alone() -> None:
    used: list[ThreadUsage] = []

    def idle() -> None:
        meter = ThreadMeter()
        busy.join()
        used.append(meter.read())
        meter.close()

    def nap() -> None:
        for _ in range(200):
            time.sleep(0.001)

    busy = threading.Thread(target=nap)
    waiting = threading.Thread(target=idle)
    busy.start()
    waiting.start()
    waiting.join()
    assert used[0].voluntary_switches < 100


def test_usage_only_grows() -> None:
    meter = ThreadMeter()
    before = meter.read()
    for _ in range(3):
        time.sleep(0.01)
    after = meter.read()
    meter.close()
    assert after.voluntary_switches >= before.voluntary_switches + 3
    assert after.involuntary_switches >= before.involuntary_switches
    if before.run_queue_wait_ns is not None and after.run_queue_wait_ns is not None:
        assert after.run_queue_wait_ns >= before.run_queue_wait_ns


def _written(path: Path, text: str) -> Callable[..., int]:
    path.write_text(text)
    return lambda name, flags: _open(path, flags)


_open = os.open


@pytest.mark.parametrize(("text", "wait_ns"), [("5000 70 3\n", 70), ("5000 0 3\n", 0), ("0 0 0\n", None)])
def test_a_kernel_without_accounting_is_distinguished_from_one_without_a_wait(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, wait_ns: int | None
) -> None:
    monkeypatch.setattr(os, "open", _written(tmp_path / "schedstat", text))
    meter = ThreadMeter()
    assert meter.read().run_queue_wait_ns == wait_ns
    meter.close()


def test_a_system_without_the_file_leaves_it_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*arguments: Any) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(os, "open", absent)
    meter = ThreadMeter()
    assert meter.read().run_queue_wait_ns is None
    meter.close()
