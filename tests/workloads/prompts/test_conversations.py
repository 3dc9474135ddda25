"""Conversations as requests: which turns are sent, their history and their places."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workloads.arrivals.processes import Constant
from workloads.elements.errors import WorkloadError
from workloads.elements.request import HistorySource, LengthLimits, Message, Request, Turn
from workloads.prompts.conversations import (
    SessionPrompts,
    SessionRules,
    TurnClock,
    TurnOrder,
    behind_their_parents,
    in_conversations,
    names_of,
    rows_for_turns,
)
from workloads.prompts.dataset import OutputLengths
from workloads.prompts.drawn import Drawn
from workloads.readers.detect import read_workload_file
from workloads.schedule.load import OpenLoop
from workloads.schedule.sessions import sessions_from
from workloads.table.workload import Workload, WorkloadFacts

_LENGTHS = OutputLengths()
_RULES = SessionRules()
_S = 1_000_000_000


def _workload(**columns: Any) -> Workload:
    return Workload.of_columns(WorkloadFacts("test", "file"), len(columns["prompt"]), columns)


def _two_conversations(**columns: Any) -> Workload:
    """Interleaved: rows 0, 2, 3 are one conversation, 1 and 4 the other."""
    texts = {
        "session": ["a", "b", "a", "a", "b"],
        "parent": [None, None, 0, 2, 1],
        "prompt": ["p0", "p1", "p2", "p3", "p4"],
        "answer": ["a0 x", "a1", "a2", None, "a4"],
    }
    return _workload(**(texts | columns))


def _ids(text: str) -> list[int]:
    return [len(word) for word in text.split()]


def _requests(workload: Workload, most: int | None = None, rules: SessionRules = _RULES, **settings: Any) -> Drawn:
    return SessionPrompts(workload, _ids, _LENGTHS, rules, **settings).draw(most)


def test_the_prompt_of_a_turn_is_all_that_was_said_and_turns_of_a_session_follow_each_other() -> None:
    found = _requests(_two_conversations(history=[[{"role": "system", "content": "s"}], None, None, None, None]))
    assert [request.prompt for request in found.requests] == [
        "s\np0", "s\np0\na0 x\np2", "s\np0\na0 x\np2\na2\np3", "p1", "p1\na1\np4",
    ]  # fmt: skip
    assert [request.session for request in found.requests] == ["a", "a", "a", "b", "b"]
    assert [turn.parent for turn in found.turns] == [None, 0, 1, None, 3]
    assert [request.input_tokens for request in found.requests] == [2, 5, 7, 1, 3]
    assert [request.output_tokens for request in found.requests] == [2, 1, 256, 1, 1]
    assert (found.sessions, found.rows, found.without_length) == (2, 5, 1)
    assert [tuple(request.input_ids or ()) for request in found.requests] == [
        (1, 2),
        (1, 2, 2, 1, 2),
        (1, 2, 2, 1, 2, 2, 2),
        (2,),
        (2, 2, 2),
    ]
    assert found.kept == (0, 2, 3, 1, 4)


def test_a_chat_gets_the_messages_and_its_length_is_the_server_s_to_count() -> None:
    found = _requests(_two_conversations(), rules=SessionRules(as_messages=True))
    last = found.requests[2]
    assert last == Request(
        256,
        prompt="p3",
        session="a",
        history=(Message("user", "p0"), Message("assistant", "a0 x"), Message("user", "p2"), Message("assistant", "a2")),
    )
    assert last.whole_text == "p0\na0 x\np2\na2\np3"


def test_with_the_server_s_history_a_turn_has_its_own_messages_alone() -> None:
    workload = _two_conversations(answer=[None] * 5, history=[[{"role": "system", "content": "s"}], None, None, None, None])
    found = _requests(workload, rules=SessionRules(as_messages=True, history=HistorySource.SERVER))
    assert [(request.prompt, request.history) for request in found.requests] == [
        ("p0", (Message("system", "s"),)), ("p2", ()), ("p3", ()), ("p1", ()), ("p4", ()),
    ]  # fmt: skip
    assert found.prompt_ids is None
    schedule = sessions_from(found, OpenLoop(Constant(1.0)), SessionRules(history=HistorySource.SERVER)).schedule(
        found.requests, 0
    )
    assert schedule.history is schedule.part(0, 1).history is HistorySource.SERVER
    recorded = replace(schedule, history=HistorySource.RECORDED)
    assert recorded.digest != schedule.digest


def test_turns_are_due_by_their_think_time_or_by_their_recorded_one() -> None:
    times = {"arrival_ns": [0, 1, 2, 10, 20], "think_time_ns": [None, None, 3, None, 4]}
    think = _requests(_two_conversations(**times), rules=SessionRules(think_time_ns=7))
    assert think.turns == (Turn(), Turn(0, 3), Turn(1, 7), Turn(), Turn(3, 4))
    recorded = _requests(_two_conversations(**times), rules=SessionRules(TurnClock.RECORDED, think_time_ns=7))
    assert recorded.turns == (
        Turn(), Turn(0, after_first_ns=2), Turn(1, after_first_ns=10), Turn(), Turn(3, after_first_ns=19),
    )  # fmt: skip
    with pytest.raises(WorkloadError, match=r"^sessions recorded: file has no arrival times; use sessions think_time$"):
        _requests(_two_conversations(), rules=SessionRules(TurnClock.RECORDED))


def test_turns_behind_one_that_is_too_long_are_left_out() -> None:
    found = _requests(_two_conversations(), limits=LengthLimits(max_input_len=3))
    assert [request.prompt for request in found.requests] == ["p0", "p1", "p1\na1\np4"]
    assert (found.dropped_too_long, found.dropped_behind) == (1, 1)
    assert [turn.parent for turn in found.turns] == [None, None, 1]


def test_turns_too_long_and_turns_behind_them_are_counted() -> None:
    parents = [None, 0, 1, 2, None, 4]
    workload = _workload(parent=parents, prompt=[f"p{k}" for k in range(6)], answer=["a"] * 6)
    found = _requests(workload, limits=LengthLimits(max_input_len=1))
    assert [request.prompt for request in found.requests] == ["p0", "p4"]
    assert (found.dropped_too_long, found.dropped_behind, found.rows) == (2, 2, 6)
    with pytest.raises(
        WorkloadError, match=r"^every prompt of the dataset is longer than max_input_len 0 allows; nothing is left to send$"
    ):
        _requests(workload, limits=LengthLimits(max_input_len=0))
    with pytest.raises(
        WorkloadError, match=r"^every prompt of the dataset is longer than the context of 1 tokens allows; nothing"
    ):
        _requests(workload, limits=LengthLimits(context_tokens=1))


def test_a_session_whose_first_turn_is_too_long_is_none_of_the_most() -> None:
    workload = _workload(parent=[None, None], prompt=["one two", "three"], answer=["a", "b"])
    found = _requests(workload, most_sessions=1, limits=LengthLimits(max_input_len=1))
    assert [request.prompt for request in found.requests] == ["three"]


@pytest.mark.parametrize(
    ("limits", "turns"),
    [
        (LengthLimits(max_input_len=23), 5),
        (LengthLimits(max_input_len=22), 4),
        (LengthLimits(context_tokens=33), 5),
        (LengthLimits(context_tokens=32), 4),
    ],
)
def test_with_the_server_s_history_a_turn_counts_with_all_that_may_come_before_it(limits: LengthLimits, turns: int) -> None:
    """Each prompt has 1 token and each answer up to 10: the third turn has up to 1 + 10 + 1 + 10 + 1 tokens, and 10 more."""
    workload = _two_conversations(answer=[None] * 5, output_tokens=[10] * 5)
    rules = SessionRules(as_messages=True, history=HistorySource.SERVER)
    assert len(_requests(workload, rules=rules, limits=limits).requests) == turns


def test_turns_can_stand_in_the_order_of_their_rows() -> None:
    found = _requests(_two_conversations(), rules=SessionRules(order=TurnOrder.BY_ROW))
    assert [request.session for request in found.requests] == ["a", "b", "a", "a", "b"]
    assert [turn.parent for turn in found.turns] == [None, None, 0, 2, 1]
    assert found.kept == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("ignore_eos", [True, False])
def test_turns_end_as_asked(ignore_eos: bool) -> None:
    assert {request.ignore_eos for request in _requests(_two_conversations(), ignore_eos=ignore_eos).requests} == {ignore_eos}


@pytest.mark.parametrize(("most", "most_sessions", "turns"), [(2, None, 2), (4, None, 4), (None, 1, 3), (9, 9, 5)])
def test_a_limit_cuts_at_requests_or_sessions(most: int | None, most_sessions: int | None, turns: int) -> None:
    assert len(_requests(_two_conversations(), most, most_sessions=most_sessions).requests) == turns


_WITHOUT_ANSWER = (
    "has no answer for the history of the turn after it; with protocol openai, sessions think_time history server takes the "
    "server's"
)


def test_a_missing_answer_is_an_error_where_a_turn_follows_it() -> None:
    with pytest.raises(WorkloadError, match=f"^the prompt 'p1' {_WITHOUT_ANSWER}$"):
        _requests(_two_conversations(answer=["a", None, "c", "d", "e"]))
    prompts = ["p0", "long " * 20, "p2", "p3", "p4"]
    with pytest.raises(WorkloadError, match=f"^the prompt '(long ){{8}}'… {_WITHOUT_ANSWER}$"):
        _requests(_two_conversations(prompt=prompts, answer=["a", None, "c", "d", "e"]))
    prompts[1] = "long " * 7 + "short"  # 40 characters are shown whole
    with pytest.raises(WorkloadError, match=f"^the prompt '{prompts[1]}' {_WITHOUT_ANSWER}$"):
        _requests(_two_conversations(prompt=prompts, answer=["a", None, "c", "d", "e"]))


def test_the_tokens_of_whole_prompts_are_known_where_the_history_is_recorded() -> None:
    found = _requests(_two_conversations())
    assert [list(ids) for ids in found.prompt_ids or ()] == [_ids(request.prompt or "") for request in found.requests]
    chat = _requests(_two_conversations(), rules=SessionRules(as_messages=True))
    assert [list(ids) for ids in chat.prompt_ids or ()] == [_ids(request.prompt or "") for request in found.requests]
    assert (
        _requests(_two_conversations(), rules=SessionRules(as_messages=True, history=HistorySource.SERVER)).prompt_ids is None
    )
    assert SessionPrompts(_two_conversations(), None, _LENGTHS, _RULES).draw(None).prompt_ids is None


@pytest.mark.parametrize(("row", "prompt"), [(0, " \n"), (3, "")])
def test_an_empty_prompt_is_named_by_its_row(row: int, prompt: str) -> None:
    prompts = ["p0", "p1", "p2", "p3", "p4"]
    prompts[row] = prompt
    with pytest.raises(WorkloadError, match=f"^row {row + 1} of the dataset has an empty prompt$"):
        _requests(_two_conversations(prompt=prompts))


def test_a_prompt_without_any_token_is_empty() -> None:
    with pytest.raises(WorkloadError, match=r"^row 1 of the dataset has an empty prompt$"):
        SessionPrompts(_two_conversations(), lambda text: [], _LENGTHS, _RULES).draw(None)


def test_a_row_s_own_output_length_counts_before_its_answer_and_sessions_without_a_name_have_that_of_their_row() -> None:
    found = _requests(_two_conversations(session=[None] * 5, output_tokens=[7, None, None, 9, None]))
    assert [request.output_tokens for request in found.requests] == [7, 1, 9, 1, 1]
    assert [request.session for request in found.requests] == ["row 1"] * 3 + ["row 2"] * 2
    assert found.without_length == 0


def test_rows_without_a_prompt_are_left_out() -> None:
    found = _requests(_two_conversations(prompt=[None, "p1", None, None, "p4"], parent=[None, None, None, None, 1]))
    assert [request.prompt for request in found.requests] == ["p1", "p1\na1\np4"]
    assert [turn.parent for turn in found.turns] == [None, 0]


def test_the_real_conversations_make_a_request_of_every_turn(shared_data: Path) -> None:
    workload = read_workload_file(shared_data / "fastchat_dummy_conversation.json").workload
    found = SessionPrompts(workload, None, _LENGTHS, SessionRules()).draw(None)
    assert (len(found.requests), found.sessions, found.dropped_behind) == (1_000, 500, 0)
    for request, turn in zip(found.requests, found.turns, strict=True):
        if turn.parent is not None:
            before = found.requests[turn.parent]
            assert request.prompt is not None
            assert request.prompt.startswith((before.prompt or "") + "\n")
            assert request.session == before.session


# ---- traces


def _trace() -> Workload:
    columns = {
        "arrival_ns": [0, 10, 25, 40, 60],
        "session": ["a", None, "a", None, "a"],
        "parent": [None, None, 0, 1, 2],
        "think_time_ns": [None, None, 7, None, None],
    }
    return Workload.of_columns(WorkloadFacts("qwen", "trace.jsonl"), 5, columns)


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
    with pytest.raises(WorkloadError, match=f"^the prompt 'one two' {_WITHOUT_ANSWER}$"):
        SessionPrompts(_chats([None] * 3), None, OutputLengths(), SessionRules()).draw(None)


def test_random_prompts_are_turns_of_the_conversations_without_those_whose_parents_are_not_sent() -> None:
    requests = tuple(Request(1, prompt=str(row)) for row in (0, 1, 3, 4))
    made = in_conversations(Drawn(requests, kept=(0, 1, 3, 4)), _trace())
    assert [(request.prompt, request.session) for request in made.requests] == [("0", "a"), ("1", "row 2"), ("3", "row 2")]
    assert (made.kept, made.dropped_behind) == ((0, 1, 3), 1)


@pytest.mark.parametrize(("most", "rows"), [(None, None), (1, 1), (2, 3), (3, None), (4, None)])
def test_as_many_rows_are_made_as_the_turns_that_are_sent_need(most: int | None, rows: int | None) -> None:
    """Row 1 is too long. Row 2 waits for it, so it is made and not sent: the second turn that is sent is the third row made."""
    lengths = {"input_tokens": [5, 50, 5, 5, 5], "output_tokens": [1] * 5}
    workload = Workload.of_columns(WorkloadFacts("qwen", "t"), 5, {"parent": [None, None, 1, 0, None], **lengths})
    assert rows_for_turns(workload, LengthLimits(max_input_len=10), most) == rows


@pytest.mark.parametrize("column", ["input_tokens", "output_tokens"])
def test_rows_of_unknown_lengths_are_made_as_many_as_are_sent(column: str) -> None:
    lengths = {"input_tokens": [5, 5, 5], "output_tokens": [1, 1, 1], column: [5, None, 5]}
    workload = Workload.of_columns(WorkloadFacts("qwen", "t"), 3, lengths)
    assert rows_for_turns(workload, LengthLimits(), 2) == 2
