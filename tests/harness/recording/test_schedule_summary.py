from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.record import Outcome
from harness.recording.schedule_summary import (
    ClosedTimes,
    OpenTimes,
    RequestSummary,
    ScheduleSummary,
    SessionTimes,
    summarise_schedule,
    user_free_ns,
)
from workloads.elements.request import CancelPoint, Request
from workloads.schedule.schedule import ClosedSchedule, Schedule, SessionSchedule

_IDS = st.lists(st.integers(-3, 3), min_size=1, max_size=5)
_TEXTS = st.text("ab\ud800é", min_size=1, max_size=5)  # a lone surrogate, too: JSON files can hold one


def test_what_records_need_of_a_schedule_is_kept() -> None:
    request = Request(output_tokens=4, prompt="Hello", input_ids=(1, 2, 3), input_tokens=3, ignore_eos=True, session="s")
    schedule = Schedule((request, Request(output_tokens=1)), (5, 70), seed=9)
    summary = summarise_schedule(schedule)
    assert (summary.digest, summary.times) == (schedule.digest, OpenTimes((5, 70)))
    first, second = summary.requests
    assert (first.output_tokens, first.input_tokens, first.ignore_eos, first.session) == (4, 3, True, "s")
    assert first.text is not None
    assert first.ids is not None
    assert (first.text.length, first.ids.length) == (5, 3)
    assert (len(first.text.fingerprint), len(first.ids.fingerprint)) == (8, 8)  # of a million requests 16 MB in memory
    assert (second.text, second.ids) == (None, None)


def test_what_a_mixture_sets_is_kept_and_a_summary_of_before_can_be_read() -> None:
    requests = (
        Request(1, traffic_class="chat", cancel=CancelPoint(after_tokens=5)),
        Request(1, cancel=CancelPoint(after_ns=7)),
    )
    first, second = summarise_schedule(Schedule(requests, (0, 0), 0)).requests
    assert (first.traffic_class, first.cancel_after_ns, first.cancel_after_tokens) == ("chat", None, 5)
    assert (second.traffic_class, second.cancel_after_ns, second.cancel_after_tokens) == (None, 7, None)
    older = msgspec.msgpack.encode([4, None, False, None, None, None])
    read = msgspec.msgpack.decode(older, type=RequestSummary)
    assert (read.output_tokens, read.traffic_class, read.cancel_after_ns) == (4, None, None)
    assert read.requested_input_tokens is None


def test_workers_have_the_parts_that_the_schedule_gives_them() -> None:
    requests = (Request(output_tokens=1),) * 11
    closed = ClosedSchedule(requests, (0, 1, 2), 0, end_ns=9)
    parents = (None, None, 0, 1, None, None, 2, 4, None, 8, 5)
    sessions = SessionSchedule(requests, tuple(range(11)), parents, (0,) * 11, 0)
    for schedule in (Schedule(requests, tuple(range(11)), seed=0), closed, sessions):
        summary = summarise_schedule(schedule)
        for worker in range(3):
            assert tuple(summary.indices(worker, 3)) == schedule.shard(worker, 3)


def test_a_worker_of_a_closed_loop_has_its_users_and_its_end() -> None:
    closed = ClosedSchedule((Request(output_tokens=1),) * 11, (0, 1, 2), 0, end_ns=9)
    summary = summarise_schedule(closed)
    assert summary.times == ClosedTimes((0, 1, 2), 9)
    for worker in range(2):
        assert summary.part_of_users(ClosedTimes((0, 1, 2), 9), worker, 2) == closed.part(worker, 2)


@given(_TEXTS, _TEXTS)
def test_texts_that_begin_with_a_prompt_are_recognised_as_by_the_prompt_itself(prompt: str, text: str) -> None:
    kept = summarise_schedule(Schedule((Request(output_tokens=1, prompt=prompt),), (0,), seed=0)).requests[0].text
    assert kept is not None
    assert kept.begins_text(text) == text.startswith(prompt)
    assert kept.begins_text(prompt + text)


@given(_IDS, _IDS)
def test_ids_that_begin_with_a_prompt_are_recognised_as_by_the_prompt_itself(prompt: list[int], ids: list[int]) -> None:
    kept = summarise_schedule(Schedule((Request(output_tokens=1, input_ids=tuple(prompt)),), (0,), seed=0)).requests[0].ids
    assert kept is not None
    assert kept.begins_ids(ids) == (ids[: len(prompt)] == prompt)
    assert kept.begins_ids([*prompt, *ids])


