"""Runs that a rule ends: what was due before the end is sent and recorded, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bench_records.record import Outcome, Record
from harness.recording.recorder import Recorder
from harness.recording.recovery import recover
from harness.recording.run_result import RunResult
from harness.recording.schedule_file import RecordingBasis
from harness.recording.schedule_summary import summarise_schedule
from harness.run.coordinator import Run, RunPlan
from harness.run.end_rule import RunMoment
from harness.run.live_statistics import Snapshot
from harness.run.worker_process import WorkerProcess
from tests.harness.journal.following import quiet
from tests.harness.run.execute_script import make_plan
from tests.harness.scripted_server import Act, ScriptedServer, scripted
from workloads.elements.request import Request
from workloads.schedule.schedule import AnySchedule, ClosedSchedule, Schedule, SessionSchedule

_MS = 1_000_000
_GAP_MS = 5


@dataclass
class _AfterRecords:
    """Ends a run after this many records."""

    records: int
    moments: list[RunMoment] = field(default_factory=list)
    _seen: int = 0

    def add(self, record: Record) -> None:
        self._seen += 1

    def reason(self, moment: RunMoment) -> str | None:
        self.moments.append(moment)
        return f"{self._seen} came" if self._seen >= self.records else None


def _plan(server: ScriptedServer, folder: Path, schedule: AnySchedule, rule: _AfterRecords) -> RunPlan:
    plan = make_plan(server.address, folder, [], [], 2)
    return replace(plan, schedule=schedule, recorder=Recorder(summarise_schedule(schedule), plan.client), end_rule=rule)


def _requests(count: int) -> tuple[Request, ...]:
    return (scripted(Act.ANSWER, 2, 5),) * count


def _offsets(count: int) -> tuple[int, ...]:
    """As of a run of a minute, with a gap of which the end comes long after the rule's."""
    return tuple(k * _GAP_MS * _MS + (60_000 * _MS if k >= count // 2 else 0) for k in range(count))


def _check_ended(result: RunResult, planned: int) -> int:
    assert result.rule_end is not None
    assert result.rule_end.reason.endswith("came")
    assert not result.interrupted
    assert result.duration_s < 60  # the gap that the end comes before
    assert {record.outcome for record in result.records} == {Outcome.DONE}
    assert 40 <= len(result.records) < planned
    return result.rule_end.end_ns


@pytest.mark.parametrize("ceiling", [None, 2])
def test_an_open_loop_sends_all_that_was_due_before_the_end(
    tmp_path: Path, server: ScriptedServer, ceiling: int | None
) -> None:
    """With the ceiling requests wait in the client, where most were due long before the end."""
    schedule = Schedule(_requests(400), _offsets(400), 0, ceiling)
    rule = _AfterRecords(40)
    plan = _plan(server, tmp_path, schedule, rule)
    result = Run(plan).execute(quiet)
    end_ns = _check_ended(result, 400)
    assert [record.index for record in result.records] == [k for k, ns in enumerate(schedule.offsets_ns) if ns < end_ns]
    assert rule.moments[-1].answered is not None
    assert rule.moments[-1].answered >= 40
    basis = RecordingBasis(plan.run_id, plan.recorder.schedule, plan.client, 2, None)
    assert [record.index for record in recover(plan.folder, basis, None).result.records] == [r.index for r in result.records]


def test_users_and_sessions_begin_nothing_after_the_end_and_sessions_come_to_theirs(
    tmp_path: Path, server: ScriptedServer
) -> None:
    for name in ("closed", "sessions"):
        (tmp_path / name).mkdir()
    closed = Run(_plan(server, tmp_path / "closed", ClosedSchedule(_requests(5_000), (0,) * 4, 0), _AfterRecords(40)))
    result = closed.execute(quiet)
    assert max(record.scheduled_ns for record in result.records) < _check_ended(result, 5_000)
    assert not result.ran_out

    first_turns = _offsets(300)
    offsets_ns = tuple(ns for first_ns in first_turns for ns in (first_ns, None))
    parents = tuple(parent for k in range(300) for parent in (None, 2 * k))
    sessions = SessionSchedule(
        tuple(replace(request, session=str(k // 2)) for k, request in enumerate(_requests(600))),
        offsets_ns, parents, (0, 50 * _MS) * 300, 0,
    )  # fmt: skip
    result = Run(_plan(server, tmp_path / "sessions", sessions, _AfterRecords(40))).execute(quiet)
    end_ns = _check_ended(result, 600)
    begun = sum(ns < end_ns for ns in first_turns)
    assert sorted(record.index for record in result.records) == list(range(2 * begun))


def test_what_waits_is_not_known_once_a_worker_is_dead(tmp_path: Path, server: ScriptedServer) -> None:
    """Its requests are not sent any more: a rule on latencies must not take them for slow ones."""
    schedule = Schedule(_requests(300), tuple(k * 20 * _MS for k in range(300)), 0)
    rule = _AfterRecords(10_000)
    run = Run(_plan(server, tmp_path, schedule, rule))
    killed_at: list[int] = []

    def kill(snapshot: Snapshot) -> None:
        if not killed_at and snapshot.done >= 20:
            worker = run.workers[1]
            assert isinstance(worker, WorkerProcess)
            worker.process.kill()
            worker.process.join()
            killed_at.append(len(rule.moments))

    result = run.execute(kill)
    assert {record.outcome for record in result.records} == {Outcome.DONE, Outcome.LOST}
    before, after = rule.moments[: killed_at[0]], rule.moments[killed_at[0] :]
    assert len(after) > 5
    assert {moment.answered is None for moment in before} == {False}
    assert {(moment.answered, moment.behind) for moment in after} == {(None, True)}
