"""Exchanges over HTTP/1.1: a pool of connections with one exchange at a time on each, and the outcome of each failure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

import msgspec

from bench_records.record import Outcome
from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS, AnswerLimits, message_too_long, too_many_responses
from harness.clients.protocol import (
    NOT_JSON,
    AnswerEnd,
    ConnectionUsage,
    ExchangeFailedError,
    OnResponses,
    cancelled_at,
    is_full_message,
)
from harness.clients.transport import tcp
from harness.clients.transport.event_streams import EventStreams, is_compiled
from harness.clients.transport.http1 import Body, HttpConnection, OnEvents, TlsConnection
from harness.clients.transport.router_headers import router_ns
from harness.clients.transport.sse import EventStream
from harness.clients.transport.tcp import Arrival
from harness.clients.transport.url import Origin
from harness.host.clock import now_ns

_LONGEST_IDLE_NS = 4_000_000_000  # the shortest keep-alive of common servers is uvicorn's and Node's, 5 s
_OPENED_AT_ONCE = 100  # a server's queue of connections to accept may be limited to 128
_END_AFTER_MARKER_S = 0.1  # for the rest of a message whose stream has ended: then the connection serves again
_READ_ON_S = 0.02  # after that, in which a loop that was late reads what the socket has
_LONGEST_MESSAGE = 2_000  # characters of an error
_SHOWN_OF_BODY = 300  # characters of an error whose body has no message in a known place
_SEARCHED_BYTES = 1 << 20  # of a body, for its first event: no more than an event may have by itself
_UNCOMPRESSED = (b"", b"identity", b"none")  # the last by servers that forbid proxies to compress a stream
_COMPRESSED = "compressed, which was not offered"
_USER_AGENT = "inflight-bench"
_EVENT_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":", b"\xef\xbb\xbfdata:")  # with which an event stream begins
_LONGEST_FIELD = max(map(len, _EVENT_FIELDS))
_PATH_SAFE = "/%:@!$&'()*+,;=~?"


def post_request(origin: Origin, path: str, body: bytes, accept: str, headers: Mapping[str, str]) -> bytes:
    """The bytes of one POST of JSON. ``headers`` override the default ones; the option parser validates them."""
    fields = {
        "host": origin.authority,
        "user-agent": _USER_AGENT,
        "accept": accept,
        "accept-encoding": "identity",
        "content-type": "application/json",
        **{name.lower(): value for name, value in headers.items()},
        "content-length": str(len(body)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {quote(path, safe=_PATH_SAFE)} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def server_message(body: bytes) -> str:
    """The message in an error's body: Triton's ``error``, OpenAI's ``error.message``, FastAPI's ``detail``, or else the
    beginning of the body, of an event stream that of its first event. It is one line of printable characters.
    """
    event = _first_event(body)
    message = _named_message(body) or _named_message(event)
    if message is not None:
        return _one_line(message)[:_LONGEST_MESSAGE]
    return _one_line((event or body).decode("utf-8", "replace"))[:_SHOWN_OF_BODY]


def _first_event(body: bytes) -> bytes:
    """The data of the first server-sent event; empty where there is none."""
    events: list[bytes] = []
    stream = EventStream(events.append, events.append)
    stream.feed(body[:_SEARCHED_BYTES])
    stream.end()
    return events[0] if events else b""


def _named_message(body: bytes) -> str | None:
    """The text in one of the places where servers put an error's message."""
    try:
        value = msgspec.json.decode(body)
    except NOT_JSON:
        value = None
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and value.get(key):
            value = value[key]
    return value if isinstance(value, str) and value.strip() else None


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(letter if letter.isprintable() else "\ufffd" for letter in line)


def status_message(status: int, message: str) -> str:
    """The message of an answer with the status of an error, whose body has ``message``."""
    return f"HTTP status {status}: {message or 'the body of the answer is empty'}"


def redirection(location: str) -> str:
    """The message of an answer that sends the client to ``location``, "" where it names none."""
    return f"the server redirects to {location}; use that address" if location else "the server redirects to no address"