def test_a_user_whose_connection_failed_is_free_a_tenth_of_a_second_later() -> None:
    assert user_free_ns(5, Outcome.CONNECT) == 100_000_005
    assert user_free_ns(5, Outcome.DONE) == user_free_ns(5, Outcome.STREAM_CUT) == user_free_ns(5, None) == 5


def test_a_later_turn_has_its_parent_and_its_own_time_and_a_first_one_neither() -> None:
    times = SessionTimes((5, None, 70), (None, 0, 1), (0, 9, 0))
    assert [times.of_later_turn(index) for index in range(3)] == [(None, None), (0, None), (1, 70)]


def test_the_times_of_sessions_are_those_of_their_schedule() -> None:
    requests = (Request(output_tokens=1, session="s"),) * 3
    schedule = SessionSchedule(requests, (5, None, 70), (None, 0, 1), (0, 9, 0), 0)
    assert summarise_schedule(schedule).times == SessionTimes((5, None, 70), (None, 0, 1), (0, 9, 0))


def test_turns_that_wait_for_other_sessions_are_kept_and_sent_by_one_worker() -> None:
    """The last turn of the first session waits for the first answer of the second one."""
    requests, parents, joins = (Request(output_tokens=1),) * 5, (None, None, 0, 2, None), ((), (), (), (1,), ())
    schedule = SessionSchedule(requests, tuple(range(5)), parents, (0,) * 5, 0, joins=joins)
    summary = summarise_schedule(schedule)
    assert summary.times == SessionTimes(tuple(range(5)), parents, (0,) * 5, joins)
    assert isinstance(summary.times, SessionTimes)
    assert [summary.times.waited_for(index) for index in range(5)] == [(), (), (0,), (2, 1), ()]
    assert SessionTimes((0, 1), (None, 0), (0, 0)).waited_for(1) == (0,)
    assert [tuple(summary.indices(worker, 2)) for worker in range(2)] == [(0, 1, 2, 3), (4,)]


def test_ids_of_a_prompt_have_a_text_too_where_they_can_be_decoded() -> None:
    """The last character is not complete: the answer may complete it."""

    def decode(ids: tuple[int, ...]) -> str:
        return "\ufffd".join(chr(96 + number) for number in ids) + "\ufffd\ufffd"

    of_ids, of_text = Request(output_tokens=1, input_ids=(1, 2)), Request(output_tokens=1, prompt="x", input_ids=(1, 2))
    decoded, kept = summarise_schedule(Schedule((of_ids, of_text), (0, 0), 0), decode).requests  # type: ignore[arg-type]
    assert decoded.text is not None
    assert (decoded.text.length, decoded.text.begins_text("a\ufffdbc")) == (3, True)
    assert kept.text is not None
    assert kept.text.begins_text("x")
    assert summarise_schedule(Schedule((of_ids,), (0,), 0)).requests[0].text is None


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        (OpenTimes((0,)), "its times are not those of its requests"),
        (ClosedTimes((), None), "its times are not those of its requests"),
        (SessionTimes((0, 1), (None, None), (0,)), "its times are not those of its requests"),
        (SessionTimes((0, 1), (None, None), (0, 0), ((),)), "its times are not those of its requests"),
        (SessionTimes((0, 1), (None, 1), (0, 0)), "a turn waits for itself or a later one"),
        (SessionTimes((0, 1), (1, None), (0, 0)), "a turn waits for itself or a later one"),
        (SessionTimes((0, 1), (None, -1), (0, 0)), "a turn waits for itself or a later one"),
        (SessionTimes((0, 1), (None, 0), (0, 0), ((), (1,))), "a turn waits for itself or a later one"),
        (SessionTimes((0, 1), (None, None), (0, 0), ((), (0,))), "a first turn waits for others"),
    ],
)
def test_times_that_no_schedule_has_are_refused(times: OpenTimes | ClosedTimes | SessionTimes, problem: str) -> None:
    requests = summarise_schedule(Schedule((Request(output_tokens=1),) * 2, (0, 0), 0)).requests
    with pytest.raises(ValueError, match=f"^{problem}$"):
        ScheduleSummary("", times, requests)


@pytest.mark.parametrize(
    "times", [OpenTimes((0, 0)), ClosedTimes((0,), None), SessionTimes((0, None), (None, 0), (0, 0), ((), (0,)))]
)
def test_times_of_as_many_requests_are_taken(times: OpenTimes | ClosedTimes | SessionTimes) -> None:
    requests = summarise_schedule(Schedule((Request(output_tokens=1),) * 2, (0, 0), 0)).requests
    assert ScheduleSummary("", times, requests).times == times
