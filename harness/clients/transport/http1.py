"""One HTTP/1.1 connection of a client (RFC 9112), for the hot path: one request at a time goes out as ready bytes.

Heads, lengths and chunks are read by llhttp (through ``httptools``). But of a stream of events nearly every piece is one whole
event in one whole chunk. Where there is ``event_streams.py``, such pieces are read there, beside the parser, which never hears
of them: that costs less than half of reading each one here.
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

from harness.clients.transport.event_streams import EventStreams, Followed
from harness.clients.transport.tcp import Arrival, PiecesProtocol, TcpTransport
from harness.host.clock import now_ns

OnEvents = Callable[[Sequence[int], Sequence[bytes]], None]
"""Takes the data of events, with when each arrived (ns of ``now_ns``)."""

_MOST_IN_VAIN = 3  # a server whose events look otherwise is best read here

_PIECE_END = re.compile(rb"\n\r?\n(?:\r\n)?")


class Body(Protocol):
    """Takes the body of an answer."""

    def feed(self, part: bytes) -> None:
        """Take the next bytes."""
        ...

    def taker_of_events(self) -> OnEvents | None:
        """Who takes whole events, where it is a stream of events and the next byte begins one; else None."""
        ...

    def end(self) -> None:
        """The body is whole."""
        ...


class Answer(Protocol):
    """What happens to one request; called while bytes are being read, so each must return soon. All but ``on_head`` end it."""

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> Body:
        """The head is complete (names in lower case); what is returned takes the body."""
        ...

    def on_end(self) -> None:
        """The answer is whole."""
        ...

    def on_lost(self, problem: str, unprocessed: bool) -> None:
        """The connection ended first. ``unprocessed``: the server never had the whole request, so it may be sent again."""
        ...

    def on_garbage(self, problem: str) -> None:
        """What came is not HTTP."""
        ...

    def on_fault(self, error: BaseException) -> None:
        """What the parts were handed to raised ``error``."""
        ...


class Pool(Protocol):
    """Who keeps connections."""

    def on_open(self, connection: HttpConnection) -> None: ...

    def on_idle(self, connection: HttpConnection) -> None:
        """An answer is whole, and the connection can take the next request."""
        ...

    def on_closed(self, connection: HttpConnection) -> None: ...


class HttpConnection(PiecesProtocol):
    """A connection, and the request that is on it, if any. ``arrival`` says when what is received had arrived.

    ``streams``, where there are any, read streams of events; the transport must be a ``TcpTransport`` then.
    """

    __slots__ = (
        "_answer", "_arrival", "_begun", "_between_chunks", "_body", "_feed", "_followed", "_headers", "_idle_since_ns",
        "_in_vain", "_on_events", "_parser", "_poll", "_pool", "_stays", "_streams", "_transport", "_until_close",
    )  # fmt: skip

    def __init__(self, pool: Pool, arrival: Arrival, streams: EventStreams | None = None) -> None:
        self._pool = pool
        self._arrival = arrival
        self._streams = streams
        self._followed: int | None = None  # while they read: the descriptor,
        self._on_events: OnEvents | None = None  # and who takes what they have read
        self._answer: Answer | None = None
        self._begun = False  # whether anything of the answer has come
        self._until_close = False  # whether the end of the connection is the end of the body
        self._stays = False  # whether the server keeps the connection open behind this answer
        self._headers: dict[bytes, bytes] = {}
        self._body: Body | None = None
        self._between_chunks = False
        self._in_vain = 0  # how often in a row they have found nothing but what is to be parsed
        self._idle_since_ns = now_ns()
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data

    @property
    def peer_host(self) -> str:
        """The address of the other end."""
        return str(self._transport.get_extra_info("peername")[0])

    def send(self, request: bytes, answer: Answer) -> None:
        """Send one whole request; ``answer`` hears what comes of it."""
        if self._transport.is_closing():
            answer.on_lost("the server closed the connection before the request was sent", True)
            return
        self._begun = self._until_close = False
        self._answer = answer
        self._transport.write(request)

    def is_fresh(self, longest_idle_ns: int) -> bool:
        """Whether a request may be sent here: not idle too long, and nothing came meanwhile, an end included.

        The kernel is asked, too: an end that came just now is known to it before the event loop reads it.
        """
        return now_ns() - self._idle_since_ns <= longest_idle_ns and not self._transport.is_closing() and not self._poll.poll(0)

    def abandon(self, answer: Answer) -> None:
        """Break the exchange off, if it still is on its way: the connection goes with it, which tells the server."""
        if self._answer is answer:
            self._release()
            self._end()

    def close(self) -> None:
        self._release()
        self._transport.abort()

    # ---- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("TcpTransport", transport)  # or one that does as much as is asked of it
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLRDHUP)
        self._pool.on_open(self)

    def piece_ends(self, data: bytes) -> Sequence[int]:
        """Behind the head, and behind each event: an empty line, and the line end that closes a chunk."""
        return [found.end() for found in _PIECE_END.finditer(data)]

    def data_received(self, data: bytes) -> None:
        self._parse(data)
        if self._streams is not None:
            self._follow(self._streams, data)

    def _parse(self, data: bytes) -> None:
        try:
            self._feed(data)
        except httptools.HttpParserCallbackError as error:
            self._fail(error.__context__ or error)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            answer = self._end()
            if answer is not None:
                answer.on_garbage(f"what the server sends is not HTTP as it was asked for: {error}")

    # ---- where others read

    def _follow(self, streams: EventStreams, latest: bytes) -> None:
        """Let them read where the next byte begins both a chunk and an event; ``latest`` is what was parsed last."""
        if not self._between_chunks or not latest.endswith(b"\n") or self._body is None or self._in_vain >= _MOST_IN_VAIN:
            return
        self._on_events = self._body.taker_of_events()
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
        """Hand on what others have read, and read here again; None where none did."""
        if self._streams is None or self._followed is None:
            return None
        read = self._streams.release(self._followed)
        self._followed = None
        self._transport.take_back(read.emptied_ns, OSError(read.errno, os.strerror(read.errno)) if read.errno else None)
        self._arrival.unstamped_reads += read.unstamped_reads
        on_events, self._on_events = self._on_events, None
        if read.events and on_events is not None:
            try:
                on_events(read.times_ns, read.events)
            except Exception as error:
                self._fail(error)
                return read
        self._in_vain = 0 if read.events else self._in_vain + 1
        if read.rest:
            self._arrival.ns = read.rest_ns
            self._parse(read.rest)
        return read

    # ---- the end

    def eof_received(self) -> None:
        """The server has sent all that it will, so an exchange in progress ends here, whatever is left to write."""
        unprocessed = self._answer is not None and not self._begun and _unreceived_bytes(self._transport) > 0
        if self._until_close:
            try:
                self._end_body()
            except Exception as error:
                self._fail(error)
        answer = self._end()
        if answer is None:
            return
        if self._until_close:
            _tell_end(answer)
        else:
            answer.on_lost("the server closed the connection", unprocessed)

    def connection_lost(self, error: Exception | None) -> None:
        answer = self._end()
        if answer is not None:
            answer.on_lost(f"the connection was lost: {error}" if error else "the server closed the connection", False)
        del self._parser, self._feed  # they know this object; else only the garbage collector could free it
        self._pool.on_closed(self)

    def _end_body(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.end()

    def _fail(self, error: BaseException) -> None:
        answer = self._end()
        if answer is not None:
            answer.on_fault(error)

    def _end(self) -> Answer | None:
        """Nothing more is to be heard on this connection: close it; returns who must be told."""
        self.close()
        self._body = None
        answer, self._answer = self._answer, None
        return answer

    # ---- what the parser calls

    def on_message_begin(self) -> None:
        self._begun = True
        self._headers = {}
        if self._answer is None:  # nobody asked
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._stays = self._parser.should_keep_alive()
        self._body = None
        self._in_vain = 0
        self._between_chunks = self._headers.get(b"transfer-encoding", b"").lower() == b"chunked"
        if self._answer is not None and status >= 200:
            framed = status in (204, 304) or b"content-length" in self._headers or b"transfer-encoding" in self._headers
            self._until_close = not framed
            self._body = self._answer.on_head(status, self._headers)

    def on_body(self, part: bytes) -> None:
        if self._body is not None:  # else nobody waits for it
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
            self._pool.on_idle(self)
        else:
            self.close()
        _tell_end(answer)


def _tell_end(answer: Answer) -> None:
    """The answer is whole. It has been let go of before, so nobody else would tell it what goes wrong with its end."""
    try:
        answer.on_end()
    except Exception as error:
        answer.on_fault(error)


class TlsConnection(HttpConnection):
    """A connection over TLS, by the event loop's transport: what it hands on arrived, at the latest, now."""

    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        self._arrival.is_now()
        self._arrival.unstamped_reads += 1
        super().data_received(data)

    def eof_received(self) -> None:
        self._arrival.is_now()
        super().eof_received()


def _unreceived_bytes(transport: asyncio.Transport) -> int:
    """How many bytes of what was written the server's kernel had not received when it sent what came last (Linux's SIOCOUTQ).

    Every segment acknowledges all that was received before it (RFC 9293, section 3.4). So where this is above 0 when the
    end of the stream is read, the server ended the stream before the request had come to it as a whole.
    """
    unacknowledged = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    return int(struct.unpack("i", unacknowledged)[0]) + transport.get_write_buffer_size()
