"""Common parts of the benchmarks: an open loop against a null server with its CPU cost, CPU placement, and CPU steal."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from bench_records.record import Outcome
from bench_records.run_folder import RunFolder
from bench_records.table import write_table
from harness.calibration.null_server.server import NullServerAddresses
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from harness.run.coordinator import Run, RunPlan
from harness.run.live_statistics import Snapshot
from reports.metrics.requests import Requests, from_columns
from workloads.arrivals.processes import Arrivals
from workloads.elements.request import Request
from workloads.schedule.load import OpenLoop
from workloads.schedule.schedule import Schedule

PROMPT_TOKENS = 32
APART, SHARED = "apart", "shared"  # CPU placement of a null server and its client
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Measured:
    """A run's schedule and records, the CPU time of its processes in s, and the duration of sending (``length_s``).

    ``stolen`` is the steal share of this machine's CPU time during the run.
    """

    schedule: Schedule
    requests: Requests
    failed: int
    workers_cpu_s: float
    parent_cpu_s: float
    server_cpu_s: float
    length_s: float
    stolen: float


@dataclass
class _WorkersCpu:
    """CPU time of the workers, sampled with the run's progress reports; time before the first report does not count."""

    first_s: dict[int, float] = field(default_factory=dict)
    last_s: dict[int, float] = field(default_factory=dict)

    def __call__(self, snapshot: Snapshot) -> None:
        for process in multiprocessing.active_children():
            if process.pid is not None and process.name.startswith("bench-worker-"):
                try:
                    cpu_s = _cpu_s(process.pid)
                except psutil.Error:
                    continue
                self.first_s.setdefault(process.pid, cpu_s)
                self.last_s[process.pid] = cpu_s

    @property
    def spent_s(self) -> float:
        return sum(self.last_s[pid] - first for pid, first in self.first_s.items())


def measure_open_loop(
    server: NullServerAddresses, arrivals: Arrivals, duration_s: float, tokens: int, workers: int, seed: int = 0
) -> Measured:
    """Send requests of 32 tokens in and ``tokens`` out, streamed, for ``duration_s``."""
    load = OpenLoop(arrivals, duration_s)
    count = load.most_requests(seed, None)
    assert count is not None
    prompt = tuple(range(100, 100 + PROMPT_TOKENS))
    schedule = load.schedule([Request(tokens, input_ids=prompt, input_tokens=len(prompt), ignore_eos=True)] * count, seed)
    client = TritonGrpcClient(server.grpc, inspect_model(server.grpc, "tensorrt_llm"), streaming=True)
    warm_up = schedule.requests[:10] * workers
    cpu = _WorkersCpu()
    with tempfile.TemporaryDirectory() as folder:
        run_folder = RunFolder(Path(folder))
        plan = RunPlan(
            schedule, client, Recorder(summarise_schedule(schedule), client), run_folder, workers, warm_up, _TIMEOUT_S
        )
        server_s, parent_s = _cpu_s(server.pid), time.process_time()
        with stolen_share() as stolen:
            result = Run(plan).execute(cpu)
        server_s, parent_s = _cpu_s(server.pid) - server_s, time.process_time() - parent_s
        write_table(result.records, run_folder.requests)
        requests = from_columns(run_folder.read_requests)
    failed = sum(record.outcome is not Outcome.DONE for record in result.records)
    length_s = float(np.nanmax(requests.sent_ns) - np.nanmin(requests.sent_ns)) / 1e9
    return Measured(schedule, requests, failed, cpu.spent_s, parent_s, server_s, length_s, stolen())


@contextmanager
def stolen_share() -> Iterator[Callable[[], float]]:
    """Steal share of this machine's CPU time within the block, from 0 to 1 (proc(5))."""
    before, after = psutil.cpu_times(), psutil.cpu_times()
    yield lambda: (after.steal - before.steal) / max(1e-9, sum(after[:8]) - sum(before[:8]))
    after = psutil.cpu_times()


@contextmanager
def cpu_placement(server_pid: int, cores: str) -> Iterator[None]:
    """CPU affinity within the block: with APART the server has the first core, and new processes have the others.

    With SHARED the kernel schedules all on all cores. It then often places a server on the core of the worker that wakes it,
    although another core is idle, so that each waits for the other; more often in virtual machines, where an idle core can
    appear busy.
    """
    all_cores = os.sched_getaffinity(0)
    server_core, *other_cores = sorted(all_cores)
    if cores == APART:
        if not other_cores:
            raise SystemExit("--cores apart needs two cores, but this process may use only one; use --cores shared")
        os.sched_setaffinity(server_pid, {server_core})
        os.sched_setaffinity(0, other_cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
