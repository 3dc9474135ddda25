from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import uvloop

from harness.clients.transport import tcp
from harness.clients.transport.tcp import Arrival, PiecesProtocol, TcpTransport, problem_of
from harness.host.clock import now_ns
from tests.free_port import closed_port

_RUNNERS: list[Callable[[Any], None]] = [asyncio.run, uvloop.run]
_PAUSE_S = 0.2
_NEAR_NS = 50_000_000  # well below the pause, and room for a machine that is busy with other things


class _Protocol(PiecesProtocol):
    """Collects its callbacks. A line is a piece."""

    def piece_ends(self, data: bytes) -> Sequence[int]:
        return [place + 1 for place, byte in enumerate(data) if byte == ord("\n")]

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
        self.read: list[tuple[bytes, int]] = []
        self.calls: list[object] = []
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.read.append((data, self.arrival.ns))

    def eof_received(self) -> None:
        self.calls.append("eof")

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.calls.append(error)
        self.ended.set_result(None)

    @property
    def data(self) -> bytes:
        return b"".join(data for data, _ in self.read)


def _connected(run: Callable[[Any], None], scene: Callable[[TcpTransport, _Protocol, socket.socket], Awaitable[None]]) -> None:
    """Play ``scene`` with a transport, its protocol, and the peer's socket, which blocks."""

    async def play() -> None:
        arrival = Arrival()
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            peer, _ = server.accept()
        with peer:
            protocol = _Protocol(arrival)
            transport = TcpTransport(ours, protocol, arrival)
            await scene(transport, protocol, peer)
            transport.abort()
            await asyncio.wait_for(protocol.ended, 60)

    run(play())


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def _stamping(protocol: _Protocol, peer: socket.socket) -> None:
    """Wait until the kernel stamps reads: the first socket on a host that requests time stamps gets them a little later."""
    while True:
        unstamped, reads = protocol.arrival.unstamped_reads, len(protocol.read)
        peer.sendall(b"?")
        await _until(lambda reads=reads: len(protocol.read) > reads)  # type: ignore[misc]
        if protocol.arrival.unstamped_reads == unstamped:
            protocol.read.clear()
            return


@pytest.mark.parametrize("run", _RUNNERS)
def test_a_time_of_arrival_is_the_kernels_however_late_the_loop_reads(run: Callable[[Any], None]) -> None:
    async def scene(transport: TcpTransport, protocol: _Protocol, peer: socket.socket) -> None:
        await _stamping(protocol, peer)
        sends_ns = now_ns()
        peer.sendall(b"token")
        sent_ns = now_ns()
        time.sleep(_PAUSE_S)  # the loop stands still
        await _until(lambda: protocol.data == b"token")
        arrived_ns = protocol.read[-1][1]
        assert sends_ns <= arrived_ns < sent_ns + _NEAR_NS

    _connected(run, scene)


@pytest.mark.parametrize("run", _RUNNERS)
def test_pieces_that_came_while_the_loop_stood_still_are_read_each_by_itself(run: Callable[[Any], None]) -> None:
    async def scene(transport: TcpTransport, protocol: _Protocol, peer: socket.socket) -> None:
        await _stamping(protocol, peer)
        sent_ns = now_ns()
        for line in (b"a\n", b"b\nc\n", b"d\ne"):
            peer.sendall(line)
            time.sleep(_PAUSE_S)
        await _until(lambda: protocol.data == b"a\nb\nc\nd\ne")
        assert [data for data, _ in protocol.read] == [b"a\n", b"b\n", b"c\n", b"d\n", b"e"]
        arrived_ns = [ns for _, ns in protocol.read]
        assert all(sent_ns <= ns < now_ns() - _PAUSE_S * 1e9 for ns in arrived_ns)  # none is when it was read

    _connected(run, scene)


@pytest.mark.parametrize("run", _RUNNERS)
def test_a_piece_has_no_later_time_because_a_part_of_the_next_one_came(run: Callable[[Any], None]) -> None:
    async def scene(transport: TcpTransport, protocol: _Protocol, peer: socket.socket) -> None:
        await _stamping(protocol, peer)
        peer.sendall(b"a\nb")
        time.sleep(_PAUSE_S)
        await _until(lambda: protocol.data == b"a\nb")
        assert [data for data, _ in protocol.read] == [b"a\n", b"b"]

    _connected(run, scene)


@pytest.mark.parametrize("run", _RUNNERS)
@pytest.mark.parametrize("pause_s", [0.0, 0.01])
def test_a_reset_out_of_silence_is_no_orderly_end(run: Callable[[Any], None], pause_s: float) -> None:
    async def scene(transport: TcpTransport, protocol: _Protocol, peer: socket.socket) -> None:
        await _stamping(protocol, peer)
        await asyncio.sleep(pause_s)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        time.sleep(pause_s)  # the loop stands still: then it looks before it reads
        await asyncio.wait_for(asyncio.shield(protocol.ended), 60)
        [call] = protocol.calls
        assert isinstance(call, ConnectionResetError)

    _connected(run, scene)


