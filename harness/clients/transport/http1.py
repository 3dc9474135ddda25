"""A client's HTTP/1.1 connection (RFC 9112), for the hot path: sends one encoded request at a time.

Heads, lengths and chunks are parsed by llhttp (through ``httptools``). But nearly every piece of an event stream is one whole
event in one whole chunk. Where ``event_streams.py`` is available, such pieces are read there, past the parser: that costs
less than half of reading each one here.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import select
import struct
import termios
from collections.abc import Callable, Sequence
from typing import Protocol, cast

import httptools

from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS, AnswerLimits, answer_too_long, header_too_long
from harness.clients.transport.event_streams import EventStreams, Followed
from harness.clients.transport.tcp import Arrival, PiecesProtocol, TcpTransport
from harness.host.clock import now_ns

OnEvents = Callable[[Sequence[int], Sequence[bytes]], None]
"""Called with the arrival times (ns of ``now_ns``) and the data of events."""

_MAX_EMPTY_RELEASES = 3  # a server whose events have another form is read faster here

_PIECE_END = re.compile(rb"\n\r?\n(?:\r\n)?")


class Body(Protocol):
    """The receiver of an answer's body."""

    def feed(self, part: bytes) -> None:
        """Receive the next bytes."""
        ...

    def event_sink(self) -> OnEvents | None:
        """The receiver of whole events, where this is an event stream and the next byte begins an event; else None."""
        ...

    def end(self) -> None:
        """The body is complete."""
        ...


class Answer(Protocol):
    """The callbacks of one request, called while bytes are written and read, so each must return soon. All end it but
    ``on_written`` and ``on_head``.
    """

    def on_written(self, given_ns: int) -> None:
        """The kernel was given the last byte of the request at ``given_ns``: before that call, in which the process may lose
        its core to the server. Not called over TLS, where the event loop's transport writes when it has time.
        """
        ...

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> Body:
        """The head is complete (names in lower case); returns the receiver of the body."""
        ...

    def on_end(self) -> None:
        """The answer is complete."""
        ...

    def on_lost(self, problem: str, unprocessed: bool) -> None:
        """The connection ended first. ``unprocessed``: the server never received the whole request, so it may be repeated."""
        ...

    def on_garbage(self, problem: str) -> None:
        """The received bytes are not HTTP."""
        ...

    def on_fault(self, error: BaseException) -> None:
        """A receiver of the answer raised ``error``."""
        ...


class Pool(Protocol):
    """The owner of connections."""

    def on_open(self, connection: HttpConnection) -> None: ...

    def on_idle(self, connection: HttpConnection) -> None:
        """An answer is complete, and the connection is free for the next request."""
        ...

    def on_closed(self, connection: HttpConnection) -> None: ...


