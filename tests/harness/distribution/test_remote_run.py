"""Whole runs over Locust's master and workers: real processes on this host against a real gRPC server that follows a script."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import msgspec
import psutil
import pytest
from msgspec import to_builtins

from bench_cli.worker import worker_command
from bench_records.record import Outcome, Record
from harness.distribution.remote_pool import Master, RemotePool
from harness.errors import RunError
from harness.recording.recorder import Recorder
from harness.recording.run_result import RunResult
from harness.recording.schedule_summary import summarise_schedule
from harness.run.coordinator import Run, RunPlan
from harness.run.end_rule import RunMoment
from harness.run.live_statistics import Snapshot
from tests.harness.journal.following import quiet
from tests.harness.run.execute_script import make_plan
from tests.harness.scripted_server import Act, ScriptedServer, scripted, scripted_server
from tests.processes import kill_tree, words_of
from workloads.schedule.schedule import ClosedSchedule

# Not imported: it would replace the sockets and threads of this process.
pytestmark = pytest.mark.skipif(find_spec("locust") is None, reason="needs locust")


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
        statuses = [process.wait(120) if process.poll() is None else process.returncode for process in processes]
    return result, pool, statuses


def test_two_workers_send_every_request_once_and_the_master_has_all_records(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 3, 5)] * 60, [k * 10.0 for k in range(60)], 2)
    result, pool, statuses = _run(plan, tmp_path)
    assert [record.index for record in result.records] == list(range(60))
    assert Counter(record.outcome for record in result.records) == {Outcome.DONE: 60}
    assert [record.worker for record in result.records] == [index % 2 for index in range(60)]
    assert [record.scheduled_ns for record in result.records] == [10_000_000 * k for k in range(60)]
    assert statuses == [0, 0]
    assert not list(tmp_path.glob("worker-*"))  # the master has everything
    facts = to_builtins(pool.distribution())
    assert [worker["lost"] for worker in facts["workers"]] == [None, None]
    for worker in facts["workers"]:
        start = worker["clock"]["start"]
        assert abs(start["offset_ns"]) <= start["uncertainty_ns"] < 100_000_000  # one host, one clock
        assert worker["clock"]["jump_ns"] is None


class _AtOnce:
    """Ends a run at its first record."""

    def __init__(self) -> None:
        self._records = 0

    def add(self, record: Record) -> None:
        self._records += 1

    def reason(self, moment: RunMoment) -> str | None:
        return "one came" if self._records and moment.answered is None else None


def test_a_rule_ends_a_run_on_every_worker_at_one_time(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 3, 5)] * 400, [k * 50.0 for k in range(400)], 2)
    result, _, statuses = _run(replace(plan, end_rule=_AtOnce()), tmp_path)
    assert result.rule_end is not None
    assert [record.index for record in result.records] == [k for k in range(400) if k * 50_000_000 < result.rule_end.end_ns]
    assert {record.outcome for record in result.records} == {Outcome.DONE}
    assert 30 < len(result.records) < 300
    assert (result.interrupted, statuses) == (False, [0, 0])


def _half_way(
    act: Callable[[list[subprocess.Popen[bytes]]], None], share: float = 0.5
) -> Callable[[Snapshot, list[subprocess.Popen[bytes]]], None]:
    """Call ``act`` once, when that share of the requests has been sent."""
    acted: list[bool] = []

    def during(snapshot: Snapshot, processes: list[subprocess.Popen[bytes]]) -> None:
        if not acted and snapshot.scheduled is not None and snapshot.sent >= share * snapshot.scheduled:
            acted.append(True)
            act(processes)

    return during


def test_a_killed_workers_unfinished_requests_are_marked_and_the_others_are_sent(
    tmp_path: Path, server: ScriptedServer
) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 3, 5)] * 100, [k * 40.0 for k in range(100)], 2)
    result, pool, statuses = _run(plan, tmp_path, _half_way(lambda processes: processes[1].kill(), 0.45))
    (killed,) = [worker["number"] for worker in to_builtins(pool.distribution())["workers"] if worker["lost"]]
    lost = [record for record in result.records if record.outcome is Outcome.LOST]
    assert {record.index % 2 for record in lost} == {killed}
    assert [record.outcome for record in result.records if record.index % 2 != killed] == [Outcome.DONE] * 50
    of_killed = [record for record in result.records if record.index % 2 == killed]
    recorded = [record.index for record in of_killed if record.outcome is Outcome.DONE]
    assert recorded == [record.index for record in of_killed][: len(recorded)]  # the first ones, up to the kill
    assert 10 <= len(recorded) < 50
    assert "was lost" in (lost[0].error or "")
    reason = to_builtins(pool.distribution())["workers"][killed]["lost"]
    assert "passed on" in reason or "nothing was heard of it" in reason  # by whether its processes could say that they end
    assert (statuses[0], statuses[1]) == (0, -signal.SIGKILL)


def test_a_killed_hot_loop_is_known_at_once_with_all_that_it_recorded(tmp_path: Path, server: ScriptedServer) -> None:
    offsets_ms = [k * 20.0 + (120_000 if k >= 30 else 0) for k in range(60)]  # the second half is not due before the kill
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 3, 5)] * 60, offsets_ms, 1)

    def kill_hot_loop(processes: list[subprocess.Popen[bytes]]) -> None:
        for child in psutil.Process(processes[0].pid).children():
            if "spawn_main" in " ".join(words_of(child)):
                child.kill()

    result, pool, _ = _run(plan, tmp_path, _half_way(kill_hot_loop))
    assert Counter(record.outcome for record in result.records).keys() == {Outcome.DONE, Outcome.LOST}
    assert "ended with status -9" in to_builtins(pool.distribution())["workers"][0]["lost"]
    assert "status -9" in str(next(r.error for r in result.records if r.outcome is Outcome.LOST))


@pytest.mark.slow
def test_a_host_that_dies_is_lost_after_its_silence(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 3, 5)] * 60, [k * 20.0 for k in range(60)], 2)
    result, pool, _ = _run(plan, tmp_path, _half_way(lambda processes: kill_tree(processes[0])))
    ((number, reason),) = [
        (worker["number"], worker["lost"]) for worker in to_builtins(pool.distribution())["workers"] if worker["lost"]
    ]
    assert "nothing was heard" in reason
    assert [record.outcome for record in result.records if record.index % 2 != number] == [Outcome.DONE] * 30


def test_a_worker_beyond_the_expected_ones_is_turned_away(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 3, 5)] * 40, [k * 100.0 for k in range(40)], 1)
    pool = RemotePool(Master("127.0.0.1", 0, 1, wait_s=60.0), lambda text: None)
    port = pool.open()
    late: list[subprocess.CompletedProcess[bytes]] = []

    def join_late(snapshot: Snapshot) -> None:
        if not late:  # the run waits, however slow this host is: the workers send meanwhile
            command = worker_command("127.0.0.1", port, tmp_path / "late")
            late.append(subprocess.run(command, stderr=subprocess.PIPE, timeout=200, check=False))

    with workers(port, tmp_path, 1):
        result = Run(plan, pool).execute(join_late)
    assert Counter(record.outcome for record in result.records) == {Outcome.DONE: 40}
    assert late[0].returncode == 1
    assert b"takes no part: the run has its 1 worker" in late[0].stderr
    assert [away["reason"] for away in to_builtins(pool.distribution())["turned_away"]] == ["the run has its 1 worker"]


def test_workers_that_do_not_come_are_named_in_the_error(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)], [0.0], 2)
    pool = RemotePool(Master("127.0.0.1", 0, 2, wait_s=0.3), lambda text: None)
    port = pool.open()
    with pytest.raises(RunError, match=f"--expect_workers 2: 0 came within 0.3 s.*--master_port {port}"):
        Run(plan, pool).execute(quiet)


def test_a_port_in_use_is_an_error_that_names_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        pool = RemotePool(Master("127.0.0.1", port, 1, wait_s=1.0), lambda text: None)
        with pytest.raises(RunError, match=f"--master_bind_port {port}"):
            pool.open()
        pool.close()


def test_a_target_that_a_worker_cannot_reach_is_named_with_its_host(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)], [0.0], 1)
    client = msgspec.structs.replace(plan.client, address="127.0.0.1:9")  # type: ignore[type-var]
    pool = RemotePool(Master("127.0.0.1", 0, 1, wait_s=60.0), lambda text: None)
    with workers(pool.open(), tmp_path, 1), pytest.raises(RunError, match=r"worker 0 on .* cannot begin: .*Connection refused"):
        Run(replace(plan, client=client), pool).execute(quiet)


@pytest.mark.parametrize("with_master", [False, True])
def test_a_worker_that_is_stopped_on_its_host_is_named_unless_the_run_is_stopped_with_it(
    tmp_path: Path, server: ScriptedServer, with_master: bool
) -> None:
    """The closed loop would have no trace of it: its users' requests just end."""
    plan = make_plan(server.address, tmp_path, [], [], 2)
    schedule = ClosedSchedule((scripted(Act.ANSWER, 3, 5),) * 20_000, (0,) * 4, 0, end_ns=5_000_000_000)
    plan = replace(plan, schedule=schedule, recorder=Recorder(summarise_schedule(schedule), plan.client))
    acted: list[bool] = []

    def stop(snapshot: Snapshot, processes: list[subprocess.Popen[bytes]]) -> None:
        if not acted and snapshot.done >= 40:
            acted.append(True)
            if with_master:
                os.kill(os.getpid(), signal.SIGINT)
            processes[1].terminate()

    result, pool, statuses = _run(plan, tmp_path, stop)
    assert {record.outcome for record in result.records} == {Outcome.DONE}
    stopped = [worker.stopped for worker in pool.distribution().workers]
    assert (result.interrupted, any(stopped)) == (with_master, not with_master)
    if not with_master:
        assert sorted(map(str, stopped)) == ["None", "it was stopped on its host"]
        last_s = [max(r.done_ns or 0 for r in result.records if r.worker == worker) / 1e9 for worker in range(2)]
        assert min(last_s) < 4 < max(last_s)
    assert statuses == [0, 0]


def test_a_worker_that_has_sent_all_is_not_stopped_before_the_end(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 100, 40)] * 2, [0.0, 0.0], 2)
    result, pool, statuses = _run(plan, tmp_path, _half_way(lambda processes: processes[1].terminate(), 1.0))
    assert Counter(record.outcome for record in result.records) == {Outcome.DONE: 2}
    assert [worker.stopped for worker in pool.distribution().workers] == [None, None]
    assert statuses == [0, 0]


def test_a_stopped_run_drains_on_every_worker(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 3, 5)] * 100, [k * 50.0 for k in range(100)], 2)
    result, _, statuses = _run(plan, tmp_path, _half_way(lambda _: os.kill(os.getpid(), signal.SIGINT), 0.1))
    outcomes = Counter(record.outcome for record in result.records)
    assert outcomes.keys() == {Outcome.DONE, Outcome.NOT_SENT}
    assert result.interrupted
    assert statuses == [0, 0]
