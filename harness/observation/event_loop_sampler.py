"""The sampler in a worker: the lag of its event loop's wake-ups, and the causes of lag.

A request that is due while the loop cannot run is sent when the loop runs again, and a response without the kernel's time
stamp gets its arrival time only then. So the lag of a wake-up, at times that are independent of the load, is the delay of
both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType

from bench_records.client_sample import ClientSample
from harness.host.clock import PreciseSleeper, now_ns
from harness.observation.meters import GarbageCollectionMeter, ThreadMeter
from harness.observation.sample_file import SampleWriter

PERIOD_NS = 25_000_000
_USAGE_ONE_IN = 4  # wake-ups that read the meters and write: both cost more than the wake-up itself
_GOLDEN_RATIO = 0.6180339887498949


def wake_ups(start_ns: int, period_ns: int = PERIOD_NS) -> Iterator[int]:
    """Times from ``start_ns`` on, with gaps between 0.5 and 1.5 ``period_ns`` that are ``period_ns`` on average.

    Even gaps could synchronise with even arrivals, and sample the loop always before, or always after, its work. The fractional
    parts of multiples of the golden ratio are evenly distributed (Weyl), and need no generator.
    """
    time_ns, phase = start_ns, 0.0
    while True:
        phase = (phase + _GOLDEN_RATIO) % 1.0
        time_ns += round(period_ns * (0.5 + phase))
        yield time_ns


class LoopSampler:
    """A context that samples the running loop into ``path``; times count from ``start_ns`` (of ``now_ns``)."""

    def __init__(self, path: Path, worker: int, start_ns: int) -> None:
        self._path = path
        self._worker = worker
        self._start_ns = start_ns

    async def __aenter__(self) -> LoopSampler:
        self._writer = SampleWriter(self._path)
        self._thread = ThreadMeter()
        self._collections = GarbageCollectionMeter()
        self._used = self._thread.read()
        self._cpu_ns = time.process_time_ns()
        self._writer.append(self._full_sample(now_ns(), None))
        self._unwritten: list[ClientSample] = []
        self._sleeper = PreciseSleeper()
        self._task = asyncio.create_task(self._sample_periodically())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._writer.append(*self._unwritten, self._full_sample(now_ns(), None))
        self._sleeper.close()
        self._collections.close()
        self._thread.close()
        self._writer.close()

    async def _sample_periodically(self) -> None:
        times_ns = wake_ups(now_ns())
        due_ns = next(times_ns)
        for number in count():
            await self._sleeper.until(due_ns)
            woke_ns = now_ns()
            sample = self._lag_sample if number % _USAGE_ONE_IN else self._full_sample
            self._unwritten.append(sample(woke_ns, woke_ns - due_ns))
            # Each wake-up that a stall swallowed gets a sample: else a stall of a second would weigh as little as one of 25 ms.
            while (due_ns := next(times_ns)) <= woke_ns:
                self._unwritten.append(self._lag_sample(woke_ns, woke_ns - due_ns))
            if not number % _USAGE_ONE_IN:
                self._writer.append(*self._unwritten)
                self._unwritten.clear()

    def _lag_sample(self, time_ns: int, lag_ns: int) -> ClientSample:
        return ClientSample(time_ns=time_ns - self._start_ns, worker=self._worker, lag_ns=lag_ns)

    def _full_sample(self, time_ns: int, lag_ns: int | None) -> ClientSample:
        before, used, pauses = self._used, self._thread.read(), self._collections.take()
        cpu_before_ns, cpu_ns = self._cpu_ns, time.process_time_ns()
        self._used, self._cpu_ns = used, cpu_ns
        waited_ns = None
        if used.run_queue_wait_ns is not None and before.run_queue_wait_ns is not None:
            waited_ns = used.run_queue_wait_ns - before.run_queue_wait_ns
        return ClientSample(
            time_ns=time_ns - self._start_ns,
            worker=self._worker,
            lag_ns=lag_ns,
            cpu_ns=cpu_ns - cpu_before_ns,
            run_queue_wait_ns=waited_ns,
            gc_pause_ns=pauses.total_ns,
            gc_longest_ns=pauses.longest_ns,
            gc_count=pauses.count,
            voluntary_switches=used.voluntary_switches - before.voluntary_switches,
            involuntary_switches=used.involuntary_switches - before.involuntary_switches,
        )
