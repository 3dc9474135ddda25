"""Whole runs over Locust's master and workers: real processes on this host against a real gRPC server that follows a script."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.cli.worker import worker_command
from harness.distribution.remote_pool import Master, RemotePool
from harness.recording.run_result import RunResult
from harness.records.record import Outcome
from harness.run.coordinator import Run, RunPlan
from harness.run.live_statistics import Snapshot
from tests.harness.run.execute_script import make_plan
from tests.harness.scripted_server import Act, ScriptedServer, scripted, scripted_server

pytest.importorskip("locust")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedServer]:
    with scripted_server(tmp_path_factory.mktemp("scripted") / "received") as running:
        yield running


@contextmanager
def workers(port: int, folder: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [
        subprocess.Popen(worker_command("127.0.0.1", port, folder / f"worker-{k}"), stderr=subprocess.PIPE)
        for k in range(count)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def _run(
    plan: RunPlan,
    folder: Path,
    during: Callable[[Snapshot, list[subprocess.Popen[bytes]]], None] = lambda *_: None,
) -> tuple[RunResult, RemotePool, list[int]]:
    """The result, the pool, and the exit statuses of the workers."""
    notes: list[str] = []
    pool = RemotePool(Master("127.0.0.1", 0, plan.workers, wait_s=60.0), notes.append)
    with workers(pool.open(), folder, plan.workers) as processes:
        result = Run(plan, pool).execute(lambda snapshot: during(snapshot, processes))
        statuses = [process.wait(20) if process.poll() is None else process.returncode for process in processes]
    return result, pool, statuses


def test_two_workers_send_every_request_once_and_the_master_has_all_records(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 3, 5)] * 60, [k * 10.0 for k in range(60)], 2)
    result, pool, statuses = _run(plan, tmp_path)
    assert [record.index for record in result.records] == list(range(60))
    assert Counter(record.outcome for record in result.records) == {Outcome.DONE: 60}
    assert [record.worker for record in result.records] == [index % 2 for index in range(60)]
    assert [record.scheduled_ns for record in result.records] == list(plan.schedule.offsets_ns)
    assert statuses == [0, 0]
    assert not list(tmp_path.glob("worker-*"))  # the master has everything
    facts = pool.facts()
    assert [worker["lost"] for worker in facts["workers"]] == [None, None]
    for worker in facts["workers"]:
        start = worker["clock"]["start"]
        assert abs(start["offset_ns"]) <= start["uncertainty_ns"] < 5_000_000  # one host, one clock
        assert worker["clock"]["jump_ns"] is None
