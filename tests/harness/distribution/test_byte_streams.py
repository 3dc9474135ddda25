"""Copies of growing files over a channel that loses, repeats, reorders and damages messages."""

from __future__ import annotations

from io import BytesIO
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.distribution import byte_streams
from harness.distribution.byte_streams import PIECE_BYTES, RESEND_NS, WINDOW_BYTES, Incoming, Outgoing, Piece, Received


def _copy(source: bytes, cuts: list[int], faults: Random, loss: float) -> tuple[bytes, int]:
    """The copy over a bad channel, and the rounds that it took. The source grows at ``cuts``, one a round."""
    file, sink = BytesIO(), BytesIO()
    outgoing, incoming = Outgoing("journal", file), Incoming("journal", sink)
    now_ns, written = 0, 0
    for round_number in range(2_000):
        if written < len(source) or round_number == 0:
            end = cuts.pop(0) if cuts else len(source)
            file.seek(0, 2)
            file.write(source[written : max(written, end)])
            written = max(written, end)
            if written == len(source):
                outgoing.end()
        pieces = list(outgoing.due(now_ns))
        if faults.random() < 0.3:
            faults.shuffle(pieces)
        acknowledgements: list[Received] = []
        for piece in pieces:
            fate = faults.random()
            if fate < loss / 2:
                continue
            if fate < loss:
                piece = msgspec.structs.replace(piece, data=piece.data + b"x")  # damaged on the way
            acknowledgements.append(incoming.accept(piece))
        for received in acknowledgements:
            if faults.random() >= loss:
                outgoing.acknowledge(received, now_ns)
        assert sink.getvalue() == source[: len(sink.getvalue())]  # at any moment a prefix
        if outgoing.is_complete:
            assert incoming.is_complete
            return sink.getvalue(), round_number
        now_ns += RESEND_NS + 1
    raise AssertionError("the copy was never complete")


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=4), st.integers(0, 2**32), st.floats(0, 0.6))
def test_a_copy_is_whole_whatever_the_channel_does(source: bytes, cuts: list[int], seed: int, loss: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_streams, "PIECE_BYTES", 16)
        patch.setattr(byte_streams, "WINDOW_BYTES", 64)
        copy, _ = _copy(source, sorted(min(cut, len(source)) for cut in cuts), Random(seed), loss)
    assert copy == source


def test_a_good_channel_carries_each_byte_once() -> None:
    source = bytes(range(256)) * 8_192
    outgoing = Outgoing("plan", BytesIO(source))
    outgoing.end()
    incoming = Incoming("plan", sink := BytesIO())
    sent = 0
    while not outgoing.is_complete:
        for piece in list(outgoing.due(0)):
            sent += len(piece.data)
            outgoing.acknowledge(incoming.accept(piece), 0)
    assert (sink.getvalue(), sent) == (source, len(source))


def test_no_more_than_a_window_is_without_acknowledgement() -> None:
    outgoing = Outgoing("plan", BytesIO(bytes(3 * WINDOW_BYTES)))
    first = list(outgoing.due(0))
    assert sum(len(piece.data) for piece in first) == WINDOW_BYTES
    assert list(outgoing.due(1)) == []
    outgoing.acknowledge(Received("plan", PIECE_BYTES, False), 2)
    assert [piece.offset for piece in outgoing.due(3)] == [WINDOW_BYTES]


def test_pieces_are_sent_again_only_after_the_time_without_progress() -> None:
    outgoing = Outgoing("plan", BytesIO(b"abc"))
    (piece,) = outgoing.due(0)
    assert list(outgoing.due(RESEND_NS)) == []
    assert [again.offset for again in outgoing.due(RESEND_NS + 1)] == [0]
    outgoing.acknowledge(Received("plan", 3, False), RESEND_NS + 2)
    assert list(outgoing.due(3 * RESEND_NS)) == []
    assert not piece.last
    outgoing.end()
    (last,) = outgoing.due(3 * RESEND_NS)
    assert (last.offset, last.data, last.last) == (3, b"", True)


def test_an_empty_stream_has_one_last_piece() -> None:
    outgoing, incoming = Outgoing("samples", BytesIO()), Incoming("samples", BytesIO())
    outgoing.end()
    (piece,) = outgoing.due(0)
    assert piece == Piece("samples", 0, b"", piece.checksum, last=True)
    outgoing.acknowledge(incoming.accept(piece), 0)
    assert incoming.is_complete
    assert outgoing.is_complete
