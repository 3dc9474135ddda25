"""One open loop against a null server, and what it cost: what the benchmarks of the send path share."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from harness.calibration.null_server.server import NullServerAddresses
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from harness.records.record import Outcome
from harness.records.run_folder import RunFolder
from harness.records.table import write_table
from harness.run.coordinator import Run, RunPlan
from harness.run.live_statistics import Snapshot
from reports.metrics.requests import Requests, from_columns
from workloads.arrivals import Arrivals
from workloads.load import OpenLoop
from workloads.request import Request
from workloads.schedule import Schedule

PROMPT_TOKENS = 32
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Measured:
    """A run's schedule and records, and the CPU time that processes spent on it, in s; ``length_s`` is how long it sent.

    ``stolen`` is the share of this machine's CPU time that its host gave to others meanwhile.
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
    """Reads what the workers have spent whenever the run reports progress: what they spent before it began does not count."""

    first_s: dict[int, float] = field(default_factory=dict)
    last_s: dict[int, float] = field(default_factory=dict)

    def __call__(self, snapshot: Snapshot) -> None:
        for process in multiprocessing.active_children():
            if process.pid is not None and process.name.startswith("bench-worker-"):
                try:
                    spent = _cpu_s(process.pid)
                except psutil.Error:
                    continue
                self.first_s.setdefault(process.pid, spent)
                self.last_s[process.pid] = spent

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
    """How much of this machine's CPU time within the block its host gave to others, from 0 to 1 (proc(5): steal)."""
    before, after = psutil.cpu_times(), psutil.cpu_times()
    yield lambda: (after.steal - before.steal) / max(1e-9, sum(after[:8]) - sum(before[:8]))
    after = psutil.cpu_times()


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
