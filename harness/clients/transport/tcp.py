"""TCP transports for asyncio with the kernel's arrival times and immediate writes.

An event loop's own transport has two delays that a measurement must not have. Written bytes leave at the end of the loop's
iteration, after every other ready task; and received bytes are noticed when the loop reads them, or when the process gets
the CPU back. Here ``write`` hands its bytes to the kernel before it returns, and each piece that is read has the time at which
the kernel received it (``SO_TIMESTAMPNS``, socket(7) and Linux's ``timestamping.rst``), however late it is read.

For bytes that were received in several packets and read together, the kernel returns the time of the last. So where the
process was busy while they came, the bytes are peeked at (``MSG_PEEK``), and then each piece is read by itself. That helps as
far as the kernel has not joined waiting packets (``tcp_try_coalesce``): then only the last one's time exists.

The loop does not watch each socket. The sockets of one ``Arrival`` share an epoll (epoll(7)), which is one file to the loop, so
that a wake-up costs the loop one call, however many sockets are readable. It is level-triggered: a socket that was reset is
reported until the reset has been read; uvloop would report it once.
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

from harness.clients.transport.certificates import https_problem, unencrypted_problem
from harness.host.clock import now_ns

_READ_BYTES = 65536
_LATE_NS = 1_000_000  # bytes may be unread for so long before each piece is read by itself
_MAX_PIECES = 16  # with more, everything is read at once, to catch up
_PAUSE_NS = 20_000  # between two readings of clocks: a longer one means that the thread was preempted
_SO_TIMESTAMPNS = 35  # of Linux on all but two old machines; its control message has the same number
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)

ProtocolT = TypeVar("ProtocolT", bound="PiecesProtocol")


class PiecesProtocol(asyncio.Protocol):
    """A protocol that can divide received bytes into pieces."""

    __slots__ = ()

    def piece_ends(self, data: bytes) -> Sequence[int]:
        """The ends of pieces in ``data``, the next bytes, that the peer may have sent at different times; ascending."""
        return ()


class Arrival:
    """The arrival time of the bytes that are passed on at present: ``ns`` of ``now_ns``. Shared by the connections of a loop.

    ``unstamped_reads`` counts the reads without an arrival time from the kernel: there ``ns`` is the time of the read.
    """

    __slots__ = ("_epoll", "_loop", "_transports", "_woke_ns", "ns", "unstamped_reads")

    def __init__(self) -> None:
        self.ns = 0
        self.unstamped_reads = 0
        self._transports: dict[int, TcpTransport | None] = {}  # None: lent to another reader
        self._woke_ns = 0  # the start of the last batch: later bytes may have waited for it

    def set_now(self) -> None:
        """Set the time to now, for bytes without a better one."""
        self.ns = now_ns()

    def watch(self, descriptor: int, transport: TcpTransport) -> None:
        """Let ``transport`` read, in the running loop, whenever its socket is readable."""
        if not self._transports:
            self._loop = asyncio.get_running_loop()
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._read_all)
        self._epoll.register(descriptor, select.EPOLLIN)
        self._transports[descriptor] = transport

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor, which is still open."""
        if self._transports.pop(descriptor) is not None:
            self._epoll.unregister(descriptor)
        if not self._transports:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def lend(self, descriptor: int) -> None:
        """Stop reading a descriptor until ``take_back``."""
        self._epoll.unregister(descriptor)
        self._transports[descriptor] = None

    def take_back(self, descriptor: int, transport: TcpTransport) -> None:
        """Let ``transport`` read a lent descriptor again."""
        self._epoll.register(descriptor, select.EPOLLIN)
        self._transports[descriptor] = transport

    def _read_all(self) -> None:
        ready = self._epoll.poll(0)
        woke_ns, ahead_ns = _clocks()
        late = woke_ns - self._woke_ns > _LATE_NS and self._is_late(ready, woke_ns, ahead_ns)
        self._woke_ns = woke_ns
        for descriptor, _ in ready:
            transport = self._transports.get(descriptor)
            if transport is None:  # closed or lent by the callback of an earlier one
                continue
            if late:
                transport.read_pieces(woke_ns, ahead_ns)
            else:
                transport.read(woke_ns, ahead_ns)

    def _is_late(self, ready: Sequence[tuple[int, int]], woke_ns: int, ahead_ns: int) -> bool:
        """Whether bytes have been unread for long: by the first readable socket, which usually has waited longest."""
        for descriptor, _ in ready:
            transport = self._transports[descriptor]
            oldest_ns = None if transport is None else transport.oldest_ns(ahead_ns)
            if oldest_ns is not None:
                return woke_ns - oldest_ns > _LATE_NS
        return False


def _clocks() -> tuple[int, int]:
    """The time, and the wall clock's offset to it; a pause between the readings makes arrivals late, never early."""
    for _ in range(3):
        before_ns, wall_ns, after_ns = now_ns(), time.time_ns(), now_ns()
        if after_ns - before_ns < _PAUSE_NS:
            break
    return after_ns, wall_ns - after_ns


