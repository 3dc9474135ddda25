"""What was received is worked on piece by piece, so that the loop can read in between; without a socket."""

from __future__ import annotations

import asyncio

import pytest

from harness.calibration.null_server.channel import DirectChannel, Inbox
from harness.calibration.null_server.pacing import DueResponses
from harness.clients.transport.tcp import Arrival, TcpTransport


class _Transport(TcpTransport):
    """A transport without a socket; open, or closed."""

    def __init__(self, is_closing: bool) -> None:
        self._is_closing = is_closing


class _Channel(DirectChannel):
    """Writes down what it works on, and when the loop goes round after that."""

    def __init__(self, inbox: Inbox, seen: list[object], is_closing: bool = False) -> None:
        super().__init__(DueResponses.__new__(DueResponses), inbox)
        self.connection_made(_Transport(is_closing))
        self._seen = seen

    def read(self, data: bytes, received_ns: int) -> None:
        self._seen.append((data, received_ns))
        asyncio.get_running_loop().call_soon(self._seen.append, "turn")
        if data == b"bad":
            raise ValueError("a fault of the server's own")


def _worked_on(*pieces: bytes, closed: tuple[bytes, ...] = ()) -> list[object]:
    seen: list[object] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(type(context["exception"])))
        arrival = Arrival()
        inbox = Inbox(arrival)
        for number, piece in enumerate(pieces):
            arrival.ns = number
            _Channel(inbox, seen, is_closing=piece in closed).data_received(piece)
        for _ in range(2 * len(pieces)):
            await asyncio.sleep(0)

    asyncio.run(work())
    return seen


def test_the_loop_goes_round_between_two_pieces_and_each_keeps_its_time() -> None:
    assert _worked_on(b"a", b"b", b"c") == [(b"a", 0), "turn", (b"b", 1), "turn", (b"c", 2), "turn"]


def test_what_came_on_a_connection_that_has_closed_since_is_dropped() -> None:
    assert _worked_on(b"a", b"b", b"c", closed=(b"b",)) == [(b"a", 0), "turn", (b"c", 2), "turn"]


@pytest.mark.parametrize("position", [0, 1])
def test_a_piece_that_cannot_be_worked_on_holds_up_no_other(position: int) -> None:
    pieces = [b"good"]
    pieces.insert(position, b"bad")
    assert ValueError in (seen := _worked_on(*pieces))
    assert [entry[0] for entry in seen if isinstance(entry, tuple)] == pieces
