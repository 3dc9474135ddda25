"""Conversations of a trace: which turns are sent, what they wait for, and when they are due."""

from __future__ import annotations

import pytest

from workloads.elements.errors import WorkloadError
from workloads.elements.request import LengthLimits, Request, Turn
from workloads.prompts.dataset import OutputLengths
from workloads.schedule.schedule import HistorySource
from workloads.schedule.session_replay import behind_their_parents, names_of, replayed_sessions
from workloads.schedule.sessions import SessionPrompts, SessionRules, TurnClock, TurnOrder
from workloads.table.workload import Workload, WorkloadFacts


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
    thinking = replayed_sessions(_trace(), SessionRules(TurnClock.THINK_TIME, think_time_ns=3))
    assert thinking.turns[2:] == (Turn(0, 7), Turn(1, 3), Turn(2, 3))
    assert str(thinking).startswith("2 sessions at the trace's own times, a later turn due its think time after the answer")


def test_a_turn_is_sent_only_behind_those_before_it() -> None:
    assert behind_their_parents(_trace(), range(5)) == (0, 1, 2, 3, 4)
    assert behind_their_parents(_trace(), (0, 1, 3, 4)) == (0, 1, 3)
    assert behind_their_parents(_trace(), (2, 3, 4)) == ()


def test_turns_have_the_name_of_their_conversation() -> None:
    assert names_of(_trace()) == ("a", "row 2", "a", "row 2", "a")


def _chats(answers: list[str | None]) -> Workload:
    columns = {"prompt": ["one two", "x", "three"], "answer": answers, "parent": [None, None, 0], "output_tokens": [4, 1, 2]}
    return Workload.of_columns(WorkloadFacts("custom", "chats.jsonl"), 3, columns)


def _words(text: str) -> list[int]:
    return [len(word) for word in text.split()]


def test_turns_are_requests_in_the_order_of_their_rows() -> None:
    rules = SessionRules(order=TurnOrder.BY_ROW)
    made = SessionPrompts(_chats(["a b", None, None]), None, OutputLengths(), rules).draw(None)
    assert [request.prompt for request in made.requests] == ["one two", "x", "one two\na b\nthree"]
    assert made.kept == (0, 1, 2)
    first = SessionPrompts(_chats(["a b", None, None]), None, OutputLengths(), rules).draw(2)
    assert first.kept == (0, 1)


@pytest.mark.parametrize(("most", "kept"), [(7, (0, 1, 2)), (6, (0, 1))])
def test_a_prompt_with_the_server_s_answers_counts_with_the_most_that_they_can_have(most: int, kept: tuple[int, ...]) -> None:
    """Two words, an answer of at most four tokens, and a word."""
    rules = SessionRules(as_messages=True, history=HistorySource.SERVER, order=TurnOrder.BY_ROW)
    limits = LengthLimits(max_input_len=most)
    made = SessionPrompts(_chats([None] * 3), _words, OutputLengths(), rules, limits).draw(None)
    assert made.kept == kept
    assert made.dropped_too_long == 3 - len(kept)


def test_a_history_without_a_recorded_answer_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"row 1 of the dataset has no answer.*history server"):
        SessionPrompts(_chats([None] * 3), None, OutputLengths(), SessionRules()).draw(None)
