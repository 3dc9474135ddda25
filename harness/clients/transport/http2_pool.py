"""A pool of HTTP/2 connections to one server: a request goes to the connection with the fewest open streams.

Where messages of several streams wait in one socket, the kernel joins them and has only the arrival time of the last
(``tcp.py``). So further connections are opened where each has many streams, as far as ``ConnectionLimits`` allow.

A server may limit the streams of a connection. When every connection is at its limit, requests wait, first in, first out,
while further connections are opened as far as ``ConnectionLimits`` allow. Each such wait is recorded, because it is time that
the client adds, and must be reported.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from harness.clients.protocol import AnswerEnd, ConnectionUsage
from harness.clients.transport import tcp
from harness.clients.transport.event_streams import EventStreams, is_compiled
from harness.clients.transport.followed_http2 import FollowedHttp2Protocol
from harness.clients.transport.http2 import Headers, Http2Protocol, TlsHttp2Protocol
from harness.clients.transport.http2_frames import LAST_STREAM_ID
from harness.clients.transport.tcp import Arrival
from harness.clients.transport.url import Origin
from harness.host.clock import now_ns

_ATTEMPT_TIMEOUT_S = 20.0
_RETRY_AFTER_S = 0.5  # after a failed attempt, while other connections work


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The initial and the largest number of connections.

    More are opened where each has more than ``streams_each``, or where the server's limit of streams requires it.
    """

    at_start: int = 8
    at_most: int = 64
    streams_each: int = 8


DEFAULT_LIMITS = ConnectionLimits()


class NoConnectionError(Exception):
    """No connection could be made; the text is the reason."""


class OutgoingRequest(ABC):
    """A request that waits for room on a connection, then a stream on it. Implements ``StreamEvents``.

    ``waited_ns`` is how long it waited for a connection or for room on one; None where it did not, or waits. ``written_ns`` is
    when the kernel was given its last byte, and ``head_ns`` when the first headers of its answer arrived (ns of ``now_ns``).
    """

    __slots__ = ("_body", "_header_block", "_place", "head_ns", "waited_ns", "written_ns")

    def __init__(self, header_block: bytes, body: bytes) -> None:
        self._header_block = header_block
        self._body = body
        self._place: tuple[Http2Protocol, int] | None = None
        self.waited_ns: int | None = None
        self.written_ns: int | None = None
        self.head_ns: int | None = None

    @property
    def end(self) -> AnswerEnd:
        """What is known of the answer so far."""
        return AnswerEnd(None, self.waited_ns, None, self.written_ns, self.head_ns)

    @property
    def is_sent(self) -> bool:
        return self._place is not None

    def send_on(self, protocol: Http2Protocol) -> None:
        self._place = protocol, protocol.open_stream(self._header_block, self._body, self)

    def cancel_stream(self) -> None:
        """Reset the stream, if it is open."""
        if self._place is not None:
            protocol, stream_id = self._place
            protocol.reset(stream_id)

    def on_written(self, given_ns: int) -> None:
        self.written_ns = given_ns

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether it has ended, by its deadline for instance: then it is not sent."""

    @abstractmethod
    def on_unsent(self, problem: str) -> None:
        """The request is not sent, because there is no connection."""

    @abstractmethod
    def on_data(self, data: bytes, start: int, stop: int) -> None: ...

    @property
    @abstractmethod
    def takes_messages(self) -> bool: ...

    @abstractmethod
    def on_messages(self, times_ns: Sequence[int], messages: Sequence[bytes]) -> None: ...

    @abstractmethod
    def on_headers(self, headers: Headers, ended: bool) -> None: ...

    @abstractmethod
    def on_reset(self, error_code: int) -> None: ...

    @abstractmethod
    def on_lost(self, reason: str) -> None: ...

    @abstractmethod
    def on_unprocessed(self, reason: str) -> None: ...

    @abstractmethod
    def on_violation(self, problem: str) -> None: ...


class _Wait(NamedTuple):
    """When a request began to wait, and from when on it waits for the server's limit; None while no connection is open."""

    began_ns: int
    for_room_ns: int | None


