"""What becomes of requests that left no exchange behind."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench_records.record import Outcome, Record
from harness.clients.triton.grpc import TritonGrpcClient, TritonModel
from harness.journal.worker_journal import Ended
from harness.recording.accounting import WorkerEnd, account_for_all, ran_out, unanswered_due_ns
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule, user_free_ns
from workloads.elements.request import Request
from workloads.schedule.schedule import AnySchedule, ClosedPart, ClosedSchedule, Schedule, SessionSchedule

_REQUEST = Request(output_tokens=4, session="s")


def _recorder(schedule: AnySchedule) -> Recorder:
    model = TritonModel("model", decoupled=True, inputs=frozenset(), outputs=frozenset(), parameters=())
    return Recorder(summarise_schedule(schedule), TritonGrpcClient("127.0.0.1:1", model, streaming=True))


def _record(index: int, due: int, done: int, outcome: Outcome = Outcome.DONE) -> Record:
    return Record(index, outcome, due, requested_output_tokens=4, sent_ns=due, done_ns=done, session="s")


def _kinds(records: tuple[Record, ...]) -> list[tuple[int, int, str]]:
    return [(record.index, record.scheduled_ns, record.outcome.value) for record in records]


# ---- open loops


_STOPPED = Ended(1, "the run was stopped before its time")
_KILLED = "its worker ended with status -9"


@pytest.mark.parametrize(
    ("ended", "outcome", "error"),
    [
        (_STOPPED, "not_sent", "the run was stopped before its time"),
        (None, "lost", _KILLED),
        (Ended(1), "lost", "its worker ended without having sent it"),
        (Ended(3, "the disk is full", (1, 3)), "lost", "it was sent, but its exchange could not be written to disk"),
    ],
)
def test_every_request_of_an_open_loop_has_a_record(ended: Ended | None, outcome: str, error: str) -> None:
    schedule = Schedule((_REQUEST,) * 4, (0, 10, 20, 30), 0)
    records = {0: _record(0, 0, 5), 2: _record(2, 20, 25)}
    ends = [WorkerEnd(_STOPPED, 2, ""), WorkerEnd(ended, 1, _KILLED)]
    found = account_for_all(_recorder(schedule), records, ends)
    assert _kinds(found) == [
        (0, 0, "done"), (1, 10, outcome), (2, 20, "done"), (3, 30, outcome),
    ]  # fmt: skip
    assert [record.error for record in found] == [None, error, None, error]


def test_records_stand_in_the_order_of_their_times_though_probes_are_numbered_behind_the_load() -> None:
    schedule = Schedule((_REQUEST,) * 4, (0, 10, 20, 5), 0)
    records = {0: _record(0, 0, 5), 1: _record(1, 10, 15), 3: _record(3, 5, 9)}
    found = account_for_all(_recorder(schedule), records, [WorkerEnd(_STOPPED, 3, "")])
    assert _kinds(found) == [(0, 0, "done"), (3, 5, "done"), (1, 10, "done"), (2, 20, "not_sent")]


# ---- closed loops


def test_what_no_user_took_has_no_record_and_the_rest_stand_in_the_order_of_their_times() -> None:
    schedule = ClosedSchedule((_REQUEST,) * 9, (0, 0), 0)
    records = {0: _record(0, 0, 50), 1: _record(1, 0, 20), 3: _record(3, 20, 60), 2: _record(2, 50, 70)}
    ends = [WorkerEnd(Ended(2, "it was stopped"), 2, "")] * 2
    assert [index for index, _, _ in _kinds(account_for_all(_recorder(schedule), records, ends))] == [0, 1, 3, 2]


@pytest.mark.parametrize("sent", [4, None])
def test_what_a_killed_worker_had_in_flight_is_lost_and_was_due_when_its_users_were_free(sent: int | None) -> None:
    schedule = ClosedSchedule((_REQUEST,) * 20, (0, 0, 0, 0), 0)
    # Worker 1 has users 1 and 3 and requests 1, 3, 5, 7, …; it had taken 1, 3, 5 and 7 when it died.
    records = {0: _record(0, 0, 40), 2: _record(2, 0, 45), 1: _record(1, 0, 30), 3: _record(3, 0, 35)}
    found = account_for_all(_recorder(schedule), records, [WorkerEnd(Ended(2), 2, ""), WorkerEnd(None, sent, _KILLED)])
    assert _kinds(found) == [
        (0, 0, "done"), (1, 0, "done"), (2, 0, "done"), (3, 0, "done"), (5, 30, "lost"), (7, 35, "lost"),
    ]  # fmt: skip
    lost = found[-1]
    assert (lost.sent_ns, lost.done_ns, lost.session, lost.error) == (None, None, "s", "its worker ended with status -9")


def test_what_a_worker_sent_has_records_though_most_of_its_journal_did_not_come() -> None:
    """One user took four requests. The last two were sent, too, but it is not known when."""
    schedule = ClosedSchedule((_REQUEST,) * 9, (0,), 0)
    found = account_for_all(_recorder(schedule), {0: _record(0, 0, 40)}, [WorkerEnd(None, 4, _KILLED)])
    assert _kinds(found) == [(0, 0, "done"), (1, 40, "lost"), (2, 40, "lost"), (3, 40, "lost")]


@pytest.mark.parametrize(
    ("records", "lost"),
    [
        # Request 2 was due at 50; its end, at which 4 was due, is not known: it was taken after 3, which was due at 55.
        ([_record(0, 0, 50), _record(1, 0, 55), _record(3, 55, 80), _record(5, 70, 90)], [(2, 50, "lost"), (4, 55, "lost")]),
        # Both users were free at 50.
        ([_record(0, 0, 50), _record(1, 0, 50), _record(3, 50, 80)], [(2, 50, "lost")]),
    ],
)
def test_a_request_in_a_gap_of_a_journal_was_due_between_its_neighbours(
    records: list[Record], lost: list[tuple[int, int, str]]
) -> None:
    schedule = ClosedSchedule((_REQUEST,) * 9, (0, 0), 0)
    end = WorkerEnd(None, len(records) + len(lost), _KILLED)
    found = account_for_all(_recorder(schedule), {record.index: record for record in records}, [end])
    assert [kind for kind in _kinds(found) if kind[2] == "lost"] == lost


def test_what_a_worker_of_a_closed_loop_could_not_write_was_sent_and_the_rest_was_not() -> None:
    schedule = ClosedSchedule((_REQUEST,) * 9, (0, 0, 0), 0)
    ended = Ended(3, "the disk is full", (1,))
    found = account_for_all(_recorder(schedule), {0: _record(0, 0, 40)}, [WorkerEnd(ended, 3, "")])
    assert [(record.index, record.outcome.value) for record in found] == [(0, "done"), (1, "lost"), (2, "not_sent")]


def test_a_user_who_is_free_at_the_end_has_no_request_due() -> None:
    records = [_record(0, 0, 49), _record(1, 0, 50)]
    assert unanswered_due_ns(ClosedPart((0, 1, 2, 3), (0, 0), 50), records) == [49]


@dataclass
class _User:
    free_ns: int


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=6).map(sorted),
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from([Outcome.DONE, Outcome.STREAM_CUT, Outcome.CONNECT])), max_size=40),
    st.integers(0, 250),
)
def test_lost_requests_get_the_times_at_which_they_were_due(
    starts: list[int], answers: list[tuple[int, Outcome]], death: int
) -> None:
    """Users send one request after the other until the worker dies; what has not ended by then leaves no record."""
    users = [_User(start) for start in starts]
    taken: list[tuple[int, int, int, Outcome]] = []
    for index, (latency, outcome) in enumerate(answers):
        user = min(users, key=lambda user: user.free_ns)
        if user.free_ns > death:
            break
        taken.append((index, user.free_ns, user.free_ns + latency, outcome))
        user.free_ns = user_free_ns(user.free_ns + latency, outcome)
    part = ClosedPart(tuple(range(len(answers))), tuple(starts), None)
    recorded = [_record(*answer) for answer in taken if answer[2] <= death]
    lost = [due for _, due, done, _ in taken if done > death]
    assert unanswered_due_ns(part, recorded)[: len(lost)] == sorted(lost)


@pytest.mark.parametrize(
    ("end_ns", "done", "outcome", "expected"),
    [
        (100, (40, 90), Outcome.DONE, True),  # two came, two ended in time: four could have been sent
        (100, (100, 120), Outcome.DONE, False),  # both ended when it was over
        (100, (40, 120), Outcome.DONE, True),
        (None, (40, 90), Outcome.DONE, False),  # there was no duration to fill
        (100, (40, 90), Outcome.LOST, False),  # its users died with their worker
    ],
)
def test_a_closed_loop_runs_out_when_a_user_finds_nothing_to_send(
    end_ns: int | None, done: tuple[int, int], outcome: Outcome, expected: bool
) -> None:
    schedule = ClosedSchedule((_REQUEST,) * 2, (0, 0), 0, end_ns)
    records = [_record(0, 0, done[0]), _record(1, 0, done[1], outcome)]
    assert ran_out(summarise_schedule(schedule), records) is expected


def test_users_with_enough_requests_did_not_run_out() -> None:
    schedule = ClosedSchedule((_REQUEST,) * 9, (0, 50), 0, 100)
    records = [_record(0, 0, 60), _record(1, 50, 130), _record(2, 60, 140)]
    assert not ran_out(summarise_schedule(schedule), records)


def test_an_open_loop_has_no_users() -> None:
    assert not ran_out(summarise_schedule(Schedule((_REQUEST,), (0,), 0)), [_record(0, 0, 5)])


# ---- sessions


def test_every_turn_of_a_session_has_a_record_with_its_parent_and_the_time_at_which_it_would_have_been_due() -> None:
    # worker 0 has requests 0 to 3, a chain whose second failed; worker 1 has 4 to 6 and died after 4
    schedule = SessionSchedule(
        (_REQUEST,) * 7, (0, None, 90, None, 5, None, 60), (None, 0, 1, 2, None, 4, 5), (0, 3, 0, 4, 0, 7, 0), 0
    )
    records = {0: _record(0, 0, 20), 1: _record(1, 23, 40, Outcome.TIMEOUT), 4: _record(4, 5, 30)}
    found = account_for_all(_recorder(schedule), records, [WorkerEnd(Ended(2), 2, ""), WorkerEnd(None, 2, _KILLED)])
    assert _kinds(found) == [
        (0, 0, "done"), (4, 5, "done"), (1, 23, "timeout"), (5, 37, "lost"), (6, 60, "lost"), (2, 90, "not_sent"),
        (3, 94, "not_sent"),
    ]  # fmt: skip
    by_index = {record.index: record for record in found}
    assert [by_index[k].error for k in (2, 3)] == ["request 1, whose answer it waited for, failed"] * 2
    assert [(by_index[k].parent, by_index[k].planned_ns) for k in (2, 3, 5, 6)] == [(1, 90), (2, None), (4, None), (5, 60)]


def test_turns_of_a_stopped_session_were_not_sent_for_that_reason() -> None:
    schedule = SessionSchedule((_REQUEST,) * 3, (0, None, None), (None, 0, 1), (0, 3, 4), 0)
    found = account_for_all(_recorder(schedule), {0: _record(0, 0, 20)}, [WorkerEnd(_STOPPED, 1, "")])
    assert _kinds(found) == [(0, 0, "done"), (1, 23, "not_sent"), (2, 27, "not_sent")]
    assert {record.error for record in found[1:]} == {"the run was stopped before its time"}


def test_every_turn_of_a_session_that_never_began_is_accounted_for_by_its_own_worker() -> None:
    """Two sessions of two turns: worker 0 sent the first, and was stopped; worker 1 could not write its first turn."""
    schedule = SessionSchedule((_REQUEST,) * 4, (0, None, 5, None), (None, 0, None, 2), (0, 3, 0, 4), 0)
    assert [tuple(summarise_schedule(schedule).indices(worker, 2)) for worker in range(2)] == [(0, 1), (2, 3)]
    ends = [WorkerEnd(_STOPPED, 0, ""), WorkerEnd(Ended(1, "the disk is full", (2,)), 1, "")]
    found = account_for_all(_recorder(schedule), {}, ends)
    assert _kinds(found) == [(0, 0, "not_sent"), (1, 3, "not_sent"), (2, 5, "lost"), (3, 9, "not_sent")]
    assert [record.error for record in found] == [
        "the run was stopped before its time",
        "the run was stopped before its time",
        "it was sent, but its exchange could not be written to disk",
        "the disk is full",
    ]
    later = account_for_all(_recorder(schedule), {2: _record(2, 5, 7)}, [ends[0], WorkerEnd(Ended(2, "full", (3,)), 2, "")])
    assert _kinds(later)[2:] == [(2, 5, "done"), (3, 11, "lost")]


def test_a_turn_that_joins_others_and_was_not_sent_was_due_after_the_last_of_them() -> None:
    schedule = SessionSchedule((_REQUEST,) * 3, (0, 0, None), (None, None, 0), (0, 0, 7), 0, joins=((), (), (1,)))
    for first_ns, second_ns in ((20, 30), (30, 20)):
        records = {0: _record(0, 0, first_ns), 1: _record(1, 0, second_ns, Outcome.TIMEOUT)}
        found = account_for_all(_recorder(schedule), records, [WorkerEnd(Ended(2), 2, "")])
        assert _kinds(found)[-1] == (2, 37, "not_sent")
        assert found[-1].error == "request 1, whose answer it waited for, failed"


# ---- runs that a rule ended


def test_what_would_have_been_due_after_a_rules_end_has_no_record_unless_it_was_sent() -> None:
    ended = Ended(2, None, (), end_ns=20)
    open_loop = Schedule((_REQUEST,) * 5, (0, 10, 20, 30, 40), 0)
    found = account_for_all(_recorder(open_loop), {0: _record(0, 0, 5), 3: _record(3, 30, 35)}, [WorkerEnd(ended, 2, "")])
    assert _kinds(found) == [(0, 0, "done"), (1, 10, "lost"), (3, 30, "done")]

    sessions = SessionSchedule((_REQUEST,) * 4, (0, None, 20, None), (None, 0, None, 2), (0, 50, 0, 4), 0)
    found = account_for_all(_recorder(sessions), {0: _record(0, 0, 5)}, [WorkerEnd(ended, 1, "")])
    assert _kinds(found) == [(0, 0, "done"), (1, 55, "lost")]
    later_first = SessionSchedule((_REQUEST,) * 4, (20, None, 0, None), (None, 0, None, 2), (0, 4, 0, 50), 0)
    found = account_for_all(_recorder(later_first), {2: _record(2, 0, 5)}, [WorkerEnd(ended, 1, "")])
    assert _kinds(found) == [(2, 0, "done"), (3, 55, "lost")]

    for planned_ns, rule_ns in ((None, 20), (60, 20), (20, 60)):
        closed = ClosedSchedule((_REQUEST,) * 9, (0,), 0, planned_ns)
        found = account_for_all(_recorder(closed), {0: _record(0, 0, 25)}, [WorkerEnd(Ended(2, "", (), rule_ns), None, "")])
        assert _kinds(found) == [(0, 0, "done")]  # its user was free at 25


def test_a_turn_names_the_request_that_it_waited_for_in_vain_though_it_is_not_its_parent() -> None:
    """Turn 2 waits for 0, its parent, and for 1, which failed."""
    schedule = SessionSchedule((_REQUEST,) * 3, (0, None, None), (None, 0, 0), (0, 7, 7), 0, joins=((), (), (1,)))
    records = {0: _record(0, 0, 50), 1: _record(1, 57, 90, Outcome.TIMEOUT)}
    *_, unsent = account_for_all(_recorder(schedule), records, [WorkerEnd(Ended(2), 2, "")])
    assert (unsent.index, unsent.parent, unsent.outcome, unsent.scheduled_ns) == (2, 1, Outcome.NOT_SENT, 97)
    assert unsent.error == "request 1, whose answer it waited for, failed"
