"""When sessions begin, what their later turns wait for, and how they are dealt to users."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.arrivals.processes import Constant, Exponential
from workloads.elements.errors import WorkloadError
from workloads.elements.request import HistorySource, Request, Turn
from workloads.prompts.conversations import SessionRules, TurnClock
from workloads.prompts.drawn import Drawn
from workloads.schedule.load import OpenLoop
from workloads.schedule.schedule import SessionSchedule
from workloads.schedule.sessions import replayed_sessions, sessions_from, sessions_of_users
from workloads.table.workload import Workload, WorkloadFacts

_S = 1_000_000_000


def test_sessions_begin_at_the_arrivals_and_recorded_turns_keep_their_distance() -> None:
    turns = (Turn(), Turn(0, after_first_ns=2), Turn(1, after_first_ns=10), Turn(), Turn(3, after_first_ns=19))
    found, rules = Drawn(tuple(Request(1, prompt=str(k)) for k in range(5)), turns=turns), SessionRules(TurnClock.RECORDED)
    schedule = sessions_from(found, OpenLoop(Constant(2.0)), rules).schedule(found.requests, 0)
    assert schedule.offsets_ns == (0, 2, 10, _S // 2, _S // 2 + 19)
    assert schedule.parents == (None, 0, 1, None, 3)
    within = sessions_from(found, OpenLoop(Constant(2.0), 9.0), SessionRules(history=HistorySource.SERVER))
    assert (within.duration_s, within.history) == (9.0, HistorySource.SERVER)
    assert str(sessions_from(found, OpenLoop(Exponential(2.0)), rules)) == (
        "2 sessions, exponential arrivals at 2 sessions/s, a later turn due at its recorded time, or at the end of the answer "
        "before it"
    )


@pytest.mark.parametrize("rate_per_s", [None, 2.0])
def test_users_keep_the_source_of_the_history(rate_per_s: float | None) -> None:
    drawn = Drawn((Request(1, prompt="x"),), turns=(Turn(),))
    assert sessions_of_users(drawn, 2, rate_per_s, HistorySource.SERVER).history is HistorySource.SERVER


@given(st.integers(1, 7), st.integers(1, 30), st.none() | st.floats(0.5, 5.0))
def test_users_hold_one_conversation_after_another(users: int, sessions: int, rate_per_s: float | None) -> None:
    turns = tuple(Turn(None if not k else 3 * s + k - 1, 5 * k) for s in range(sessions) for k in range(3))
    requests = tuple(Request(1, prompt="x", session=str(k // 3)) for k in range(len(turns)))
    load = sessions_of_users(Drawn(requests, turns=turns), users, rate_per_s, HistorySource.RECORDED)
    schedule = load.schedule(requests, 0)
    beside = "" if rate_per_s is None else f", at most {rate_per_s:g} requests/s each"
    assert load.description == f"{sessions} sessions of {users} users, one after another{beside}"
    active_users = min(users, sessions)
    assert load.count == active_users
    chain: dict[int, list[int]] = {}
    for index, parent in enumerate(schedule.parents):
        chain[index] = [*chain.pop(parent), index] if parent is not None else [index]  # each answer is waited for once
    assert len(chain) == active_users
    for mine in chain.values():
        assert {int(requests[index].session or "") % users for index in mine} == {mine[0] // 3}
        if rate_per_s is not None:
            first = schedule.offsets_ns[mine[0]]
            assert first == pytest.approx(_S * (mine[0] // 3) / (rate_per_s * users), abs=1)
            assert [schedule.offsets_ns[k] for k in mine] == [
                first + round(number / rate_per_s * _S) for number in range(len(mine))
            ]
        else:
            assert [schedule.think_times_ns[k] for k in mine] == [0, *(5 * (k % 3) for k in mine[1:])]


def test_a_rate_of_users_whose_last_request_is_due_years_later_is_refused() -> None:
    turns = tuple(Turn(number - 1 if number else None) for number in range(3))
    drawn = Drawn((Request(1, "p"),) * 3, turns=turns)
    lowest = sessions_of_users(drawn, 1, 2e-8, HistorySource.RECORDED).turns[-1]
    assert lowest.after_first_ns == 10**17
    with pytest.raises(WorkloadError, match=r"user_rate 1\.9e-08 is so low that the last request would come years from now"):
        sessions_of_users(drawn, 1, 1.9e-8, HistorySource.RECORDED)


def _trace() -> Workload:
    columns = {
        "arrival_ns": [0, 10, 25, 40, 60],
        "session": ["a", None, "a", None, "a"],
        "parent": [None, None, 0, 1, 2],
        "think_time_ns": [None, None, 7, None, None],
    }
    return Workload.of_columns(WorkloadFacts("qwen", "trace.jsonl"), 5, columns)


def test_a_turn_is_due_at_its_recorded_time_or_its_think_time_after_the_answer() -> None:
    recorded = replayed_sessions(_trace(), SessionRules(TurnClock.RECORDED))
    assert recorded.turns == (
        Turn(), Turn(), Turn(0, after_first_ns=25), Turn(1, after_first_ns=30), Turn(2, after_first_ns=60),
    )  # fmt: skip
    schedule = recorded.schedule([Request(1, prompt=str(k)) for k in range(5)], 0)
    assert schedule.offsets_ns == (0, 10, 25, 40, 60)
    assert (recorded.history, recorded.duration_s) == (HistorySource.RECORDED, None)
    of_server = replayed_sessions(_trace(), SessionRules(TurnClock.RECORDED, history=HistorySource.SERVER), 5.0)
    assert (of_server.history, of_server.duration_s) == (HistorySource.SERVER, 5.0)
    thinking = replayed_sessions(_trace(), SessionRules(TurnClock.THINK_TIME, think_time_ns=3))
    assert thinking.turns[2:] == (Turn(0, 7), Turn(1, 3), Turn(2, 3))
    times = "2 sessions at the trace's own times, a later turn due"
    assert str(thinking) == f"{times} its think time after the answer before it"
    assert str(recorded) == f"{times} at its recorded time, or at the end of the answer before it"


def test_a_trace_that_joins_sub_turns_keeps_the_joins() -> None:
    columns = {"arrival_ns": [0, 1, 2, 3], "parent": [None, 0, 0, 0], "joins": [None, None, None, [1, 2]]}
    workload = Workload.of_columns(WorkloadFacts("dynamo", "t.jsonl"), 4, columns)
    for clock in TurnClock:
        schedule = replayed_sessions(workload, SessionRules(clock)).schedule([Request(1, prompt="x")] * 4, 0)
        assert schedule.joins == ((), (), (), (1, 2))


@given(st.integers(1, 5), st.data())
def test_what_waits_for_each_other_belongs_to_one_worker(workers: int, data: st.DataObject) -> None:
    parents: list[int | None] = []
    joins: list[tuple[int, ...]] = []
    for index in range(data.draw(st.integers(1, 12))):
        parents.append(data.draw(st.none() | st.integers(0, index - 1)) if index else None)
        others = st.lists(st.integers(0, max(0, index - 1)), max_size=2)
        joins.append(tuple(data.draw(others)) if parents[-1] is not None else ())
    requests = tuple(Request(1, prompt=str(index)) for index in range(len(parents)))
    times = (tuple(0 if parent is None else None for parent in parents), tuple(parents), (0,) * len(parents))
    plain = SessionSchedule(requests, *times, 0)
    schedule = SessionSchedule(requests, *times, 0, joins=tuple(joins))
    shards = [schedule.shard(worker, workers) for worker in range(workers)]
    assert sorted(index for shard in shards for index in shard) == list(range(len(parents)))
    for worker, shard in enumerate(shards):
        part = schedule.part(worker, workers)
        assert part.indices == shard
        for place, index in enumerate(shard):
            assert [part.indices[other] for other in part.joins[place]] == list(joins[index])
            assert (part.parents[place] is None) == (parents[index] is None)
    assert (schedule.digest == plain.digest) == (not schedule.joins)
    if not any(joins):
        assert shards == [plain.shard(worker, workers) for worker in range(workers)]