class Http2Connections:
    """The connections of one worker to ``origin``. A lost one is replaced when the next request is sent."""

    def __init__(self, origin: Origin, limits: ConnectionLimits, arrival: Arrival, max_header_bytes: int) -> None:
        self._origin = origin
        self._tls = _tls(origin)
        self._max_header_bytes = max_header_bytes
        self._arrival = arrival
        self._limits = limits
        self._at_start = limits.at_start
        self._streams: EventStreams | None = None
        self._attempt_timeout_s = _ATTEMPT_TIMEOUT_S
        self._usable: list[Http2Protocol] = []
        self._closing: set[Http2Protocol] = set()  # no further streams, perhaps some still open
        self._attempts: set[asyncio.Task[Http2Protocol]] = set()
        self._retry_at_s = 0.0
        self._waiting: OrderedDict[OutgoingRequest, _Wait] = OrderedDict()
        self._waits_ns: list[tuple[int, int]] = []  # waits for the server's limit: end, duration
        self._opened = 0

    @property
    def is_connected(self) -> bool:
        return bool(self._usable)

    async def open(self, timeout_s: float) -> None:
        """Open the initial connections; ``timeout_s`` applies to later attempts, too. Raises NoConnectionError."""
        self._attempt_timeout_s = timeout_s
        if is_compiled and self._tls is None:
            try:
                self._streams = EventStreams()
            except (OSError, MemoryError) as error:
                raise NoConnectionError(f"cannot start the reader thread: {error}") from error
        try:
            results = await asyncio.gather(*self._attempt(self._limits.at_start), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
        except BaseException:
            self.close()  # who gets no connections cannot close them
            raise

    async def prepare(self, in_flight: int) -> None:
        """Open as many connections as this many requests at once will have, or as many of them as the server accepts."""
        wanted = min(-(-in_flight // self._limits.streams_each), self._limits.at_most)
        await asyncio.gather(*self._attempt(max(0, wanted - len(self._usable))), return_exceptions=True)
        self._at_start = max(self._at_start, min(wanted, len(self._usable)))

    def send(self, request: OutgoingRequest) -> None:
        """Send a request now, or as soon as there is room for it."""
        protocol = None if self._waiting else self._least_loaded()
        if protocol is not None:
            request.send_on(protocol)
            if len(self._usable) < self._at_start or protocol.open_streams > self._limits.streams_each:
                self._open_missing()
        else:
            began_ns = now_ns()
            self._waiting[request] = _Wait(began_ns, began_ns if self._usable else None)
            self._open_missing()

    def drop(self, request: OutgoingRequest) -> None:
        """Remove a request from the queue, or reset its stream. No effect where it has ended."""
        if request.is_sent:
            request.cancel_stream()
        elif request in self._waiting:
            self._record_wait(self._waiting.pop(request))

    def usage(self, since_ns: int) -> ConnectionUsage:
        """Connections opened so far, and the waits for the server's limit that ended at ``since_ns`` or later."""
        waits_ns = [wait_ns for ended_ns, wait_ns in self._waits_ns if ended_ns >= since_ns]
        return ConnectionUsage(
            per_worker=self._at_start,
            opened=self._opened,
            limit_reached=len(waits_ns),
            total_wait_ns=sum(waits_ns),
            longest_wait_ns=max(waits_ns, default=None),
            unstamped_reads=self._arrival.unstamped_reads,
        )

    def close(self) -> None:
        for attempt in self._attempts:
            attempt.cancel()
        for protocol in (*self._usable, *self._closing):
            protocol.close()
        if self._streams is not None:
            self._streams.close()

    # ---- distribution of requests

    def _least_loaded(self) -> Http2Protocol | None:
        """The connection with the fewest open streams, of those that have room."""
        best, fewest = None, LAST_STREAM_ID
        for protocol in self._usable:  # of a hundred, for each request
            streams = protocol.open_streams
            if streams < fewest and protocol.has_room:
                best, fewest = protocol, streams
                if not streams:
                    break
        return best

    @property
    def _are_crowded(self) -> bool:
        return all(protocol.open_streams > self._limits.streams_each for protocol in self._usable)

    def _serve_waiting(self) -> None:
        while self._waiting and (protocol := self._least_loaded()) is not None:
            request, wait = self._waiting.popitem(last=False)
            self._record_wait(wait)
            if not request.is_over:
                request.waited_ns = now_ns() - wait.began_ns
                request.send_on(protocol)
        if self._waiting:
            self._open_missing()

    def _record_wait(self, wait: _Wait) -> None:
        if wait.for_room_ns is not None:
            ended_ns = now_ns()
            self._waits_ns.append((ended_ns, ended_ns - wait.for_room_ns))

    def _on_change(self, protocol: Http2Protocol) -> None:
        if not protocol.accepts and protocol in self._usable:
            self._usable.remove(protocol)
            self._closing.add(protocol)
        if protocol.is_lost:
            self._closing.discard(protocol)
        if self._waiting:
            self._serve_waiting()

    # ---- connecting

    def _open_missing(self) -> None:
        """Start opening as many connections as were lost, or as the waiting requests would fill; one where each has many
        streams."""
        existing = len(self._usable) + len(self._attempts)
        if not self._usable:  # one attempt shows whether the server answers
            self._attempt(0 if existing else 1)
        elif asyncio.get_running_loop().time() >= self._retry_at_s:
            lost = self._at_start - existing
            filled = -(-len(self._waiting) // max(1, self._usable[0].max_streams)) - len(self._attempts)
            room = self._limits.at_most - existing
            crowded = 0 if self._attempts or self._waiting or not room else int(self._are_crowded)
            self._attempt(min(max(lost, filled, crowded), room))

    def _attempt(self, count: int) -> list[asyncio.Task[Http2Protocol]]:
        attempts = [asyncio.create_task(self._connect()) for _ in range(count)]
        for attempt in attempts:
            self._attempts.add(attempt)
            attempt.add_done_callback(self._on_attempt_ended)
        return attempts

    async def _connect(self) -> Http2Protocol:
        """A connection whose server has sent its settings. Raises NoConnectionError."""
        try:
            async with asyncio.timeout(self._attempt_timeout_s):
                protocol = await self._open_one()
                try:
                    await protocol.ready
                except BaseException:
                    protocol.close()
                    raise
                if not protocol.accepts:
                    raise ConnectionError("the server closed the connection")
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:
                raise NoConnectionError(f"no connection within {self._attempt_timeout_s:g} s") from error
            raise NoConnectionError(f"cannot connect: {tcp.problem_of(error)}") from error
        self._usable.append(protocol)
        self._opened += 1
        return protocol

    async def _open_one(self) -> Http2Protocol:
        """A connection that is open, and encrypted where the origin is. Raises OSError."""
        host, port = self._origin.host, self._origin.port
        if self._tls is None:
            return await tcp.connect(self._make_protocol, host, port, self._arrival)
        make = partial(TlsHttp2Protocol, self._on_change, self._max_header_bytes, self._arrival)
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(make, host, port, ssl=self._tls, server_hostname=host)
        return protocol

    def _make_protocol(self) -> Http2Protocol:
        if self._streams is None:
            return Http2Protocol(self._on_change, self._max_header_bytes)
        return FollowedHttp2Protocol(self._on_change, self._max_header_bytes, self._streams, self._arrival)

    def _on_attempt_ended(self, attempt: asyncio.Task[Http2Protocol]) -> None:
        self._attempts.discard(attempt)
        if attempt.cancelled():
            return
        problem = attempt.exception()
        if problem is not None:
            self._retry_at_s = asyncio.get_running_loop().time() + _RETRY_AFTER_S
            if self._usable or self._attempts:
                return
            unsent, self._waiting = self._waiting, OrderedDict()
            for request, wait in unsent.items():
                self._record_wait(wait)
                request.on_unsent(str(problem))
        elif self._waiting:
            self._serve_waiting()
            for request, wait in list(self._waiting.items()):
                if wait.for_room_ns is None:
                    self._waiting[request] = wait._replace(for_room_ns=now_ns())


def _tls(origin: Origin) -> ssl.SSLContext | None:
    """The context of connections to ``origin``, which must agree on HTTP/2 (RFC 9113, section 3.2)."""
    context = origin.tls()
    if context is not None:
        context.set_alpn_protocols(["h2"])
    return context
