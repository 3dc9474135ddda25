"""The worker's side over a link without Locust: a master that says what it should not."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from harness.distribution import agent
from harness.distribution.admission import NO_TOKEN
from harness.distribution.agent import Agent
from harness.distribution.byte_streams import Outgoing, Received
from harness.distribution.link import Deliver, Delivered, Dropped, LinkEvent, NotAdmitted, Opened
from harness.distribution.messages import (
    PLAN,
    Dismissed,
    FromWorker,
    Hello,
    StartAt,
    WorkerReady,
    decode_from_worker,
    pack,
    unpack,
)
from harness.errors import RunError
from tests.harness.distribution.fake_link import FakeLink

_RUN_ID = "ab" * 16


def _agent(monkeypatch: pytest.MonkeyPatch, folder: Path, notes: list[str], *events: LinkEvent) -> tuple[Agent, FakeLink]:
    link = FakeLink(events)
    monkeypatch.setattr(agent, "LinkProcess", link)
    return Agent("h", 1, NO_TOKEN, folder / "work", notes.append), link


def _said(message: Any) -> Delivered:
    return Delivered("", pack(_RUN_ID, message))


def _messages(link: FakeLink) -> list[FromWorker]:
    return [decode_from_worker(unpack(order.payload)[1]) for order in link.sent if isinstance(order, Deliver)]


def _plan_pieces(data: bytes) -> list[Delivered]:
    outgoing = Outgoing(PLAN, BytesIO(data))
    outgoing.end()
    return [_said(piece) for piece in outgoing.due(0)]


def test_bad_messages_of_a_master_are_named_and_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    wrong = (
        {"type": "command", "command": 7},
        {"type": "start", "start_ns": "5"},
        {"type": "unknown"},
        {"type": "piece", "stream": "journal", "offset": 0, "data": b"", "checksum": 0, "last": True},
        StartAt(5),
        Received("journal", 5, True),
    )
    stale = Delivered("", pack("cd" * 16, StartAt(5)))
    unsigned = Dropped("", "10.0.0.1", "not signed", 5)
    events = (Opened(), *map(_said, wrong), _said(wrong[0]), stale, unsigned, _said(Dismissed("late")))
    taking_part, link = _agent(monkeypatch, tmp_path, notes, *events)
    assert taking_part.take_part().refusal == "late"
    assert [type(message) for message in _messages(link)] == [Hello]
    dropped = [note.removeprefix("Dropped a message from the master's side: ") for note in notes if "Dropped" in note]
    assert dropped == [
        "Expected `int` <= 2 - at `$.command`.",
        "Expected `int`, got `str` - at `$.start_ns`.",
        "Invalid value 'unknown' - at `$.type`.",
        "piece: of journal, from 0 on.",
        "start: before this worker was ready.",
        "received: of an unknown stream journal.",
        f"StartAt: of another run ({'cd' * 16}).",
        "not signed.",
    ]


def test_a_plan_that_is_none_is_refused_with_words_on_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taking_part, link = _agent(monkeypatch, tmp_path, [], Opened(), *_plan_pieces(b"garbage"))
    with pytest.raises(RunError, match="the master's plan cannot be read: plan: Expected `object`"):
        taking_part.take_part()
    (ready,) = [message for message in _messages(link) if isinstance(message, WorkerReady)]
    assert "its plan is damaged" in str(ready.problem)
    assert link.is_closed


def test_a_worker_that_is_not_admitted_ends_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taking_part, link = _agent(monkeypatch, tmp_path, [], NotAdmitted("its token is another"))
    assert taking_part.take_part().refusal == "its token is another"
    assert not _messages(link)


def test_a_signal_before_the_plan_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taking_part, _ = _agent(monkeypatch, tmp_path, [], Opened())
    with pytest.raises(KeyboardInterrupt):
        taking_part.stop()


def test_a_folder_that_cannot_be_made_is_named_on_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").write_text("a file")
    taking_part, link = _agent(monkeypatch, tmp_path, [], Opened())
    with pytest.raises(RunError, match=r"--work_dir .*work cannot be used: .*File exists"):
        taking_part.take_part()
    assert [type(message) for message in _messages(link)] == [WorkerReady]
    assert link.is_closed
