"""Whole runs in every load mode, with real worker processes: what was due when, and how many were in flight."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from bench_records.record import Outcome, Record
from harness.recording.recorder import Recorder
from harness.recording.run_result import RunResult
from harness.recording.schedule_summary import summarise_schedule
from harness.run.coordinator import Run, RunPlan
from harness.run.live_statistics import Snapshot
from tests.free_port import free_port
from tests.harness.journal.following import once, quiet
from tests.harness.run.execute_script import make_plan
from tests.harness.scripted_server import Act, ScriptedServer, scripted, scripted_server
from workloads.elements.request import Request
from workloads.schedule.schedule import AnySchedule, ClosedSchedule, Schedule

BOTH = pytest.mark.parametrize("workers", [1, 2])
SEVERAL = pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
_MS = 1_000_000


def _plan(server: ScriptedServer, folder: Path, schedule: AnySchedule, workers: int) -> RunPlan:
    plan = make_plan(server.address, folder, [], [], workers)
    return replace(plan, schedule=schedule, recorder=Recorder(summarise_schedule(schedule), plan.client))


def _closed(requests: Sequence[Request], users: int, ramp_up_ms: int = 0, duration_ms: int | None = None) -> ClosedSchedule:
    starts_ns = tuple(user * ramp_up_ms * _MS // users for user in range(users))
    return ClosedSchedule(tuple(requests), starts_ns, 0, None if duration_ms is None else duration_ms * _MS)


def _outcomes(result: RunResult) -> Counter[Outcome]:
    return Counter(record.outcome for record in result.records)


def _sent(record: Record) -> int:
    assert record.sent_ns is not None
    return record.sent_ns


def _ended(record: Record) -> int:
    assert record.done_ns is not None
    return record.done_ns


def _most_in_flight(records: Sequence[Record]) -> int:
    """An end at the very moment of a send comes first."""
    changes = sorted([(_ended(record), -1) for record in records] + [(_sent(record), 1) for record in records])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def _of_worker(result: RunResult, worker: int) -> list[Record]:
    return [record for record in result.records if record.worker == worker]


# ---- closed loops


@BOTH
def test_users_send_their_next_request_when_the_last_has_ended(tmp_path: Path, server: ScriptedServer, workers: int) -> None:
    schedule = _closed([scripted(Act.ANSWER, 2, 5 + k % 7) for k in range(60)], users=6)
    result = Run(_plan(server, tmp_path, schedule, workers)).execute(quiet)
    assert _outcomes(result) == {Outcome.DONE: 60}
    assert sorted(record.index for record in result.records) == list(range(60))
    assert [record.scheduled_ns for record in result.records] == sorted(record.scheduled_ns for record in result.records)
    for worker in range(workers):
        mine = _of_worker(result, worker)
        users = 6 // workers
        assert _most_in_flight(mine) == users
        free_ns = Counter([0] * users + [_ended(record) for record in mine])
        assert Counter(record.scheduled_ns for record in mine) <= free_ns  # each was due when a user was free, none twice
        assert all(record.released_ns == record.scheduled_ns <= _sent(record) for record in mine)
    assert (result.interrupted, result.ran_out) == (False, False)


@SEVERAL
def test_the_clock_ends_a_closed_loop_and_what_was_never_due_is_no_failure(
    tmp_path: Path, server: ScriptedServer, workers: int
) -> None:
    schedule = _closed([scripted(Act.ANSWER, 2, 20)] * 5_000, users=4, duration_ms=800)
    snapshots: list[Snapshot] = []
    result = Run(_plan(server, tmp_path, schedule, workers)).execute(snapshots.append)
    assert set(_outcomes(result)) == {Outcome.DONE}
    assert 4 <= len(result.records) < 300
    assert max(record.scheduled_ns for record in result.records) < 800 * _MS
    late = [record for record in result.records if _ended(record) >= 800 * _MS]
    assert len(late) == 4  # what was in flight came to its end
    assert (result.interrupted, result.ran_out) == (False, False)
    assert snapshots[-1].scheduled is None


def test_users_without_a_request_left_are_reported(tmp_path: Path, server: ScriptedServer) -> None:
    schedule = _closed([scripted(Act.ANSWER)] * 10, users=3, duration_ms=20_000)
    result = Run(_plan(server, tmp_path, schedule, 1)).execute(quiet)
    assert _outcomes(result) == {Outcome.DONE: 10}
    assert result.ran_out
    assert result.duration_s < 15


def test_users_come_one_after_the_other(tmp_path: Path, server: ScriptedServer) -> None:
    schedule = _closed([scripted(Act.ANSWER, 2, 30)] * 100, users=4, ramp_up_ms=600)
    result = Run(_plan(server, tmp_path, schedule, 2)).execute(quiet)
    due = {record.scheduled_ns for record in result.records}
    assert {0, 150 * _MS, 300 * _MS, 450 * _MS} <= due
    for user in range(4):
        before = [record for record in result.records if _sent(record) < user * 150 * _MS]
        assert not before or _most_in_flight(before) <= user


def test_more_users_than_requests(tmp_path: Path, server: ScriptedServer) -> None:
    result = Run(_plan(server, tmp_path, _closed([scripted(Act.ANSWER)] * 2, users=5), 3)).execute(quiet)
    assert _outcomes(result) == {Outcome.DONE: 2}


def test_failures_do_not_stop_a_closed_loop(tmp_path: Path, server: ScriptedServer) -> None:
    acts = [Act.ANSWER, Act.ERROR, Act.FULL, Act.STATUS] * 5
    result = Run(_plan(server, tmp_path, _closed([scripted(act) for act in acts], users=3), 1)).execute(quiet)
    assert _outcomes(result) == {Outcome.DONE: 5, Outcome.SERVER_ERROR: 10, Outcome.REFUSED: 5}


def test_users_of_a_dead_server_try_again_in_a_while_and_can_be_stopped(tmp_path: Path) -> None:
    with scripted_server(tmp_path / "received", port=free_port()) as server:
        schedule = _closed([scripted(Act.ANSWER, 2, 5)] * 20_000, users=4, duration_ms=60_000)
        plan = _plan(server, tmp_path, schedule, 1)
        stop = once(lambda snapshot: snapshot.failed >= 5, lambda: os.kill(os.getpid(), signal.SIGINT))
        kill = once(lambda snapshot: snapshot.done >= 5, server.kill)

        def on_progress(snapshot: Snapshot) -> None:
            kill(snapshot)
            stop(snapshot)

        result = Run(plan).execute(on_progress)
    assert result.interrupted
    assert set(_outcomes(result)) <= {Outcome.DONE, Outcome.STREAM_CUT, Outcome.CONNECT}
    refused = [record for record in result.records if record.outcome is Outcome.CONNECT]
    assert refused
    again = {_ended(record) + 100 * _MS for record in refused}
    assert len(again & {record.scheduled_ns for record in refused}) >= len(refused) - 4  # except each user's first
    assert all(record.scheduled_ns <= _sent(record) for record in result.records)
    assert len(refused) < 4 * (result.duration_s / 0.1 + 1)


@SEVERAL
def test_first_signal_lets_users_end_what_they_began(tmp_path: Path, server: ScriptedServer, workers: int) -> None:
    schedule = _closed([scripted(Act.ANSWER, 3, 20)] * 5_000, users=6, duration_ms=60_000)
    interrupt = once(lambda snapshot: snapshot.done >= 20, lambda: os.kill(os.getpid(), signal.SIGINT))
    result = Run(_plan(server, tmp_path, schedule, workers)).execute(interrupt)
    assert set(_outcomes(result)) == {Outcome.DONE}
    assert len(result.records) >= 20
    assert (result.interrupted, result.ran_out) == (True, False)


def test_second_signal_breaks_users_off(tmp_path: Path, server: ScriptedServer) -> None:
    schedule = _closed([scripted(Act.HANG)] * 100, users=5)
    interrupt = once(lambda snapshot: snapshot.sent >= 5, lambda: os.kill(os.getpid(), signal.SIGINT))
    again = once(lambda snapshot: snapshot.stopping, lambda: os.kill(os.getpid(), signal.SIGINT))

    def on_progress(snapshot: Snapshot) -> None:
        again(snapshot)
        interrupt(snapshot)

    result = Run(_plan(server, tmp_path, schedule, 1)).execute(on_progress)
    assert _outcomes(result) == {Outcome.CANCELLED: 5}


@SEVERAL
def test_killed_worker_loses_what_its_users_had_in_flight_and_no_more(
    tmp_path: Path, server: ScriptedServer, workers: int
) -> None:
    def kill() -> None:
        (worker,) = [p for p in multiprocessing.active_children() if p.name == f"bench-worker-{workers - 1}"]
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)

    schedule = _closed([scripted(Act.ANSWER, 4, 20)] * 200, users=6)
    result = Run(_plan(server, tmp_path, schedule, workers)).execute(once(lambda snapshot: snapshot.done >= 30, kill))
    lost = [record for record in result.records if record.outcome is Outcome.LOST]
    assert 1 <= len(lost) <= 6 // workers
    assert {record.outcome for record in result.records} == {Outcome.DONE, Outcome.LOST}
    dead = _of_worker(result, workers - 1)
    assert {record.scheduled_ns for record in lost} <= {_ended(record) for record in dead} | {0}
    if workers == 2:
        assert len(_of_worker(result, 0)) == 100
    assert (result.interrupted, result.ran_out) == (False, False)


# ---- a ceiling


def _below_ceiling(requests: Sequence[Request], offsets_ms: Sequence[float], ceiling: int) -> Schedule:
    return Schedule(tuple(requests), tuple(round(ms * _MS) for ms in offsets_ms), 0, ceiling)


@BOTH
def test_arrivals_beyond_the_ceiling_wait_their_turn_and_keep_their_time(
    tmp_path: Path, server: ScriptedServer, workers: int
) -> None:
    offsets_ms = [k * 5.0 for k in range(80)]  # 200 a second, of which a ceiling of 4 takes about 80 of 50 ms
    schedule = _below_ceiling([scripted(Act.ANSWER, 1, 50)] * 80, offsets_ms, 4)
    result = Run(_plan(server, tmp_path, schedule, workers)).execute(quiet)
    assert _outcomes(result) == {Outcome.DONE: 80}
    assert [record.scheduled_ns for record in result.records] == list(schedule.offsets_ns)
    for worker in range(workers):
        mine = _of_worker(result, worker)
        assert _most_in_flight(mine) == 4 // workers
        assert [_sent(record) for record in mine] == sorted(_sent(record) for record in mine)  # first come, first served
        ends_ns = {_ended(record) for record in mine}
        for record in mine:
            assert record.released_ns is not None
            assert record.scheduled_ns <= record.released_ns <= _sent(record)
            assert record.released_ns == record.scheduled_ns or record.released_ns in ends_ns
    waits_ns = [_sent(record) - record.scheduled_ns for record in result.records]
    assert waits_ns[-1] > 400 * _MS  # it came at 395 ms, when four of 50 ms at a time had left 40 before it


def test_a_ceiling_that_is_never_reached_changes_nothing(tmp_path: Path, server: ScriptedServer) -> None:
    schedule = _below_ceiling([scripted(Act.ANSWER)] * 30, [k * 5.0 for k in range(30)], 1_000)
    result = Run(_plan(server, tmp_path, schedule, 1)).execute(quiet)
    assert all(record.released_ns == record.scheduled_ns for record in result.records)


def test_failures_leave_their_room_to_others(tmp_path: Path, server: ScriptedServer) -> None:
    acts = [Act.FULL, Act.ERROR, Act.STATUS, Act.ANSWER] * 6
    schedule = _below_ceiling([scripted(act) for act in acts], [0] * 24, 1)
    assert len(Run(_plan(server, tmp_path, schedule, 1)).execute(quiet).records) == 24


@SEVERAL
def test_first_signal_reaches_requests_that_wait_at_the_ceiling(tmp_path: Path, server: ScriptedServer, workers: int) -> None:
    schedule = _below_ceiling([scripted(Act.ANSWER, 1, 2_000)] * 50, [0] * 50, 2)
    interrupt = once(lambda snapshot: snapshot.sent >= 2, lambda: os.kill(os.getpid(), signal.SIGINT))
    result = Run(_plan(server, tmp_path, schedule, workers)).execute(interrupt)
    assert result.interrupted
    assert _outcomes(result) == {Outcome.DONE: 2, Outcome.NOT_SENT: 48}
    assert result.records[-1].error == "the run was stopped before its time"


# ---- cores


def test_workers_have_their_cores_to_themselves_while_they_run(tmp_path: Path, server: ScriptedServer) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("there is one core")
    seen: set[tuple[str, tuple[int, ...]]] = set()

    def look(snapshot: Snapshot) -> None:
        seen.add(("parent", tuple(sorted(os.sched_getaffinity(0)))))
        workers = (child for child in multiprocessing.active_children() if child.name.startswith("bench-worker-"))
        for process in workers:  # a process of another kind may be left of an earlier test
            with suppress(psutil.Error):
                seen.add((process.name, tuple(psutil.Process(process.pid).cpu_affinity())))

    schedule = _closed([scripted(Act.ANSWER, 2, 10)] * 40, users=2)
    Run(replace(_plan(server, tmp_path, schedule, 1), worker_cores=(cores[-1],))).execute(look)
    assert seen == {("parent", tuple(cores[:-1])), ("bench-worker-0", (cores[-1],))}
    assert sorted(os.sched_getaffinity(0)) == cores