class HttpConnection(PiecesProtocol):
    """A connection, and its request in progress, if any. ``arrival`` has the arrival time of received bytes.

    ``streams``, where given, reads event streams; the transport must be a ``TcpTransport`` then. An answer that exceeds
    ``limits`` ends with an AnswerTooLongError.
    """

    __slots__ = (
        "_answer",
        "_answer_begun",
        "_arrival",
        "_bare_bytes",
        "_between_chunks",
        "_body",
        "_empty_releases",
        "_feed",
        "_followed",
        "_headers",
        "_idle_since_ns",
        "_is_kept",
        "_limits",
        "_on_events",
        "_parser",
        "_poll",
        "_pool",
        "_room_bytes",
        "_stays",
        "_streams",
        "_transport",
        "_until_close",
    )  # fmt: skip

    def __init__(
        self,
        pool: Pool,
        arrival: Arrival,
        streams: EventStreams | None = None,
        limits: AnswerLimits = DEFAULT_ANSWER_LIMITS,
    ) -> None:
        self._pool = pool
        self._arrival = arrival
        self._streams = streams
        self._limits = limits
        self._room_bytes = limits.max_answer_bytes  # that the answer may still have
        self._bare_bytes = 0  # received in a row without a body
        self._followed: int | None = None  # the descriptor that ``streams`` reads,
        self._on_events: OnEvents | None = None  # and the receiver of its events
        self._answer: Answer | None = None
        self._answer_begun = False  # whether a part of the answer has been received
        self._is_kept = False  # whether the server kept it open after an answer
        self._until_close = False  # whether the end of the connection is the end of the body
        self._stays = False  # whether the server keeps the connection open after this answer
        self._headers: dict[bytes, bytes] = {}
        self._body: Body | None = None
        self._between_chunks = False
        self._empty_releases = 0  # releases of ``streams`` in a row without an event
        self._idle_since_ns = now_ns()
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data

    @property
    def peer_host(self) -> str:
        """The address of the other end."""
        return str(self._transport.get_extra_info("peername")[0])

    def send(self, request: bytes, answer: Answer) -> None:
        """Send one whole request; ``answer`` receives its callbacks."""
        if self._transport.is_closing():
            answer.on_lost("the server closed the connection before the request was sent", True)
            return
        self._answer_begun = self._until_close = False
        self._room_bytes, self._bare_bytes = self._limits.max_answer_bytes, 0
        self._answer = answer
        given_ns = now_ns()
        self._transport.write(request)
        self._has_sent(answer, given_ns)

    def _has_sent(self, answer: Answer, given_ns: int) -> None:
        if not self._transport.get_write_buffer_size():
            answer.on_written(given_ns)

    def is_fresh(self, longest_idle_ns: int) -> bool:
        """Whether a request may be sent here: idle for a short time only, and nothing received meanwhile, an end included.

        The socket is polled, too: the kernel has an end that came just now before the event loop reads it.
        """
        return now_ns() - self._idle_since_ns <= longest_idle_ns and not self._transport.is_closing() and not self._poll.poll(0)

    def abandon(self, answer: Answer) -> None:
        """Cancel the exchange, if it is in progress, by closing the connection."""
        if self._answer is answer:
            self._release()
            self._end()

    def close(self) -> None:
        self._release()
        self._transport.abort()

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("TcpTransport", transport)  # or, over TLS, the loop's
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLRDHUP)
        self._pool.on_open(self)

    def resume_writing(self) -> None:
        """The kernel has taken what it did not take at once."""
        if self._answer is not None:
            self._answer.on_written(now_ns())

    def piece_ends(self, data: bytes) -> Sequence[int]:
        """The ends of the head and of each event: an empty line, and the line end that closes a chunk."""
        return [found.end() for found in _PIECE_END.finditer(data)]

    def data_received(self, data: bytes) -> None:
        self._parse(data)
        if self._streams is not None:
            self._follow(self._streams, data)

    def _parse(self, data: bytes) -> None:
        self._bare_bytes += len(data)  # which a body sets to 0
        self._room_bytes -= len(data)
        try:
            self._feed(data)
        except httptools.HttpParserCallbackError as error:
            self._fail(error.__context__ or error)
        except httptools.HttpParserUpgrade:  # whose text is an offset
            self._fail_as_garbage("it switches to another protocol (HTTP status 101)")
        except httptools.HttpParserError as error:
            self._fail_as_garbage(str(error))
        if self._bare_bytes > self._limits.max_header_bytes:
            self._fail(header_too_long(self._limits))
        elif self._room_bytes < 0:
            self._fail(answer_too_long(self._limits))

    # ---- reading by ``streams``

    def _follow(self, streams: EventStreams, latest: bytes) -> None:
        """Let ``streams`` read, where the next byte begins both a chunk and an event; ``latest`` are the last parsed bytes."""
        if (
            not self._between_chunks
            or not latest.endswith(b"\n")
            or self._body is None
            or self._empty_releases >= _MAX_EMPTY_RELEASES
        ):
            return
        self._on_events = self._body.event_sink()
        if self._on_events is None:
            return
        descriptor, emptied_ns = self._transport.lend()
        try:
            streams.follow(descriptor, emptied_ns, self)
        except (OSError, MemoryError):  # then it is read here
            self._transport.take_back(emptied_ns, None)
        else:
            self._followed = descriptor

    def on_given_back(self) -> None:
        read = self._release()
        if read is not None and self._streams is not None and not read.is_over and not self._transport.is_closing():
            self._follow(self._streams, read.rest or b"\n")

    def _release(self) -> Followed | None:
        """Pass on the bytes that ``streams`` has read, and read here again; None where it does not read."""
        if self._streams is None or self._followed is None:
            return None
        read = self._streams.release(self._followed)
        self._followed = None
        self._transport.take_back(read.emptied_ns, OSError(read.errno, os.strerror(read.errno)) if read.errno else None)
        self._arrival.unstamped_reads += read.unstamped_reads
        on_events, self._on_events = self._on_events, None
        if read.events and on_events is not None:
            self._room_bytes -= sum(map(len, read.events))
            try:
                on_events(read.times_ns, read.events)
                if self._room_bytes < 0:
                    raise answer_too_long(self._limits)
            except Exception as error:
                self._fail(error)
                return read
        self._empty_releases = 0 if read.events else self._empty_releases + 1
        if read.rest:
            self._arrival.ns = read.rest_ns
            self._parse(read.rest)
        return read

    # ---- the end

    def eof_received(self) -> None:
        """The server has ended its stream, so an exchange in progress ends here, whatever is left to write."""
        unprocessed = self._answer is not None and not self._answer_begun and _unreceived_bytes(self._transport) > 0
        if self._until_close:
            try:
                self._end_body()
            except Exception as error:
                self._fail(error)
        answer = self._end()
        if answer is None:
            return
        if self._until_close:
            _finish_answer(answer)
        else:
            answer.on_lost(self._end_text(None), unprocessed)

    def connection_lost(self, error: Exception | None) -> None:
        answer = self._end()
        if answer is not None:
            answer.on_lost(self._end_text(error), False)
        del self._parser, self._feed  # they refer to this object: a cycle, which only the garbage collector could free
        self._pool.on_closed(self)

    def _end_text(self, error: Exception | None) -> str:
        """How the connection ended. A server may not have read the request where it ends a connection that it had kept."""
        when = "" if self._answer_begun else " before an answer began"
        if when and self._is_kept:
            when = f", kept from an earlier request,{when}"
        return f"the connection was lost{when}: {error}" if error else f"the server closed the connection{when}"

    def _end_body(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.end()

    def _fail_as_garbage(self, problem: str) -> None:
        answer = self._end()
        if answer is not None:
            answer.on_garbage(f"the server's answer is not HTTP as requested: {problem}")

    def _fail(self, error: BaseException) -> None:
        answer = self._end()
        if answer is not None:
            answer.on_fault(error)

    def _end(self) -> Answer | None:
        """Close the connection; returns the answer in progress, if any, which must be ended."""
        self.close()
        self._body = None
        answer, self._answer = self._answer, None
        return answer

    # ---- called by the parser

    def on_message_begin(self) -> None:
        self._answer_begun = True
        self._headers = {}
        if self._answer is None:  # no request is in progress
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._stays = self._parser.should_keep_alive()
        self._body = None
        self._empty_releases = 0
        codings = self._headers.get(b"transfer-encoding")
        self._between_chunks = codings is not None and codings.lower().rpartition(b",")[2].strip() == b"chunked"
        if self._answer is not None and status >= 200:
            has_length = codings is None and b"content-length" in self._headers
            self._until_close = not (status in (204, 304) or has_length or self._between_chunks)  # RFC 9112, section 6.3
            self._body = self._answer.on_head(status, self._headers)

    def on_body(self, part: bytes) -> None:
        self._bare_bytes = 0
        if self._body is not None:  # else no request is in progress
            self._body.feed(part)

    def on_chunk_header(self) -> None:
        self._between_chunks = False

    def on_chunk_complete(self) -> None:
        self._between_chunks = True

    def on_message_complete(self) -> None:
        answer = self._answer
        if answer is None or self._parser.get_status_code() < 200:
            return
        self._end_body()
        self._answer = None
        if self._stays and not self._transport.get_write_buffer_size():
            self._idle_since_ns = now_ns()
            self._is_kept = True
            self._pool.on_idle(self)
        else:
            self.close()
        _finish_answer(answer)


def _finish_answer(answer: Answer) -> None:
    """Call ``on_end``. The connection has released the answer already, so an error is passed to it here."""
    try:
        answer.on_end()
    except Exception as error:
        answer.on_fault(error)


class TlsConnection(HttpConnection):
    """A connection over TLS, by the event loop's transport: arrival times are those of reading."""

    __slots__ = ()

    def _has_sent(self, answer: Answer, given_ns: int) -> None:
        """Nothing: when the kernel has the request is unknown."""

    def resume_writing(self) -> None:
        """Nothing, too: the transport still has a part of the request."""

    def data_received(self, data: bytes) -> None:
        self._arrival.set_now()
        self._arrival.unstamped_reads += 1
        super().data_received(data)

    def eof_received(self) -> None:
        self._arrival.set_now()
        super().eof_received()


def _unreceived_bytes(transport: asyncio.Transport) -> int:
    """The written bytes that the server's kernel had not received when it sent its last segment (Linux's SIOCOUTQ).

    Every segment acknowledges all bytes received before it (RFC 9293, section 3.4). So where this is above 0 when the end
    of the stream is read, the server ended the stream before it had received the whole request.
    """
    unacknowledged = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    return int(struct.unpack("i", unacknowledged)[0]) + transport.get_write_buffer_size()
