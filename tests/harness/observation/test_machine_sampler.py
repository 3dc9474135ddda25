"""The sampler of the machine and the parent."""

from __future__ import annotations

import os
import time
from pathlib import Path

from harness.host.clock import now_ns
from harness.observation.machine_sampler import CoreTimes, MachineSampler, core_times
from harness.observation.sample_file import read_samples

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_STAT = """cpu  111 1 11 1111 11 1 1 11 0 0
cpu0 10 1 20 900 5 2 3 4 7 0
cpu1 100 0 0 0 0 0 0 50 0 0
cpu10 7 7 7 7 7 7 7 7 7 7
intr 1 2 3
"""


def test_times_are_summed_over_the_cores_that_the_client_may_use() -> None:
    assert core_times(_STAT, {0}) == CoreTimes((10 + 1 + 20 + 2 + 3) * _TICK_NS, 4 * _TICK_NS)
    assert core_times(_STAT, {0, 1}) == CoreTimes((36 + 100) * _TICK_NS, 54 * _TICK_NS)


def test_what_is_not_in_the_file_is_unknown() -> None:
    assert core_times("", {0}) is None
    assert core_times(_STAT, {7}) is None
    assert core_times("cpu0 1 2 3 4\n", {0}) is None  # a kernel without steal


def test_a_counter_that_steps_back_is_no_time() -> None:
    assert CoreTimes(5, 9).since(CoreTimes(7, 4)) == CoreTimes(0, 5)


def test_samples_add_up_to_what_the_parent_and_the_machine_used(tmp_path: Path) -> None:
    began_ns, before_ns = now_ns(), time.process_time_ns()
    sampler = MachineSampler(tmp_path / "samples", began_ns, os.sched_getaffinity(0))
    deadline = time.process_time() + 0.7
    while time.process_time() < deadline:
        pass
    sampler.close()
    used_ns, took_ns = time.process_time_ns() - before_ns, now_ns() - began_ns
    samples = list(read_samples(tmp_path / "samples"))
    assert len(samples) >= 3  # at its beginning, in between, at its end
    assert {sample.worker for sample in samples} == {None}
    assert {sample.lag_ns for sample in samples} == {None}
    told_ns = sum(sample.cpu_ns or 0 for sample in samples)
    assert 0.6e9 < told_ns <= used_ns
    busy_ns = sum(sample.busy_ns or 0 for sample in samples)
    assert told_ns - 0.2e9 < busy_ns <= (took_ns + 0.2e9) * len(os.sched_getaffinity(0))