def _is_compressed(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a body is compressed, as a whole or for its way (RFC 9112, section 7)."""
    of_way = headers.get(b"transfer-encoding", b"").lower().split(b",")
    is_of_way = any(coding.strip() not in (*_UNCOMPRESSED, b"chunked") for coding in of_way)
    return is_of_way or headers.get(b"content-encoding", b"").lower() not in _UNCOMPRESSED


def without_marker(end_marker: bytes) -> str:
    """That a stream ended in order without its end marker. Whether its answer is complete, its responses show."""
    return f"the stream ended without {end_marker.decode()}"


class _Whole:
    """Adds the parts of a body to ``whole``. Implements ``http1.Body``."""

    __slots__ = ("_limits", "_whole")

    def __init__(self, whole: bytearray, limits: AnswerLimits) -> None:
        self._whole = whole
        self._limits = limits

    def feed(self, part: bytes) -> None:
        self._whole += part
        if len(self._whole) > self._limits.max_message_bytes:
            raise message_too_long(self._limits)

    def event_sink(self) -> OnEvents | None:
        return None

    def end(self) -> None:
        """Nothing: the answer has the bytes."""


class _Events:
    """Splits a body into events. Implements ``http1.Body``. The answer has no reference to it: in a cycle only the garbage
    collector could free both, and would pause the loop."""

    __slots__ = ("_answer", "_at_once", "_stream", "end", "feed")

    def __init__(self, answer: _Answer, at_once: bool, limits: AnswerLimits) -> None:
        self._answer = answer
        self._at_once = at_once
        self._stream = EventStream(answer.on_event, answer.on_error_event, limits)
        self.feed = self._stream.feed
        self.end = self._stream.end

    def event_sink(self) -> OnEvents | None:
        """The first event is read here: that a request is answered must be known at once. So is what follows the last one."""
        answer = self._answer
        is_within = answer.has_events and not answer.is_marked and self._stream.is_between_events
        return self._on_events if is_within and not self._at_once else None

    def _on_events(self, times_ns: Sequence[int], events: Sequence[bytes]) -> None:
        self._stream.skip_events()
        self._answer.on_events(times_ns, events)


class _Unnamed:
    """The body of a success that is called neither an event stream nor JSON: its beginning shows which it is.

    Implements ``http1.Body``.
    """

    __slots__ = ("_answer", "_begun", "_body")

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer
        self._begun = b""
        self._body: _Events | _Whole | None = None

    def feed(self, part: bytes) -> None:
        if self._body is not None:
            self._body.feed(part)
            return
        self._begun += part
        if len(self._begun) >= _LONGEST_FIELD:
            self._decide().feed(self._begun)

    def event_sink(self) -> OnEvents | None:
        return None if self._body is None else self._body.event_sink()

    def end(self) -> None:
        if self._body is None:
            self._decide().feed(self._begun)
        assert self._body is not None
        self._body.end()

    def _decide(self) -> _Events | _Whole:
        is_stream = self._begun.startswith(_EVENT_FIELDS)
        self._body = self._answer.as_events() if is_stream else self._answer.as_whole()
        return self._body


class _UnprocessedError(ExchangeFailedError):
    """The server closed the connection, and provably never received the whole request."""


@dataclass(frozen=True, slots=True)
class _Receiver:
    """Where responses go. ``at_once``: as they arrive, and so they are read by the event loop itself."""

    on_responses: OnResponses
    at_once: bool
    limits: AnswerLimits


class _Answer:
    """One exchange in flight; ``ended`` is done when it is over. Implements ``http1.Answer``."""

    __slots__ = (
        "_arrival", "_at_once", "_end_marker", "_headers", "_is_marked", "_is_stream", "_limits", "_on_responses",
        "_room_responses", "_sent_ns", "_status", "_whole", "ended", "head_ns", "missing", "router_ns", "written_ns",
    )  # fmt: skip

    def __init__(self, receiver: _Receiver, arrival: Arrival, end_marker: bytes | None) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.router_ns: int | None = None
        self.written_ns: int | None = None
        self.head_ns: int | None = None
        self._sent_ns = now_ns()
        self.missing: str | None = None  # the end marker, in words, of a stream that ended in order without it
        self._on_responses = receiver.on_responses
        self._at_once = receiver.at_once
        self._limits = receiver.limits
        self._room_responses = receiver.limits.max_responses
        self._arrival = arrival
        self._end_marker = end_marker
        self._is_marked = False
        self._is_stream = False
        self._whole = bytearray()  # a body that is passed on as a whole
        self._status = 0
        self._headers: dict[bytes, bytes] = {}

    @property
    def end(self) -> AnswerEnd:
        """What is known of the answer so far, without the time to connect."""
        return AnswerEnd(self.missing, None, self.router_ns, self.written_ns, self.head_ns)

    def on_written(self, given_ns: int) -> None:
        self.written_ns = given_ns

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> Body:
        self._status, self._headers = status, headers
        self.head_ns = self._arrival.ns
        self.router_ns = router_ns(headers, self._arrival.ns - self._sent_ns)
        if status < 300 and _is_compressed(headers):  # the status of an error says more
            self._fail(Outcome.MALFORMED, f"the server's answer is {_COMPRESSED}")
        kind = headers.get(b"content-type", b"").lower()
        if status >= 300 or b"json" in kind:  # the body of an error is read whole, whatever it calls itself
            return self.as_whole()
        return self.as_events() if kind.startswith(b"text/event-stream") else _Unnamed(self)

    def as_events(self) -> _Events:
        """The receiver of a body that is an event stream."""
        self._is_stream = True
        return _Events(self, self._at_once, self._limits)

    def as_whole(self) -> _Whole:
        """The receiver of any other."""
        return _Whole(self._whole, self._limits)

    def on_end(self) -> None:
        body = bytes(self._whole)
        if self._status >= 300:
            self._fail_by_status(body)
        elif not self._is_stream and not self.ended.done():
            self._on_responses((self._arrival.ns,), (body,))
        elif self._end_marker is not None and not self._is_marked:
            self.missing = without_marker(self._end_marker)
        if not self.ended.done():
            self.ended.set_result(None)

    def on_lost(self, problem: str, unprocessed: bool) -> None:
        if self._is_marked or self._status >= 300:  # the answer was complete, or its status says how it failed
            self.on_end()
            return
        if not self.ended.done():
            kind = _UnprocessedError if unprocessed else ExchangeFailedError
            self.ended.set_exception(kind(Outcome.STREAM_CUT, problem))

    def on_garbage(self, problem: str) -> None:
        self._fail(Outcome.MALFORMED, problem)

    def on_fault(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)

    def on_overdue_end(self) -> None:
        """The stream has ended, and the server does not end the message: OpenAI's clients do not wait for that, either."""
        if not self.ended.done():
            self.ended.set_result(None)

    def on_deadline(self, timeout_s: float) -> None:
        self._fail(Outcome.TIMEOUT, f"no end within {timeout_s:g} s")

    @property
    def is_marked(self) -> bool:
        """Whether the end marker has come."""
        return self._is_marked

    @property
    def has_events(self) -> bool:
        """Whether an event has come."""
        return self._room_responses < self._limits.max_responses

    def on_event(self, data: bytes) -> None:
        if self._end_marker is not None and data.startswith(self._end_marker) and not data[len(self._end_marker) :].strip():
            data = self._end_marker  # which some servers write with a space after it
        self.on_events((self._arrival.ns,), (data,))

    def on_events(self, times_ns: Sequence[int], events: Sequence[bytes]) -> None:
        if not self._is_marked:
            self._room_responses -= len(events)
            if self._room_responses < 0:
                raise too_many_responses(self._limits)
            if self._end_marker in events:
                self._is_marked = True
                loop = asyncio.get_running_loop()
                loop.call_later(_END_AFTER_MARKER_S, loop.call_later, _READ_ON_S, self.on_overdue_end)
                last = events.index(self._end_marker)
                times_ns, events = times_ns[:last], events[:last]
            self._on_responses(times_ns, events)

    def on_error_event(self, data: bytes) -> None:
        message = server_message(data)
        self._fail(Outcome.REFUSED if is_full_message(message) else Outcome.SERVER_ERROR, message)

    def _fail_by_status(self, body: bytes) -> None:
        message = status_message(self._status, self._problem(body))
        is_temporary = self._status == 429 or (self._status == 503 and b"retry-after" in self._headers)
        beyond = body[:_LONGEST_MESSAGE].decode("utf-8", "replace")  # what the message does not show of a long body
        is_full = is_temporary or is_full_message(message) or is_full_message(beyond)
        self._fail(Outcome.REFUSED if is_full else Outcome.SERVER_ERROR, message)

    def _problem(self, body: bytes) -> str:
        """What an answer with the status of an error says, beside the status; "" where it says nothing."""
        if self._status < 400:
            return redirection(self._headers.get(b"location", b"").decode("latin-1"))
        return f"the body of the answer is {_COMPRESSED}" if _is_compressed(self._headers) else server_message(body)

    def _fail(self, outcome: Outcome, message: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(ExchangeFailedError(outcome, message))


@dataclass(frozen=True, slots=True)
class _Deadline:
    """The deadline of an exchange, by the loop's clock, and the timeout from which it was made."""

    at_s: float
    timeout_s: float


class HttpCaller:
    """Exchanges with one server, each on a connection of its own. Implements ``protocol.Connection``.

    Connections are reused, the latest first. ``end_marker`` is the data of the last event of each stream, in protocols that
    have one; it is not passed on. An answer that exceeds ``limits`` is malformed. ``connection_timeout_s`` is for each
    connection of an exchange; None is the time of the exchange.

    A request is repeated only where the server closed a reused connection without having received the whole request, so
    that it cannot have processed it. Any other repetition could load the server twice.
    """

    def __init__(
        self,
        origin: Origin,
        end_marker: bytes | None = None,
        limits: AnswerLimits = DEFAULT_ANSWER_LIMITS,
        connection_timeout_s: float | None = None,
    ) -> None:
        self._origin = origin
        self._connection_timeout_s = connection_timeout_s
        self._limits = limits
        self._end_marker = end_marker
        self.arrival = Arrival()
        self._tls = origin.tls()
        self._streams: EventStreams | None = None
        self._address = origin.host
        self._idle: dict[HttpConnection, None] = {}  # in the order of their last use
        self._open: set[HttpConnection] = set()
        self._opened = 0
        self._at_start = 0

    def reset_usage(self) -> None:
        self.arrival.unstamped_reads = 0
        self._at_start = len(self._open)

    def usage(self, since_ns: int) -> ConnectionUsage:
        """The number of connections; there are no waits, since each exchange has its own connection."""
        return ConnectionUsage(self._at_start, self._opened, unstamped_reads=self.arrival.unstamped_reads)

    async def connect(self, timeout_s: float) -> None:
        """Open the first connection, which also resolves the address. Raises ExchangeFailedError (CONNECT)."""
        if is_compiled and self._tls is None:
            try:
                self._streams = EventStreams()
            except (OSError, MemoryError) as error:
                raise ExchangeFailedError(Outcome.CONNECT, f"cannot start the reader thread: {error}") from error
        try:
            (connection,) = await self._new_connections(1, timeout_s)
        except BaseException:
            await self.close()
            raise
        self._address = connection.peer_host  # a name is resolved once; later connections use the address that answered
        self._idle[connection] = None

    async def prepare(self, in_flight: int, timeout_s: float) -> None:
        """Open a connection for each: else the first requests would include the time of opening one."""
        missing = in_flight - len(self._idle)
        for opened in range(0, missing, _OPENED_AT_ONCE):
            new = await self._new_connections(min(_OPENED_AT_ONCE, missing - opened), timeout_s)
            self._idle.update(dict.fromkeys(new))

    async def exchange(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> AnswerEnd:
        """Send one whole request; each event of the answer, or else its whole body, goes to ``on_responses``."""
        return await self._exchange(payload, _Receiver(on_responses, False, self._limits), timeout_s)

    async def exchange_at_once(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> AnswerEnd:
        """The same, each event as it arrives."""
        return await self._exchange(payload, _Receiver(on_responses, True, self._limits), timeout_s)

    async def close(self) -> None:
        for connection in list(self._open):
            connection.close()
        await asyncio.sleep(0)  # lets the transports close
        if self._streams is not None:
            self._streams.close()

    async def _exchange(self, payload: bytes, receiver: _Receiver, timeout_s: float) -> AnswerEnd:
        deadline = _Deadline(asyncio.get_running_loop().time() + timeout_s, timeout_s)
        began_ns = now_ns()  # a connection that turns out to be closed is a part of the wait for one
        connection = self._idle_connection()
        if connection is not None:
            with suppress(_UnprocessedError):
                return await self._send_over(connection, payload, receiver, deadline)
        allowed_s = min(deadline.timeout_s, self._connection_timeout_s or deadline.timeout_s)
        try:
            async with asyncio.timeout_at(min(deadline.at_s, asyncio.get_running_loop().time() + allowed_s)):
                connection = await self._new_connection()
        except TimeoutError as error:
            raise ExchangeFailedError(Outcome.CONNECT, f"no connection within {allowed_s:g} s") from error
        return await self._send_over(connection, payload, receiver, deadline, now_ns() - began_ns)

    async def _send_over(
        self,
        connection: HttpConnection,
        payload: bytes,
        receiver: _Receiver,
        deadline: _Deadline,
        connect_ns: int | None = None,
    ) -> AnswerEnd:
        """Send once, over a connection that took ``connect_ns`` to open; returns what there is to say of the end."""
        answer = _Answer(receiver, self.arrival, self._end_marker)
        timer = asyncio.get_running_loop().call_at(deadline.at_s, answer.on_deadline, deadline.timeout_s)
        connection.send(payload, answer)
        try:
            await answer.ended
        except asyncio.CancelledError as cancelled:
            cancelled_at(cancelled, answer.end._replace(connect_ns=connect_ns))
            raise
        finally:
            timer.cancel()
            connection.abandon(answer)
        return answer.end._replace(connect_ns=connect_ns)

    def _idle_connection(self) -> HttpConnection | None:
        """The connection that was used last; None where it is stale, and then it is closed."""
        if not self._idle:
            return None
        connection, _ = self._idle.popitem()
        if connection.is_fresh(_LONGEST_IDLE_NS):
            return connection
        connection.close()
        return None

    async def _new_connections(self, count: int, timeout_s: float) -> list[HttpConnection]:
        """Open ``count`` connections at once. Raises ExchangeFailedError (CONNECT)."""
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.gather(*(self._new_connection() for _ in range(count)))
        except TimeoutError as error:
            raise ExchangeFailedError(Outcome.CONNECT, f"no connection within {timeout_s:g} s") from error

    async def _new_connection(self) -> HttpConnection:
        address, port = self._address, self._origin.port
        try:
            if self._tls is None:
                plain = partial(HttpConnection, self, self.arrival, self._streams, self._limits)
                return await tcp.connect(plain, address, port, self.arrival)
            secure = partial(TlsConnection, self, self.arrival, limits=self._limits)
            _, connection = await asyncio.get_running_loop().create_connection(
                secure, address, port, ssl=self._tls, server_hostname=self._origin.host
            )
        except OSError as error:
            raise ExchangeFailedError(Outcome.CONNECT, f"cannot connect: {tcp.problem_of(error)}") from error
        return connection

    # ---- called by connections

    def on_open(self, connection: HttpConnection) -> None:
        self._open.add(connection)
        self._opened += 1

    def on_idle(self, connection: HttpConnection) -> None:
        self._idle[connection] = None

    def on_closed(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)