def _stamped_ns(timespec: bytes) -> int:
    """The kernel's time stamp in ns of the wall clock."""
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
    """The text of an error, in the same form from any event loop or resolver."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return https_problem(error)
    if isinstance(error, ssl.SSLError) and (plain := unencrypted_problem(error.reason or "")) is not None:
        return plain
    if isinstance(error, ssl.SSLError | socket.gaierror) or not error.errno:
        return error.strerror or str(error) or type(error).__name__
    return os.strerror(error.errno)


def accept_from(listening: socket.socket, factory: Callable[[], PiecesProtocol], arrival: Arrival) -> None:
    """Make a transport of every connection to ``listening``, until the running loop ends."""

    def on_readable() -> None:
        try:
            end, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        TcpTransport(end, factory(), arrival)

    listening.setblocking(False)
    asyncio.get_running_loop().add_reader(listening.fileno(), on_readable)


class TcpTransport(asyncio.Transport):
    """A transport of a connected socket, which it owns. Reading begins at once, with the callbacks of asyncio's protocols.

    A failed write does not end the connection: bytes from the peer are read first, and then the end, with the write's error.
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
        self._emptied_ns = 0  # unread bytes arrived later: the last read that left none behind
        self._unsent = bytearray()
        self._broken: OSError | None = None  # the error of a write
        self._is_closing = False
        self._is_lost = False
        self._is_watched = False
        self._is_lent = False
        protocol.connection_made(self)
        if not self._is_closing:
            arrival.watch(self._fd, self)
            self._is_watched = True

    # ---- asyncio's interface of a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """``socket`` and ``peername``."""
        return {"socket": self._socket, "peername": self._peer}.get(name, default)

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hand ``data`` to the kernel now; bytes that it does not take wait. No effect where the connection is lost."""
        if self._is_closing or self._broken is not None:
            return
        written = 0 if self._unsent else self._send(data)
        if written < len(data) and self._broken is None:
            if not self._unsent:
                self._loop.add_writer(self._fd, self._on_writable)
                self._protocol.pause_writing()
            self._unsent += memoryview(data)[written:]

    def close(self) -> None:
        """Stop reading; close when all written bytes have been sent."""
        if not self._is_closing:
            self._is_closing = True
            self._stop_reading()
            if not self._unsent:
                self._loop.call_soon(self._lose, self._broken)

    def abort(self) -> None:
        self._lose_soon(None)

    # ---- lending the socket to another reader

    def lend(self) -> tuple[int, int]:
        """Stop reading until ``take_back``; returns the descriptor, and a time (ns) after which unread bytes arrived."""
        self._is_lent = True
        self._arrival.lend(self._fd)
        return self._fd, self._emptied_ns

    def take_back(self, emptied_ns: int, error: OSError | None) -> None:
        """Read again: unread bytes arrived after ``emptied_ns``. ``error`` of the other reader ends the connection."""
        self._is_lent = False
        self._emptied_ns = emptied_ns
        self._arrival.take_back(self._fd, self)
        if error is not None:
            self._lose_soon(self._broken or error)

    # ---- called by the loop

    def read(self, woke_ns: int, ahead_ns: int, most_bytes: int = _READ_BYTES) -> None:
        """Read once. The loop noticed the bytes at ``woke_ns``; the wall clock is ``ahead_ns`` ahead of ``now_ns``."""
        arrival = self._arrival
        try:
            data, ancillary, _, _ = self._recvmsg(most_bytes, _ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose_soon(self._broken or error)
            return
        if not data:
            arrival.set_now()
            self._on_end()
            return
        if ancillary:
            arrived_ns = _stamped_ns(ancillary[0][2]) - ahead_ns
            arrival.ns = arrived_ns if self._emptied_ns <= arrived_ns <= woke_ns else self._plausible_ns(arrived_ns)
        else:
            arrival.set_now()
            arrival.unstamped_reads += 1
        self._emptied_ns = max(self._emptied_ns, arrival.ns)  # later bytes are no earlier, by whatever reading of the clocks
        if len(data) < most_bytes:
            self._emptied_ns = max(self._emptied_ns, woke_ns)
        self._protocol.data_received(data)

    def read_pieces(self, woke_ns: int, ahead_ns: int) -> None:
        """Read piece by piece, so that each has a time of its own; where there are too many, all at once."""
        try:
            available = self._socket.recv(_READ_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose_soon(self._broken or error)
            return
        ends = self._protocol.piece_ends(available)
        if not ends or ends[0] == len(available) or len(ends) > _MAX_PIECES:
            self.read(woke_ns, ahead_ns)
            return
        for start, end in pairwise((0, *ends)):
            if not self._is_closing and not self._is_lent:
                self.read(woke_ns, ahead_ns, end - start)

    def oldest_ns(self, ahead_ns: int) -> int | None:
        """The arrival time of the first unread byte; None where there is none, or no time stamp."""
        try:
            _, ancillary, _, _ = self._recvmsg(1, _ANCILLARY_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError as error:  # MSG_PEEK clears the socket's error: the next read would return an orderly end
            self._broken = self._broken or error
            return None
        return _stamped_ns(ancillary[0][2]) - ahead_ns if ancillary else None

    def _plausible_ns(self, arrived_ns: int) -> int:
        """The arrival time where the stamp is out of range: the wall clock was set, or the bytes came during the read."""
        read_ns = now_ns()
        if arrived_ns > read_ns:
            self._arrival.unstamped_reads += 1
            return read_ns
        return max(self._emptied_ns, arrived_ns)

    def _on_end(self) -> None:
        if self._broken is not None:
            self._lose_soon(self._broken)
        elif self._protocol.eof_received():
            self._stop_reading()
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
        """Stop sending and reading; ``connection_lost`` is called in the loop's next iteration."""
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

    def _stop_reading(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._arrival.forget(self._fd)

    def _forget_descriptor(self) -> None:
        self._stop_reading()
        if self._unsent:
            self._unsent.clear()
            self._loop.remove_writer(self._fd)
        self._socket.close()

    def _finish(self, error: OSError | None) -> None:
        self._arrival.set_now()
        self._protocol.connection_lost(error)