def test_what_came_in_too_many_pieces_is_read_at_once() -> None:
    async def scene(transport: TcpTransport, protocol: _Protocol, peer: socket.socket) -> None:
        await _stamping(protocol, peer)
        peer.sendall(b"line\n" * 100)
        time.sleep(_PAUSE_S)
        await _until(lambda: protocol.data == b"line\n" * 100)
        assert len(protocol.read) == 1

    _connected(uvloop.run, scene)


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_wall_clock_that_is_set_moves_no_time_past_what_is_known(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    async def scene(transport: TcpTransport, protocol: _Protocol, peer: socket.socket) -> None:
        peer.sendall(b"a")
        await _until(lambda: protocol.data == b"a")
        between_ns, real = now_ns(), time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + round(step_s * 1e9))
        peer.sendall(b"b")
        await _until(lambda: protocol.data == b"ab")
        monkeypatch.undo()
        before_ns, arrived_ns = protocol.read[0][1], protocol.read[1][1]
        assert before_ns <= arrived_ns <= now_ns()  # equal where the first byte came while it was read
        assert step_s > 0 or arrived_ns > between_ns

    _connected(asyncio.run, scene)


@pytest.mark.parametrize("run", _RUNNERS)
def test_what_is_written_has_left_before_the_loop_goes_on(run: Callable[[Any], None]) -> None:
    async def scene(transport: TcpTransport, protocol: _Protocol, peer: socket.socket) -> None:
        transport.write(b"request")
        peer.settimeout(60)
        assert peer.recv(100) == b"request"  # without an await between

    _connected(run, scene)


@pytest.mark.parametrize("run", _RUNNERS)
def test_what_a_full_socket_does_not_take_follows_whole_and_in_order(run: Callable[[Any], None]) -> None:
    sent = b"".join(struct.pack(">I", number) for number in range(3_000_000))

    async def scene(transport: TcpTransport, protocol: _Protocol, peer: socket.socket) -> None:
        received = bytearray()

        def read() -> None:
            while len(received) < len(sent):
                received.extend(peer.recv(1 << 20))

        for start in range(0, len(sent), 1_000_000):
            transport.write(sent[start : start + 1_000_000])
        assert transport.get_write_buffer_size() > 0
        assert protocol.calls == ["pause"]
        reader = threading.Thread(target=read)
        reader.start()
        await _until(lambda: not transport.get_write_buffer_size())
        await asyncio.to_thread(reader.join, 10)
        assert bytes(received) == sent
        assert protocol.calls == ["pause", "resume"]

    _connected(run, scene)


@pytest.mark.parametrize("run", _RUNNERS)
def test_closing_sends_what_was_written_first(run: Callable[[Any], None]) -> None:
    sent = bytes(8_000_000)

    async def scene(transport: TcpTransport, protocol: _Protocol, peer: socket.socket) -> None:
        transport.write(sent)
        transport.close()
        transport.write(b"nothing is written behind the end")
        size = await asyncio.to_thread(lambda: sum(len(part) for part in iter(lambda: peer.recv(1 << 20), b"")))
        assert size == len(sent)
        await asyncio.wait_for(protocol.ended, 60)
        assert protocol.calls == ["pause", None]

    _connected(run, scene)


@pytest.mark.parametrize("run", _RUNNERS)
def test_the_peers_end_is_reported_once(run: Callable[[Any], None]) -> None:
    async def scene(transport: TcpTransport, protocol: _Protocol, peer: socket.socket) -> None:
        peer.sendall(b"last words")
        peer.shutdown(socket.SHUT_WR)
        await asyncio.wait_for(protocol.ended, 60)
        assert protocol.data == b"last words"
        assert protocol.calls == ["eof", None]
        assert transport.is_closing()

    _connected(run, scene)


@pytest.mark.parametrize("run", _RUNNERS)
def test_a_write_that_fails_leaves_what_the_peer_had_sent_to_be_read(run: Callable[[Any], None]) -> None:
    async def scene(transport: TcpTransport, protocol: _Protocol, peer: socket.socket) -> None:
        peer.sendall(b"why it was refused")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()  # with a reset
        for _ in range(3):
            transport.write(b"more")
        await asyncio.wait_for(protocol.ended, 60)
        assert protocol.data == b"why it was refused"
        (end,) = [call for call in protocol.calls if call != "eof"]
        assert isinstance(end, ConnectionError)

    _connected(run, scene)


@pytest.mark.parametrize("run", _RUNNERS)
def test_a_reset_is_heard_behind_what_came_before(run: Callable[[Any], None]) -> None:
    async def scene(transport: TcpTransport, protocol: _Protocol, peer: socket.socket) -> None:
        await asyncio.sleep(0.01)  # the loop watches
        peer.sendall(b"last words")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        await asyncio.wait_for(protocol.ended, 60)
        assert protocol.data == b"last words"
        assert isinstance(protocol.calls[-1], ConnectionResetError)

    _connected(run, scene)


@pytest.mark.parametrize("run", _RUNNERS)
def test_a_connection_is_refused_in_words(run: Callable[[Any], None]) -> None:
    port = closed_port()

    async def scene() -> None:
        arrival = Arrival()
        with pytest.raises(ConnectionRefusedError) as refused:
            await tcp.connect(lambda: _Protocol(arrival), "127.0.0.1", port, arrival)
        assert problem_of(refused.value) == "Connection refused"
        with pytest.raises(socket.gaierror) as unknown:
            await tcp.connect(lambda: _Protocol(arrival), "no-such-host.invalid", port, arrival)
        assert "Unknown error" not in problem_of(unknown.value)
        assert problem_of(unknown.value)

    run(scene())
