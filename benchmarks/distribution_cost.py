"""What distribution costs: CPU of every process of a client per streamed token, local and over Locust, against a null server.

One worker here, one over Locust, and several over Locust, in turns, with the same rate for each worker. Where cores allow, N
workers issue N times what one does, divided by the ratio of the hot loops' CPU a token. The processes: the hot loop, which
sends; the agent beside it, which copies the journal; Locust's worker and master; and the coordinator, which makes the records.

Run: python -m benchmarks.distribution_cost [--rate 50] [--tokens 100] [--duration 10] [--rounds 3] [--workers 4]
"""

from __future__ import annotations

import argparse
import math
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from tabulate import tabulate

from bench_cli.worker import worker_command
from bench_records.record import Outcome
from bench_records.run_folder import RunFolder
from harness.calibration.null_server.pacing import Pace
from harness.calibration.null_server.server import NullServerOptions, null_server
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.distribution.remote_pool import Master, RemotePool
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from harness.run.coordinator import Run, RunPlan
from harness.run.live_statistics import Snapshot
from harness.run.worker_pool import WorkerPool
from workloads.arrivals.processes import Exponential
from workloads.elements.request import Request
from workloads.schedule.load import OpenLoop

_PROMPT = tuple(range(100, 132))
_PROCESSES = (
    ("spawn_main", "hot loop"),
    ("harness.distribution.locust_worker", "Locust's worker"),
    ("harness.distribution.locust_master", "Locust's master"),
    ("bench_cli worker", "agent"),
)


class _Cpu:
    """CPU seconds of this process and all below it since the first snapshot, by what they are."""

    def __init__(self) -> None:
        self._first: dict[int, float] = {}
        self._last: dict[int, tuple[str, float]] = {}
        self._start_s: float | None = None

    def __call__(self, snapshot: Snapshot) -> None:
        for process in psutil.Process().children(recursive=True):
            try:
                times, command = process.cpu_times(), " ".join(process.cmdline())
            except psutil.Error:
                continue
            name = next((name for part, name in _PROCESSES if part in command), None)
            if name is not None:
                spent_s = times.user + times.system
                self._first.setdefault(process.pid, spent_s)
                self._last[process.pid] = (name, spent_s)
        self._start_s = self._start_s or time.process_time()

    def spent_s(self) -> dict[str, float]:
        spent: dict[str, float] = defaultdict(float)
        for pid, (name, last_s) in self._last.items():
            spent[name] += last_s - self._first[pid]
        spent["coordinator"] = time.process_time() - (self._start_s or 0.0)
        return dict(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50.0, help="requests/s of each worker")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--duration", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4, help="of the runs over Locust with several")
    options = parser.parse_args()
    workers = {"local": 0, "1 over Locust": 1, f"{options.workers} over Locust": options.workers}
    totals: dict[str, Counter[str]] = {name: Counter() for name in workers}
    with null_server(NullServerOptions(Pace(20_000_000, 5_000_000))) as server:
        for _ in range(options.rounds):
            for name, total in totals.items():
                total.update(_measured(server.grpc, workers[name], options))
    rows = []
    for name, total in totals.items():
        tokens = total.pop("tokens")
        per_token_us = {process: 1e6 * spent_s / tokens for process, spent_s in total.items()}
        rows += [(name, process, f"{us:.2f}") for process, us in per_token_us.items()]
        rows.append((name, "all", f"{sum(per_token_us.values()):.2f}"))
    print(tabulate(rows, headers=("run", "process", "CPU µs a token"), disable_numparse=True))


def _measured(address: str, remote: int, options: argparse.Namespace) -> Counter[str]:
    """CPU seconds by process, and the number of tokens, with this many ``remote`` workers, or with a local one."""
    client = TritonGrpcClient(address, inspect_model(address, "tensorrt_llm"), streaming=True)
    load = OpenLoop(Exponential(options.rate * max(1, remote)), options.duration)
    request = Request(options.tokens, input_ids=_PROMPT, input_tokens=len(_PROMPT), ignore_eos=True)
    schedule = load.schedule([request] * (load.most_requests(0, None) or 0), 0)
    with tempfile.TemporaryDirectory() as name, _pool(remote, Path(name)) as pool:
        recorder = Recorder(summarise_schedule(schedule), client)
        plan = RunPlan(schedule, client, recorder, RunFolder(Path(name)), max(1, remote), schedule.requests[:10], 60.0)
        cpu = _Cpu()
        result = Run(plan, pool).execute(cpu)
    assert all(record.outcome is Outcome.DONE for record in result.records)
    sent_ns = sorted(record.sent_ns or 0 for record in result.records)
    slips_ms = sorted(((record.sent_ns or 0) - record.scheduled_ns) / 1e6 for record in result.records)
    rate = (len(sent_ns) - 1) / (sent_ns[-1] - sent_ns[0]) * 1e9
    p99_ms = slips_ms[math.ceil(0.99 * len(slips_ms)) - 1]
    print(f"{remote or 1} {'over Locust' if remote else 'local'}: {rate:,.0f} requests/s sent, slip p99 {p99_ms:.2f} ms")
    return Counter({"tokens": options.tokens * len(result.records), **cpu.spent_s()})


@contextmanager
def _pool(remote: int, folder: Path) -> Iterator[WorkerPool | None]:
    if not remote:
        yield None
        return
    pool = RemotePool(Master("127.0.0.1", 0, remote, wait_s=60.0), lambda text: None)
    port = pool.open()
    commands = [worker_command("127.0.0.1", port, folder / f"worker-{number}") for number in range(remote)]
    workers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in commands]
    try:
        yield pool
    finally:
        for worker in workers:
            worker.wait(30)


if __name__ == "__main__":
    main()
