"""The sampler of a worker's event loop."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bench_records.client_sample import ClientSample
from harness.host.clock import now_ns
from harness.observation.event_loop_sampler import PERIOD_NS, LoopSampler, wake_ups
from harness.observation.sample_file import read_samples

_STALL_S = 0.4


def _watched(path: Path, *, busy_s: float = 0.0, stall_s: float = 0.0, collect: bool = False, rest_s: float = 0.3) -> float:
    """Run a loop that does that under the sampler; returns how long it was stalled, in ns."""

    async def work() -> float:
        stalled_ns = 0.0
        async with LoopSampler(path, 3, now_ns()):
            await asyncio.sleep(rest_s)
            began_ns = now_ns()
            if stall_s:
                time.sleep(stall_s)
            while now_ns() < began_ns + busy_s * 1e9:
                pass
            if collect:
                gc.collect()
            stalled_ns = now_ns() - began_ns
            await asyncio.sleep(rest_s)
        return stalled_ns

    return asyncio.run(work())


def _lags_ns(samples: list[ClientSample]) -> list[int]:
    return [sample.lag_ns for sample in samples if sample.lag_ns is not None]


@given(st.integers(0, 2**62), st.integers(1_000, 10**9))
def test_wake_ups_are_uneven_and_a_period_apart_on_average(start_ns: int, period_ns: int) -> None:
    times_ns = [start_ns, *itertools.islice(wake_ups(start_ns, period_ns), 1000)]
    gaps_ns = [later - earlier for earlier, later in itertools.pairwise(times_ns)]
    assert min(gaps_ns) >= 0.5 * period_ns - 1
    assert max(gaps_ns) <= 1.5 * period_ns + 1
    assert abs(sum(gaps_ns) / 1000 - period_ns) <= 0.01 * period_ns
    fractions = sorted(gap / period_ns - 0.5 for gap in gaps_ns)  # even over the interval: no rhythm to fall into step with
    assert all(abs(fraction - k / 1000) < 0.02 for k, fraction in enumerate(fractions))


def test_samples_have_their_worker_and_time(tmp_path: Path) -> None:
    _watched(tmp_path / "samples")
    samples = list(read_samples(tmp_path / "samples"))
    assert {sample.worker for sample in samples} == {3}
    assert [sample.time_ns for sample in samples] == sorted(sample.time_ns for sample in samples)
    assert 0 <= samples[0].time_ns < samples[-1].time_ns
    assert all(lag_ns >= 0 for lag_ns in _lags_ns(samples))
    assert len(_lags_ns(samples)) >= 5


def test_a_stalled_loop_shows_in_the_lag_of_every_wake_up_that_it_swallowed(tmp_path: Path) -> None:
    stalled_ns = _watched(tmp_path / "samples", stall_s=_STALL_S)
    lags_ns = _lags_ns(list(read_samples(tmp_path / "samples")))
    assert max(lags_ns) >= stalled_ns - 1.5 * PERIOD_NS
    late = sum(lag_ns > 2 * PERIOD_NS for lag_ns in lags_ns)
    assert late >= (stalled_ns - 2 * PERIOD_NS) / (1.5 * PERIOD_NS) - 1  # not one sample for all of it


def test_cpu_time_is_that_of_the_whole_process(tmp_path: Path) -> None:
    helper = threading.Thread(target=zlib.compress, args=(os.urandom(20_000_000),))
    before_ns = time.process_time_ns()
    helper.start()
    _watched(tmp_path / "samples", busy_s=0.3)
    used_ns = time.process_time_ns() - before_ns
    helper.join()
    told_ns = sum(sample.cpu_ns or 0 for sample in read_samples(tmp_path / "samples"))
    assert 0.5 * used_ns < told_ns <= used_ns


def test_garbage_collections_are_counted_with_their_length(tmp_path: Path) -> None:
    ballast = [[k] for k in range(200_000)]
    _watched(tmp_path / "samples", collect=True)
    samples = list(read_samples(tmp_path / "samples"))
    assert len(ballast) == 200_000
    assert sum(sample.gc_count or 0 for sample in samples) >= 1
    longest_ns = max(sample.gc_longest_ns or 0 for sample in samples)
    assert 0 < longest_ns <= sum(sample.gc_pause_ns or 0 for sample in samples)


def test_nothing_of_the_sampler_is_left_behind(tmp_path: Path) -> None:
    _watched(tmp_path / "warm")  # what the first use opens for good
    gc.collect()
    callbacks, files = len(gc.callbacks), len(os.listdir("/proc/self/fd"))
    _watched(tmp_path / "samples")
    assert len(gc.callbacks) == callbacks
    assert len(os.listdir("/proc/self/fd")) <= files


def test_a_full_disk_ends_the_sampling_and_not_the_work() -> None:
    assert _watched(Path("/dev/full"), stall_s=0.05) > 0


def test_a_killed_process_leaves_what_it_wrote(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from harness.host.clock import now_ns\n"
        "from harness.observation.event_loop_sampler import LoopSampler\n"
        "async def work():\n"
        "    async with LoopSampler(Path(sys.argv[1]), 0, now_ns()):\n"
        "        print('on', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(work())\n"
    )
    path = tmp_path / "samples"
    program = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "on\n"
        deadline_s = time.monotonic() + 120
        while len(list(read_samples(path))) < 5 and time.monotonic() < deadline_s:
            time.sleep(0.05)
    finally:
        program.send_signal(signal.SIGKILL)
        program.communicate()
    assert len(_lags_ns(list(read_samples(path)))) >= 4


def test_a_torn_last_sample_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    _watched(path)
    whole = list(read_samples(path))
    path.write_bytes(path.read_bytes()[:-3])
    assert list(read_samples(path)) == whole[:-1]
