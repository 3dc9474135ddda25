"""Sessions with real worker processes: what was due when, and what is sent after a failure."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench_records.record import Outcome, Record
from harness.recording.recorder import Recorder
from harness.recording.run_result import RunResult
from harness.recording.schedule_summary import summarise_schedule
from harness.run.coordinator import Run, RunPlan
from tests.harness.journal.following import once, quiet
from tests.harness.run.execute_script import make_plan
from tests.harness.scripted_server import Act, ScriptedServer, scripted
from workloads.elements.request import Request
from workloads.schedule.schedule import SessionSchedule

_MS = 1_000_000
WORKERS = pytest.mark.parametrize("workers", [1, 4])


def _plan(server: ScriptedServer, folder: Path, schedule: SessionSchedule, workers: int) -> RunPlan:
    plan = make_plan(server.address, folder, [], [], workers)
    return replace(plan, schedule=schedule, recorder=Recorder(summarise_schedule(schedule), plan.client))


def _schedule(
    requests: Sequence[Request],
    parents: Sequence[int | None],
    offsets_ms: Sequence[float | None],
    think_ms: Sequence[float] | None = None,
    joins: Sequence[Sequence[int]] = (),
) -> SessionSchedule:
    return SessionSchedule(
        tuple(requests),
        tuple(None if ms is None else round(ms * _MS) for ms in offsets_ms),
        tuple(parents),
        tuple(round(ms * _MS) for ms in think_ms or [0] * len(requests)),
        0,
        joins=tuple(map(tuple, joins)),
    )


def _by_index(result: RunResult) -> list[Record]:
    return sorted(result.records, key=lambda record: record.index)


@WORKERS
def test_no_turn_is_sent_before_the_answer_that_it_waits_for(tmp_path: Path, server: ScriptedServer, workers: int) -> None:
    turns, sessions = 4, 30
    parents = [None if turn == 0 else turns * session + turn - 1 for session in range(sessions) for turn in range(turns)]
    offsets_ms = [5.0 * session if turn == 0 else None for session in range(sessions) for turn in range(turns)]
    think_ms = [0.0 if turn == 0 else 3.0 * turn for _ in range(sessions) for turn in range(turns)]
    requests = [scripted(Act.ANSWER, 2, 5 + k % 7) for k in range(turns * sessions)]
    schedule = _schedule(requests, parents, offsets_ms, think_ms)
    records = _by_index(Run(_plan(server, tmp_path, schedule, workers)).execute(quiet))
    assert [record.outcome for record in records] == [Outcome.DONE] * 120
    assert len({record.worker for record in records}) == workers
    for record, think in zip(records, think_ms, strict=True):
        if record.parent is None:
            assert record.scheduled_ns == schedule.offsets_ns[record.index]
        else:
            parent = records[record.parent]
            assert parent.done_ns is not None
            assert record.sent_ns is not None
            assert record.scheduled_ns == parent.done_ns + round(think * _MS)
            assert record.sent_ns >= record.scheduled_ns
            assert record.worker == parent.worker
        assert record.planned_ns is None


def test_a_turn_with_a_time_of_its_own_waits_for_the_later_of_both(tmp_path: Path, server: ScriptedServer) -> None:
    slow, quick = scripted(Act.ANSWER, 2, 100), scripted(Act.ANSWER, 1, 0)
    schedule = _schedule([slow, quick, quick], [None, 0, 1], [0, 20, 400])
    first, second, third = _by_index(Run(_plan(server, tmp_path, schedule, 1)).execute(quiet))
    assert second.scheduled_ns == first.done_ns
    assert (second.planned_ns, third.planned_ns) == (20 * _MS, 400 * _MS)
    assert second.done_ns is not None
    assert third.scheduled_ns == max(400 * _MS, second.done_ns)


def test_one_answer_may_be_waited_for_by_several_turns(tmp_path: Path, server: ScriptedServer) -> None:
    schedule = _schedule([scripted(Act.ANSWER, 2, 10)] * 3, [None, 0, 0], [0, None, None], [0, 50, 5])
    first, later, sooner = _by_index(Run(_plan(server, tmp_path, schedule, 1)).execute(quiet))
    assert first.done_ns is not None
    assert (later.scheduled_ns, sooner.scheduled_ns) == (first.done_ns + 50 * _MS, first.done_ns + 5 * _MS)


def test_a_turn_that_joins_others_is_due_after_the_last_answer(tmp_path: Path, server: ScriptedServer) -> None:
    parts = [scripted(Act.ANSWER, 1, ms) for ms in (40, 5)]
    one = ([scripted(Act.ANSWER), *parts, scripted(Act.ANSWER)], [None, 0, 0, 0], [0, None, None, None], [0, 0, 0, 7])
    requests, parents, offsets_ms, think_ms, joins = [], [], [], [], []
    for first in range(0, 32, 4):
        requests += one[0]
        parents += [None if parent is None else first + parent for parent in one[1]]
        offsets_ms += [first, None, None, None]
        think_ms += one[3]
        joins += [(), (), (), (first + 1, first + 2)]
    schedule = _schedule(requests, parents, offsets_ms, think_ms, joins)
    records = _by_index(Run(_plan(server, tmp_path, schedule, 4)).execute(quiet))
    assert [record.outcome for record in records] == [Outcome.DONE] * 32
    last = set()
    for first in range(0, 32, 4):
        done_ns = [records[first + k].done_ns or 0 for k in range(3)]
        assert records[first + 3].scheduled_ns == max(done_ns) + 7 * _MS
        last.add(done_ns.index(max(done_ns)))
        assert len({records[first + k].worker for k in range(4)}) == 1
    assert 1 in last  # the one that takes longer, where the machine lets it


def test_a_turn_that_joins_a_failed_one_is_not_sent(tmp_path: Path, server: ScriptedServer) -> None:
    parts = [scripted(Act.ANSWER, 1, 40), scripted(Act.ERROR)]
    requests = [scripted(Act.ANSWER), *parts, *[scripted(Act.ANSWER)] * 3]
    joins = [(), (), (), (1, 2), (), ()]
    schedule = _schedule(requests, [None, 0, 0, 0, 3, None], [0, None, None, None, None, 1], joins=joins)
    records = _by_index(Run(_plan(server, tmp_path, schedule, 1)).execute(quiet))
    assert [records[k].outcome for k in (0, 1, 5)] == [Outcome.DONE] * 3
    assert [(record.outcome, record.parent) for record in records[3:5]] == [(Outcome.NOT_SENT, 2), (Outcome.NOT_SENT, 3)]
    assert {record.error for record in records[3:5]} == {"request 2, whose answer it waited for, failed"}
    assert records[3].scheduled_ns == max(records[1].done_ns or 0, records[2].done_ns or 0)


def test_turns_behind_a_failure_are_not_sent_and_other_sessions_go_on(tmp_path: Path, server: ScriptedServer) -> None:
    acts = (Act.FULL, Act.ERROR, Act.STATUS, Act.GARBAGE, Act.SILENT)
    requests, parents, offsets_ms = [], [], []
    for first in range(0, 6 * len(acts), 6):  # a session of four turns whose second fails, and another of two turns
        requests += [scripted(Act.ANSWER), scripted(acts[first // 6]), *[scripted(Act.ANSWER)] * 4]
        parents += [None, first, first + 1, first + 2, None, first + 4]
        offsets_ms += [0, None, 300, None, 10, None]
    result = Run(_plan(server, tmp_path, _schedule(requests, parents, offsets_ms), 4)).execute(quiet)
    records = _by_index(result)
    assert not result.interrupted
    for first in range(0, 6 * len(acts), 6):
        failed = records[first + 1]
        assert failed.outcome not in (Outcome.DONE, Outcome.NOT_SENT)
        assert failed.done_ns is not None
        assert [records[first + k].outcome for k in (0, 4, 5)] == [Outcome.DONE] * 3
        for record in records[first + 2 : first + 4]:
            assert (record.outcome, record.sent_ns) == (Outcome.NOT_SENT, None)
            assert record.error == f"request {first + 1}, whose answer it waited for, failed"
            assert record.scheduled_ns == max(300 * _MS, failed.done_ns)
    assert [record.scheduled_ns for record in result.records] == sorted(record.scheduled_ns for record in result.records)


def test_the_first_signal_ends_the_sending_of_later_turns(tmp_path: Path, server: ScriptedServer) -> None:
    answer = scripted(Act.ANSWER, 1, 2_000)  # the signal reaches the worker before its end, however busy the machine
    schedule = _schedule([answer] * 4, [None, 0, 1, None], [0, None, None, 60_000])
    interrupt = once(lambda snapshot: snapshot.sent >= 1, lambda: os.kill(os.getpid(), signal.SIGINT))
    result = Run(_plan(server, tmp_path, schedule, 1)).execute(interrupt)
    assert result.interrupted
    assert [record.outcome for record in _by_index(result)] == [Outcome.DONE, *[Outcome.NOT_SENT] * 3]
    assert result.records[-1].error == "the run was stopped before its time"
