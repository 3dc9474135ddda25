"""A trial: a run of one load against a null server, and the client's errors, slip and CPU time in it."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench_records.record import Outcome
from bench_records.run_folder import RunFolder
from harness.calibration.accuracy import Errors, FloatArray, ReadStamps, Truth, errors_of, stamped_truths
from harness.calibration.null_server.pacing import Pace
from harness.clients.protocol import Client
from harness.journal.worker_journal import JournalReader
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from harness.run.coordinator import Run, RunPlan
from harness.run.live_statistics import Snapshot
from harness.run.worker_process import NAME_PREFIX
from workloads.schedule.schedule import Schedule

_TIMEOUT_S = 20.0
_WARM_UP = 10
_OVERRUN_S = 4.0  # a client that is further behind has not held its load
_CPUCLOCK_SCHED = 2  # of Linux's clock ids for processes: on-CPU time in ns, all threads


class OverrunError(Exception):
    """The run was far behind its schedule, and was stopped."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A client to calibrate, against a null server of ``pace`` whose stamps ``read_stamps`` reads."""

    client: Client
    read_stamps: ReadStamps
    pace: Pace


@dataclass(frozen=True)
class TrialResult:
    """The measurements of a trial. ``slip_ms`` [requests sent]; ``server_late_ms`` [responses], against the server's own pace.

    ``cpu_s`` is that of all the client's processes from the start of the clock on.
    """

    errors: Errors
    slip_ms: FloatArray
    server_late_ms: FloatArray
    requests: int
    responses: int
    failed: int
    cpu_s: float
    interrupted: bool


def run_trial(subject: Subject, schedule: Schedule, workers: int) -> TrialResult:
    """Run ``schedule``. Raises RunError where the client cannot start, OverrunError where it falls far behind."""
    answer_ns = subject.pace.unstreamed(max(request.output_tokens for request in schedule.requests)).first_token_ns
    meter = _CpuMeter((schedule.offsets_ns[-1] + answer_ns) / 1e9 + _OVERRUN_S)
    with tempfile.TemporaryDirectory(prefix="inflight-bench-") as temporary:
        folder = RunFolder(Path(temporary))
        plan = RunPlan(
            schedule=schedule,
            client=subject.client,
            recorder=Recorder(summarise_schedule(schedule), subject.client),
            folder=folder,
            workers=workers,
            warm_up=(replace(schedule.requests[0], output_tokens=1),) * _WARM_UP,
            timeout_s=_TIMEOUT_S,
        )
        result = Run(plan).execute(meter)
        exchanges = [exchange for journal in folder.journals() for exchange in JournalReader(journal).read_new()]
    truths = stamped_truths(exchanges, subject.read_stamps)
    sent = [(record.scheduled_ns, record.sent_ns) for record in result.records if record.sent_ns is not None]
    return TrialResult(
        errors=errors_of(result.records, truths),
        slip_ms=np.array([at - scheduled for scheduled, at in sent]) / 1e6,
        server_late_ms=_server_late_ms(truths, subject.pace),
        requests=len(sent),
        responses=sum(len(record.token_times_ns) for record in result.records),
        failed=sum(record.outcome is not Outcome.DONE for record in result.records),
        cpu_s=meter.used_ns / 1e9,
        interrupted=result.interrupted,
    )


def _server_late_ms(truths: Mapping[int, Truth], pace: Pace) -> FloatArray:
    late = [
        truth.sent_ns - truth.received_ns - pace.first_token_ns - pace.gap_ns * np.arange(len(truth.sent_ns))
        for truth in truths.values()
    ]
    late_ms: FloatArray = np.concatenate([np.empty(0), *late]) / 1e6
    return late_ms


class _CpuMeter:
    """Progress callback that sums the CPU time of a run's processes, this one included, since the start of the clock."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}

    @property
    def used_ns(self) -> int:
        return sum(self._last[process] - self._first[process] for process in self._first)

    def __call__(self, snapshot: Snapshot) -> None:
        if snapshot.elapsed_s > self._limit_s:
            raise OverrunError("the client fell seconds behind")
        self._note(0, time.process_time_ns())
        for process in multiprocessing.active_children():
            if process.pid is not None and process.name.startswith(NAME_PREFIX):
                with suppress(OSError):  # it has ended since; its last use, of at most 0.1 s, is lost
                    self._note(process.pid, time.clock_gettime_ns((~process.pid << 3) | _CPUCLOCK_SCHED))

    def _note(self, process: int, cpu_ns: int) -> None:
        self._first.setdefault(process, cpu_ns)
        self._last[process] = cpu_ns
