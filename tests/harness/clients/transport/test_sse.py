"""Events, however the bytes that carry them are written and cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.clients.answer_limits import AnswerLimits, AnswerTooLongError
from harness.clients.transport.sse import EventStream


def _read(*parts: bytes, ends: bool = True) -> list[tuple[str, bytes]]:
    """The events of a stream that comes in ``parts``."""
    found: list[tuple[str, bytes]] = []
    stream = EventStream(lambda data: found.append(("event", data)), lambda data: found.append(("error", data)))
    for part in parts:
        stream.feed(part)
    if ends:
        stream.end()
    return found


def _data(*parts: bytes, ends: bool = True) -> list[bytes]:
    found = _read(*parts, ends=ends)
    assert {kind for kind, _ in found} <= {"event"}
    return [data for _, data in found]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_end_in_any_of_three_ways(end: bytes) -> None:
    stream = end.join(
        [b"data: one", b"", b"data:two", b"", b": a comment", b"", b"id: 7", b"retry: 9", b"data: three", b"", b""]
    )
    assert _data(stream, ends=False) == [b"one", b"two", b"three"]


def test_an_event_is_handed_on_as_soon_as_it_is_whole() -> None:
    assert _data(b"data: one\n\n", ends=False) == [b"one"]
    assert _data(b"data: one\r\r", ends=False) == [b"one"]
    assert _data(b"data: one\n", ends=False) == []
    assert _data(b"data: one\n", b"\n", ends=False) == [b"one"]


def test_several_lines_of_data_are_one_event() -> None:
    assert _data(b"data: one\ndata: two\ndata\ndata:  three\n\n") == [b"one\ntwo\n\n three"]


def test_only_the_first_space_behind_the_colon_is_taken_off() -> None:
    assert _data(b"data:  x\n\n", b"data:y: z\n\n", b"data: \n\n", b"data\n\n") == [b" x", b"y: z"]


def test_a_newline_that_ends_a_part_after_a_return_is_no_blank_line() -> None:
    assert _data(b"data: one\r", b"\ndata: two\r", b"\n\r\n") == [b"one\ntwo"]
    assert _data(b"data: one\r", b"data: two\n\n") == [b"one\ntwo"]


def test_byte_order_mark_is_no_part_of_the_first_field() -> None:
    assert _data(b"\xef\xbb", b"\xbfdata: one\n\ndata: two\n\n") == [b"one", b"two"]


def test_unknown_fields_and_other_names_of_events_are_passed_over() -> None:
    assert _data(b"event: token\nnonsense: 1\ndata: one\n\ndataset: 2\n\nDATA: 3\n\n") == [b"one"]


def test_events_named_error_are_passed_on_separately() -> None:
    found = _read(b"event: error\ndata: broken\n\n", b"data: fine\n\n", b"event:error\n\n", b"data: after an empty one\n\n")
    assert found == [("error", b"broken"), ("event", b"fine"), ("event", b"after an empty one")]


def test_stream_that_ends_behind_its_last_line_loses_nothing() -> None:
    assert _data(b"data: one\n\ndata: [DONE]\n") == [b"one", b"[DONE]"]
    assert _data(b"data: one\n\ndata: [DONE]") == [b"one", b"[DONE]"]
    assert _data(b"data: one\n\ndata: two", ends=False) == [b"one"]


_FIELD = st.sampled_from([b"data: ", b"data:", b"data", b":", b"event: token", b"event: error", b"id: 1", b"x", b""])
_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=8).map(str.encode)
_LINES = st.lists(st.tuples(_FIELD, _TEXT).map(b"".join), max_size=12)
_END = st.sampled_from([b"\n", b"\r", b"\r\n"])


@st.composite
def _streams(draw: st.DrawFn) -> bytes:
    return b"".join(line + draw(_END) for line in draw(_LINES)) + draw(st.sampled_from([b"", b"data: [DONE]"]))


def _cut(stream: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


@given(_streams(), st.lists(st.integers(0, 10_000), max_size=20))
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", [9, 10, 19])
@example(b"data: a\n\ndata: b\n\n", list(range(20)))
@example(b"data: \n\n", [])
def test_any_cut_gives_the_same_events(stream: bytes, places: list[int]) -> None:
    whole = _read(stream)
    assert _read(*_cut(stream, places)) == whole
    assert _read(*(bytes([byte]) for byte in stream)) == whole


@given(st.lists(_TEXT.filter(lambda text: text.strip(b" ") == text and text != b""), max_size=8), _END)
def test_what_is_written_is_what_is_read(texts: list[bytes], end: bytes) -> None:
    stream = b"".join(b"data: " + text + end + end for text in texts)
    assert _data(stream) == texts
    assert _data(*(b"data: " + text + end + end for text in texts), ends=False) == texts


@pytest.mark.parametrize("part", [b"x", b"data: xxxx\n", b": comment "])
def test_an_event_or_a_line_without_end_is_given_up(part: bytes) -> None:
    stream = EventStream(lambda data: None, lambda data: None, AnswerLimits(max_message_bytes=1_000))
    for _ in range(1_000 // len(part)):
        stream.feed(part)
    with pytest.raises(AnswerTooLongError, match=r"a response is longer than 1,000 bytes \(--max_message_bytes\)"):
        stream.feed(part)


def test_events_and_comments_of_any_number_are_read_where_each_is_short() -> None:
    found: list[bytes] = []
    stream = EventStream(found.append, found.append, AnswerLimits(max_message_bytes=100))
    for _ in range(100):
        stream.feed(b": still here\ndata: 1\ndata: 2\n\n")
    assert found == [b"1\n2"] * 100
