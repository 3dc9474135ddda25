"""Exchanges over one HTTP/1.1 connection under gevent: a request out, events with their arrival times in."""

from __future__ import annotations

import gevent
import httptools
from gevent import socket, ssl
from gevent.monkey import get_original

from bench_records.record import Outcome
from harness.clients.protocol import ExchangeFailedError, is_full_message
from harness.clients.transport.http1_pool import server_message, status_message, without_marker
from harness.clients.transport.sse import EventStream
from harness.clients.transport.url import Origin
from harness.host.clock import now_ns
from harness.journal.worker_journal import Exchange

_READ_BYTES = 65_536
_FIRST_FAILURE = 300
_LONGEST_IDLE_NS = 4_000_000_000  # the shortest keep-alive of common servers is 5 s
_READABLE = 1  # select.POLLIN, which an end of the connection is, too


class EventConnection:
    """A connection to ``origin`` that carries one exchange at a time, and is opened again where the server has closed it.

    ``end_marker`` is the data of each stream's last event, in protocols that have one.
    """

    def __init__(self, origin: Origin, end_marker: bytes | None = None) -> None:
        self._origin = origin
        self._end_marker = end_marker
        self._socket: socket.socket | None = None
        self._idle_since_ns = 0

    def exchange(self, index: int, payload: bytes, timeout_s: float) -> Exchange:
        """Send one encoded request and read its answer; a failure is a part of the result.

        Due, released and sent are the same moment: the one before the request is written, as its user is free then.
        """
        sent_ns = now_ns()
        answer = _Answer(self._end_marker)
        failure: Outcome | None = None
        error: str | None = None
        try:
            with gevent.Timeout(timeout_s, _DeadlineError):
                self._converse(payload, answer)
        except _DeadlineError:
            failure, error = Outcome.TIMEOUT, f"no end within {timeout_s:g} s"
        except ExchangeFailedError as failed:
            failure, error = failed.outcome, str(failed)
        else:
            error = answer.missing
        finally:
            if not answer.leaves_connection_open:
                self.close()
        return Exchange(index, sent_ns, sent_ns, sent_ns, now_ns(), answer.times_ns, answer.bodies, failure, error)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _converse(self, payload: bytes, answer: _Answer) -> None:
        """Raises ExchangeFailedError."""
        if self._socket is None or not self._is_fresh(self._socket):
            self.close()
            try:
                self._socket = self._connect()
            except OSError as error:
                raise ExchangeFailedError(Outcome.CONNECT, f"cannot connect: {error.strerror or error}") from error
        try:
            self._socket.sendall(payload)
            self._read(self._socket, answer)
        except OSError as error:
            raise ExchangeFailedError(Outcome.STREAM_CUT, f"the connection broke: {error.strerror or error}") from error
        self._idle_since_ns = now_ns()

    def _is_fresh(self, connected: socket.socket) -> bool:
        """Whether a request may be sent here: idle for a short time only, and the server has not closed it."""
        poll = get_original("select", "poll")()
        poll.register(connected.fileno(), _READABLE)
        return now_ns() - self._idle_since_ns <= _LONGEST_IDLE_NS and not poll.poll(0)

    def _connect(self) -> socket.socket:
        connected = socket.create_connection((self._origin.host, self._origin.port))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._origin.scheme == "https":
            return ssl.create_default_context().wrap_socket(connected, server_hostname=self._origin.host)
        return connected

    @staticmethod
    def _read(connected: socket.socket, answer: _Answer) -> None:
        while not answer.is_complete:
            piece = connected.recv(_READ_BYTES)
            answer.arrived_ns = now_ns()
            if piece:
                answer.feed(piece)
            elif not answer.ends_with_connection():
                raise ExchangeFailedError(Outcome.STREAM_CUT, "the server closed the connection")


class _Answer:
    """The answer to one request as it is parsed: the data of its events, or else its whole body, with arrival times."""

    def __init__(self, end_marker: bytes | None) -> None:
        self.times_ns: list[int] = []
        self.bodies: list[bytes] = []
        self.arrived_ns = 0
        self.missing: str | None = None  # the end marker, in words, of a stream that ended in order without it
        self.is_complete = False
        self._end_marker = end_marker
        self._is_marked = False
        self._until_close = self._stays = False
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self._events: EventStream | None = None
        self._parser = httptools.HttpResponseParser(self)

    @property
    def leaves_connection_open(self) -> bool:
        return self.is_complete and self._stays

    def ends_with_connection(self) -> bool:
        """Whether the end of the connection is the end of the answer, which it then completes."""
        if self._until_close:
            self.on_message_complete()
        return self._until_close

    def feed(self, piece: bytes) -> None:
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, ExchangeFailedError):
                raise error.__context__ from error
            raise
        except httptools.HttpParserError as error:
            raise ExchangeFailedError(Outcome.MALFORMED, f"not HTTP: {error}") from error

    # ---- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._stays = self._parser.should_keep_alive()
        self._until_close = not self._headers.keys() & {b"content-length", b"transfer-encoding"}
        if self._headers.get(b"content-type", b"").lower().startswith(b"text/event-stream") and self._status < _FIRST_FAILURE:
            self._events = EventStream(self._on_event, self._on_error_event)

    def on_body(self, part: bytes) -> None:
        if self._events is None:
            self._parts.append(part)
        else:
            self._events.feed(part)

    def on_message_complete(self) -> None:
        self.is_complete = True
        body = b"".join(self._parts)
        if self._status >= _FIRST_FAILURE:
            raise _failed(status_message(self._status, body), is_busy=self._status == 429)
        if self._events is None:
            self._append(body)
            return
        self._events.end()
        if self._end_marker is not None and not self._is_marked:
            self.missing = without_marker(self._end_marker)

    @property
    def _status(self) -> int:
        return int(self._parser.get_status_code())

    def _on_event(self, data: bytes) -> None:
        if data == self._end_marker:
            self._is_marked = True
        elif not self._is_marked:
            self._append(data)

    def _on_error_event(self, data: bytes) -> None:
        raise _failed(server_message(data), is_busy=False)

    def _append(self, body: bytes) -> None:
        self.times_ns.append(self.arrived_ns)
        self.bodies.append(body)


class _DeadlineError(Exception):
    """The time limit of an exchange has passed."""


def _failed(message: str, is_busy: bool) -> ExchangeFailedError:
    is_refused = is_busy or is_full_message(message)
    return ExchangeFailedError(Outcome.REFUSED if is_refused else Outcome.SERVER_ERROR, message)
