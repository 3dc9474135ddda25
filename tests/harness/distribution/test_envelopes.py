from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.distribution.dropped_messages import BadMessageError, DroppedMessages
from harness.distribution.envelopes import (
    ADMITTED,
    CHALLENGE,
    JOIN,
    PAYLOAD,
    PONG,
    PROOF,
    REFUSED,
    Answered,
    Challenge,
    ClientReady,
    Content,
    Heartbeat,
    Join,
    Ping,
    Pong,
    Proof,
    Refused,
    Sealed,
    Unused,
    encoded,
    fields,
    from_master,
    from_worker,
    sealed_ping,
    sealed_pong,
)

_BEAT = {"state": "ready", "current_cpu_usage": 12.5, "current_memory_usage": 80}
_NONCE, _PROOF = bytes(16), bytes(32)


def _frame(kind: Any, data: Any, name: Any = "w") -> bytes:
    return msgspec.msgpack.encode((kind, data, name))


@pytest.mark.parametrize(
    ("kind", "data", "content"),
    [
        ("client_ready", "2.47.0", ClientReady()),
        ("heartbeat", _BEAT, Heartbeat("ready", 12.5, 80)),
        ("stats", {"anything": [1, {}]}, Unused()),
        (JOIN, {"nonce": _NONCE}, Join(_NONCE)),
        (PROOF, {"nonce": _NONCE, "proof": _PROOF}, Proof(_NONCE, _PROOF)),
        (PAYLOAD, fields(Sealed(b"x", _PROOF)), Sealed(b"x", _PROOF)),
    ],
)
def test_what_a_worker_sends_has_a_type(kind: str, data: Any, content: Content) -> None:
    envelope = from_worker([b"w", _frame(kind, data)], "10.0.0.9")
    assert (envelope.peer, envelope.kind, envelope.content, envelope.address) == ("w", kind, content, "10.0.0.9")


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([], "0 frames instead of 2"),
        ([b"w"], "1 frames instead of 2"),
        ([b"w", b"", b""], "3 frames instead of 2"),
        ([b"\xff", _frame("stats", {})], "the name of its connection is not UTF-8"),
        ([b"w", b"garbage"], "not a message of Locust"),
        ([b"w", b""], "not a message of Locust"),
        ([b"w", b"\x91" * 100_000], "not a message of Locust"),
        ([b"w", b"\x93\xa1\xff\xc0\xa1w"], "not a message of Locust"),
        ([b"w", msgspec.msgpack.encode({"a": 1})], "not a message of Locust"),
        ([b"w", _frame(7, None)], "not a message of Locust"),
        ([b"w", _frame("quit", None, "another")], "in the name of another connection"),
        ([b"w", _frame("spawn", {})], "of an unknown type"),
        ([b"w", _frame(CHALLENGE, {"nonce": _NONCE})], "of an unknown type, or of one that is for the other side"),
        ([b"w", _frame("heartbeat", None)], "heartbeat: Expected `object`"),
        ([b"w", _frame("heartbeat", {})], "heartbeat: Object missing required field"),
        ([b"w", _frame("heartbeat", {**_BEAT, "state": "missing"})], "heartbeat: Invalid enum value"),
        ([b"w", _frame("heartbeat", {**_BEAT, "current_cpu_usage": "much"})], "heartbeat: Expected `float`, got `str`"),
        ([b"w", _frame("heartbeat", {**_BEAT, "current_cpu_usage": float("nan")})], "heartbeat: Expected `float` >= 0.0"),
        ([b"w", _frame(JOIN, {"nonce": b"short"})], f"{JOIN}: Expected `bytes` of length >= 16"),
        ([b"w", _frame(PROOF, {"nonce": _NONCE, "proof": None})], f"{PROOF}: Expected `bytes`, got "),
        ([b"w", _frame(PAYLOAD, {"payload": b"x"})], f"{PAYLOAD}: Object missing required field"),
        ([b"w", _frame(PONG, [1, 2, 3])], f"{PONG}: Expected `object`, got `array`"),
    ],
)
def test_what_is_no_message_of_a_worker_is_named(frames: list[bytes], reason: str) -> None:
    with pytest.raises(BadMessageError) as raised:
        from_worker(frames, "")
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "data", "content"),
    [
        ("ack", {"index": 0}, Answered()),
        ("heartbeat", None, Answered()),
        (CHALLENGE, {"nonce": _NONCE}, Challenge(_NONCE)),
        (REFUSED, {"reason": "late"}, Refused("late")),
    ],
)
def test_what_a_master_sends_has_a_type(kind: str, data: Any, content: Content) -> None:
    assert from_master([_frame(kind, data)], "").content == content


@pytest.mark.parametrize(
    "frame", [b"", b"\xc1", _frame("spawn", {"timestamp": 0}), _frame("stop", None), _frame(ADMITTED, {"proof": "x" * 32})]
)
def test_a_worker_obeys_no_other_message(frame: bytes) -> None:
    with pytest.raises(BadMessageError):
        from_master([frame], "")


@given(st.lists(st.binary(max_size=40), max_size=3))
def test_no_bytes_raise_anything_else(frames: list[bytes]) -> None:
    for decode in (from_worker, from_master):
        with suppress(BadMessageError):
            decode(frames, "")


def test_a_reason_does_not_act_on_a_terminal() -> None:
    assert str(BadMessageError("a\x1b[2J\n" + "b" * 1_000)) == "a?[2J?" + "b" * 194 + " …"


def test_pings_arrive_as_they_were_and_times_are_numbers_in_range() -> None:
    assert sealed_ping(encoded(Ping(5))) == Ping(5)
    assert sealed_pong(encoded(Pong(5, 6, 7))) == Pong(5, 6, 7)
    for wrong in ({"sent_ns": "5"}, {"sent_ns": -1}, {"sent_ns": 1 << 63}, {"sent_ns": 5.5}, [], None):
        with pytest.raises(BadMessageError):
            sealed_ping(msgspec.msgpack.encode(wrong))
        with pytest.raises(BadMessageError):
            sealed_pong(msgspec.msgpack.encode(wrong))


def test_the_senders_of_dropped_messages_are_counted_in_bounded_memory() -> None:
    dropped: DroppedMessages[str] = DroppedMessages()
    assert [dropped.add("a", "x"), dropped.add("a", "x", 4), dropped.add("a", "y")] == [True, False, True]
    for number in range(1_000):
        dropped.add(f"stranger {number}", "x")
    assert dropped.total == 1_006
    assert len(list(dropped)) == 100
    assert next(iter(dropped)) == ("a", "x", 5)
