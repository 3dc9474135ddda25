"""TCP connections whose times are the kernel's and whose writes wait for nothing, as transports of asyncio.

An event loop's own transport has two delays that a measurement must not have. What is written leaves at the end of the
loop's turn, behind every other task that wants to run; and what arrives is seen when the loop comes to it, or when the
process gets the CPU back. Here ``write`` hands its bytes to the kernel before it returns, and each piece that is read comes
with the time at which the kernel received it (``SO_TIMESTAMPNS``, socket(7) and Linux's ``timestamping.rst``), however late it
is read.

For bytes that were received in several packets and read together, the kernel tells the time of the last. So where the process
was busy elsewhere while they came, a look is taken at what there is (``MSG_PEEK``), and then each piece is read by itself. That
helps as far as the kernel has not joined packets that waited (``tcp_try_coalesce``): then it knows only the last one's time.

Nor does the loop watch each socket. Those of one ``Arrival`` share an epoll (epoll(7)) that is one file to the loop, so that a
wake-up costs the loop one call, however many sockets have something. It is level-triggered: of a socket that was reset, it
tells until the reset has been read, where uvloop tells once.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from harness.host.clock import now_ns

_READ_BYTES = 65536
_LATE_NS = 1_000_000  # for so long, what came may lie unread
_MOST_PIECES = 16  # who is further behind than that needs to catch up
_PAUSE_NS = 20_000  # between two readings of clocks: a longer one means that somebody else had the core
_SO_TIMESTAMPNS = 35  # of Linux on all but two old machines; its control message has the same number
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)

ProtocolT = TypeVar("ProtocolT", bound="PiecesProtocol")


class PiecesProtocol(asyncio.Protocol):
    """A protocol that knows where to divide what it receives."""

    __slots__ = ()

    def piece_ends(self, data: bytes) -> Sequence[int]:
        """Where in ``data``, which comes next, pieces end that the peer may have sent at different times; ascending."""
        return ()


class Arrival:
    """When the bytes that are handed on just now had arrived: ``ns`` of ``now_ns``. It serves many connections of one loop.

    ``unstamped_reads`` counts the reads of which the kernel did not say it: there ``ns`` is when they were read.
    """

    __slots__ = ("_epoll", "_loop", "_transports", "_woke_ns", "ns", "unstamped_reads")

    def __init__(self) -> None:
        self.ns = 0
        self.unstamped_reads = 0
        self._transports: dict[int, TcpTransport | None] = {}  # None: somebody else reads it
        self._woke_ns = 0  # when the last batch was begun: what came later may have waited for it

    def is_now(self) -> None:
        """Of what is handed on next, nobody knows better than that it has arrived by now."""
        self.ns = now_ns()

    def watch(self, descriptor: int, transport: TcpTransport) -> None:
        """Let ``transport`` read, from the running loop, whenever there is something to read."""
        if not self._transports:
            self._loop = asyncio.get_running_loop()
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._read_all)
        self._epoll.register(descriptor, select.EPOLLIN)
        self._transports[descriptor] = transport

    def forget(self, descriptor: int) -> None:
        """Watch a descriptor no more, which is still open."""
        if self._transports.pop(descriptor) is not None:
            self._epoll.unregister(descriptor)
        if not self._transports:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def lend(self, descriptor: int) -> None:
        """Let somebody else read a descriptor."""
        self._epoll.unregister(descriptor)
        self._transports[descriptor] = None

    def take_back(self, descriptor: int, transport: TcpTransport) -> None:
        """Let ``transport`` read a descriptor again that was lent."""
        self._epoll.register(descriptor, select.EPOLLIN)
        self._transports[descriptor] = transport

    def _read_all(self) -> None:
        ready = self._epoll.poll(0)
        woke_ns, ahead_ns = _clocks()
        late = woke_ns - self._woke_ns > _LATE_NS and self._is_late(ready, woke_ns, ahead_ns)
        self._woke_ns = woke_ns
        for descriptor, _ in ready:
            transport = self._transports.get(descriptor)
            if transport is None:  # what one before it led to has closed it, or lent it
                continue
            if late:
                transport.read_pieces(woke_ns, ahead_ns)
            else:
                transport.read(woke_ns, ahead_ns)

    def _is_late(self, ready: Sequence[tuple[int, int]], woke_ns: int, ahead_ns: int) -> bool:
        """Whether what there is has lain unread: by the first that has something, and so has waited longest, as a rule."""
        for descriptor, _ in ready:
            transport = self._transports[descriptor]
            oldest_ns = None if transport is None else transport.oldest_ns(ahead_ns)
            if oldest_ns is not None:
                return woke_ns - oldest_ns > _LATE_NS
        return False


def _clocks() -> tuple[int, int]:
    """The time, and how far the wall clock is ahead of it; a pause between the readings makes arrivals late, never early."""
    for _ in range(3):
        before_ns, wall_ns, after_ns = now_ns(), time.time_ns(), now_ns()
        if after_ns - before_ns < _PAUSE_NS:
            break
    return after_ns, wall_ns - after_ns


def _stamped_ns(timespec: bytes) -> int:
    """When the kernel received what it tells this of, in ns of the wall clock."""
    seconds, nanoseconds = _TIMESPEC.unpack(timespec)
    return int(seconds * 1_000_000_000 + nanoseconds)


async def connect(factory: Callable[[], ProtocolT], host: str, port: int, arrival: Arrival) -> ProtocolT:
    """Connect to ``host:port``, trying each of its addresses; ``arrival`` is set before each call of ``data_received``.

    Raises OSError, that of the last address.
    """
    loop = asyncio.get_running_loop()
    problem: OSError = OSError(f"{host} has no address")
    for family, kind, number, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        end = socket.socket(family, kind, number)
        end.setblocking(False)
        try:
            await loop.sock_connect(end, address)
        except OSError as error:
            end.close()
            problem = error
        except BaseException:
            end.close()
            raise
        else:
            protocol = factory()
            TcpTransport(end, protocol, arrival)
            return protocol
    raise problem


def problem_of(error: OSError) -> str:
    """What went wrong, in words, whichever event loop or resolver said it."""
    if isinstance(error, ssl.SSLError | socket.gaierror) or not error.errno:
        return error.strerror or str(error) or type(error).__name__
    return os.strerror(error.errno)


def accept_from(listening: socket.socket, factory: Callable[[], PiecesProtocol], arrival: Arrival) -> None:
    """Make a transport of every connection that comes to ``listening``, until the running loop ends."""

    def on_readable() -> None:
        try:
            end, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        TcpTransport(end, factory(), arrival)

    listening.setblocking(False)
    asyncio.get_running_loop().add_reader(listening.fileno(), on_readable)


class TcpTransport(asyncio.Transport):
    """A transport of a connected socket, which it owns. Reading begins at once; ``protocol`` is told as asyncio promises.

    A write that fails ends nothing: what the peer had sent before is read first, and then the end, which has the reason.
    """

    def __init__(self, end: socket.socket, protocol: PiecesProtocol, arrival: Arrival) -> None:
        super().__init__()
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket = end
        self._fd = end.fileno()
        self._recvmsg = end.recvmsg
        self._peer = end.getpeername()
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._arrival = arrival
        self._emptied_ns = 0  # what comes arrived later: than the last read that left nothing behind, than what was read before
        self._unsent = bytearray()
        self._broken: OSError | None = None  # what a write found out
        self._is_closing = False
        self._is_lost = False
        self._is_watched = False
        self._is_lent = False
        protocol.connection_made(self)
        if not self._is_closing:
            arrival.watch(self._fd, self)
            self._is_watched = True

    # ---- what asyncio promises of a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """``socket`` and ``peername``."""
        return {"socket": self._socket, "peername": self._peer}.get(name, default)

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hand ``data`` to the kernel now; only what it does not take waits. Nothing where the connection is gone."""
        if self._is_closing or self._broken is not None:
            return
        written = 0 if self._unsent else self._send(data)
        if written < len(data) and self._broken is None:
            if not self._unsent:
                self._loop.add_writer(self._fd, self._on_writable)
                self._protocol.pause_writing()
            self._unsent += memoryview(data)[written:]

    def close(self) -> None:
        """Read no more; close when all that was written has been sent."""
        if not self._is_closing:
            self._is_closing = True
            self._read_no_more()
            if not self._unsent:
                self._loop.call_soon(self._lose, self._broken)

    def abort(self) -> None:
        self._lose_soon(None)

    # ---- where the protocol has somebody else who reads

    def lend(self) -> tuple[int, int]:
        """Read no more until it is given back: the descriptor, and a time (ns of ``now_ns``) after which what comes arrived."""
        self._is_lent = True
        self._arrival.lend(self._fd)
        return self._fd, self._emptied_ns

    def take_back(self, emptied_ns: int, error: OSError | None) -> None:
        """Read again: what comes arrived after ``emptied_ns``. Where the other one met with an error, there is nothing left."""
        self._is_lent = False
        self._emptied_ns = emptied_ns
        self._arrival.take_back(self._fd, self)
        if error is not None:
            self._lose_soon(self._broken or error)

    # ---- what the loop leads to

    def read(self, woke_ns: int, ahead_ns: int, most_bytes: int = _READ_BYTES) -> None:
        """Read once what there is. It was ``woke_ns`` when that was known, the wall clock ``ahead_ns`` ahead of ``now_ns``."""
        arrival = self._arrival
        try:
            data, ancillary, _, _ = self._recvmsg(most_bytes, _ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose_soon(self._broken or error)
            return
        if not data:
            arrival.is_now()
            self._on_end()
            return
        if ancillary:
            arrived_ns = _stamped_ns(ancillary[0][2]) - ahead_ns
            arrival.ns = arrived_ns if self._emptied_ns <= arrived_ns <= woke_ns else self._possible(arrived_ns)
        else:
            arrival.is_now()
            arrival.unstamped_reads += 1
        self._emptied_ns = max(self._emptied_ns, woke_ns if len(data) < most_bytes else arrival.ns)
        self._protocol.data_received(data)

    def read_pieces(self, woke_ns: int, ahead_ns: int) -> None:
        """Read what there is piece by piece, so that each has a time of its own; of too much, all at once."""
        try:
            there_is = self._socket.recv(_READ_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose_soon(self._broken or error)
            return
        ends = self._protocol.piece_ends(there_is)
        if not ends or ends[0] == len(there_is) or len(ends) > _MOST_PIECES:
            self.read(woke_ns, ahead_ns)
            return
        for start, end in pairwise((0, *ends)):
            if not self._is_closing and not self._is_lent:
                self.read(woke_ns, ahead_ns, end - start)

    def oldest_ns(self, ahead_ns: int) -> int | None:
        """When the first byte arrived that is yet to be read; None where there is none, or no telling."""
        try:
            _, ancillary, _, _ = self._recvmsg(1, _ANCILLARY_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError as error:  # a look takes the error out of the socket: the next read would see an orderly end
            self._broken = self._broken or error
            return None
        return _stamped_ns(ancillary[0][2]) - ahead_ns if ancillary else None

    def _possible(self, arrived_ns: int) -> int:
        """The time of arrival where the stamp is none, since somebody has set the wall clock; or it came while we read."""
        read_ns = now_ns()
        if arrived_ns > read_ns:
            self._arrival.unstamped_reads += 1
            return read_ns
        return max(self._emptied_ns, arrived_ns)

    def _on_end(self) -> None:
        if self._broken is not None:
            self._lose_soon(self._broken)
        elif self._protocol.eof_received():
            self._read_no_more()
        else:
            self.close()

    def _on_writable(self) -> None:
        del self._unsent[: self._send(self._unsent)]
        if self._broken is not None:
            self._unsent.clear()
        if not self._unsent:
            self._loop.remove_writer(self._fd)
            if self._is_closing:
                self._lose(self._broken)
            else:
                self._protocol.resume_writing()

    def _send(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._broken = error
            return 0

    # ---- its end

    def _lose_soon(self, error: OSError | None) -> None:
        """Send and read nothing more; the protocol hears of it in the loop's next turn."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._forget_descriptor()
        self._loop.call_soon(self._finish, error)

    def _lose(self, error: OSError | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._forget_descriptor()
            self._finish(error)

    def _read_no_more(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._arrival.forget(self._fd)

    def _forget_descriptor(self) -> None:
        self._read_no_more()
        if self._unsent:
            self._unsent.clear()
            self._loop.remove_writer(self._fd)
        self._socket.close()

    def _finish(self, error: OSError | None) -> None:
        self._arrival.is_now()
        self._protocol.connection_lost(error)
