"""Exchanges under gevent with a server whose answers are scripted byte for byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bench_records.record import Outcome
from harness.clients.transport.http1_pool import post_request
from harness.clients.transport.url import Origin
from harness.journal.worker_journal import Exchange
from tests.harness.clients.scripted_http import EVENTS_HEAD, chunked, plain

pytest.importorskip("gevent", reason="the extra [distributed] is not installed")
from harness.locust_users.event_exchange import EventConnection

Script = Callable[[socket.socket], None]


@contextmanager
def _serving(*scripts: Script) -> Iterator[Origin]:
    """A server whose n-th connection runs the n-th script, after which it is closed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for script in scripts:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                script(peer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Origin("http", "127.0.0.1", listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _request(peer: socket.socket) -> None:
    received = b""
    while not received.endswith(b"{}"):
        piece = peer.recv(65_536)
        if not piece:
            return
        received += piece


def _answer(*parts: bytes) -> Script:
    def script(peer: socket.socket) -> None:
        for part in parts:
            _request(peer)
            peer.sendall(part)

    return script


def _events(*data: bytes) -> bytes:
    return EVENTS_HEAD + chunked(*(b"data: " + each + b"\n\n" for each in data))


def _ask(connection: EventConnection, origin: Origin, timeout_s: float = 10.0) -> Exchange:
    return connection.exchange(3, post_request(origin, "/", b"{}", "text/event-stream", {}), timeout_s)


def test_each_event_has_the_time_of_its_own_packet() -> None:
    gate = threading.Event()

    def script(peer: socket.socket) -> None:
        _request(peer)
        peer.sendall(EVENTS_HEAD + b"8\r\ndata: a\n\r\n")
        peer.sendall(b"1\r\n\n\r\n")
        gate.wait(0.05)
        peer.sendall(chunked(b"data: b\n\n", b"data: c\n\n"))

    with _serving(script) as origin:
        exchange = _ask(EventConnection(origin), origin)
    assert (exchange.bodies, exchange.failure) == ([b"a", b"b", b"c"], None)
    first, second, third = exchange.response_ns
    assert exchange.sent_ns <= first
    assert second - first > 30_000_000
    assert third == second <= exchange.done_ns
    assert exchange.due_ns == exchange.released_ns == exchange.sent_ns


def test_a_connection_is_used_again_and_opened_again_where_the_server_has_closed_it() -> None:
    closed = threading.Event()

    def answer_twice(peer: socket.socket) -> None:
        _answer(_events(b"1"), _events(b"2"))(peer)
        peer.close()
        closed.set()

    with _serving(answer_twice, _answer(_events(b"3"))) as origin:
        connection = EventConnection(origin)
        answers = [_ask(connection, origin) for _ in range(2)]
        assert closed.wait(10.0)
        answers.append(_ask(connection, origin))
        connection.close()
    assert [answer.bodies for answer in answers] == [[b"1"], [b"2"], [b"3"]]
    assert [answer.failure for answer in answers] == [None, None, None]


def test_the_end_marker_is_no_response_and_its_absence_is_remarked() -> None:
    with _serving(_answer(_events(b"1", b"[DONE]"), _events(b"2"))) as origin:
        connection = EventConnection(origin, b"[DONE]")
        whole, unmarked = _ask(connection, origin), _ask(connection, origin)
    assert (whole.bodies, whole.failure, whole.error) == ([b"1"], None, None)
    assert (unmarked.bodies, unmarked.failure, unmarked.error) == ([b"2"], None, "the stream ended without [DONE]")


@pytest.mark.parametrize(
    ("answer", "outcome", "message"),
    [
        (plain(b'{"error": "unknown model"}', b"400 Bad Request"), Outcome.SERVER_ERROR, "HTTP status 400: unknown model"),
        (plain(b"{}", b"429 Too Many Requests"), Outcome.REFUSED, "HTTP status 429"),
        (plain(b'{"error": "exceeds maximum queue size"}', b"503 Busy"), Outcome.REFUSED, "queue"),
        (EVENTS_HEAD + chunked(b'event: error\ndata: {"error": {"message": "no memory"}}\n\n'), Outcome.SERVER_ERROR, "memory"),
        (b"SSH-2.0\r\n\r\n", Outcome.MALFORMED, "not HTTP"),
        (EVENTS_HEAD + b"9\r\ndata: a\n\n\r\n", Outcome.STREAM_CUT, "closed"),
        (b"", Outcome.STREAM_CUT, "closed"),
    ],
    ids=["error", "busy", "full", "error event", "garbage", "cut", "nothing"],
)
def test_a_failure_has_its_kind_and_the_servers_words(answer: bytes, outcome: Outcome, message: str) -> None:
    with _serving(_answer(answer)) as origin:
        exchange = _ask(EventConnection(origin), origin)
    assert exchange.failure is outcome
    assert exchange.error is not None
    assert message in exchange.error


def test_what_came_before_a_cut_is_kept() -> None:
    with _serving(_answer(EVENTS_HEAD + b"9\r\ndata: a\n\n\r\n")) as origin:
        assert _ask(EventConnection(origin), origin).bodies == [b"a"]


def test_an_answer_that_does_not_end_in_time_is_a_timeout_and_costs_its_connection() -> None:
    def silent(peer: socket.socket) -> None:
        _request(peer)
        peer.recv(1)  # until the client gives up

    with _serving(silent, _answer(_events(b"1"))) as origin:
        connection = EventConnection(origin)
        late, next_one = _ask(connection, origin, timeout_s=0.05), _ask(connection, origin)
        connection.close()
    assert (late.failure, late.error) == (Outcome.TIMEOUT, "no end within 0.05 s")
    assert next_one.bodies == [b"1"]


def test_an_answer_without_events_is_one_response_as_is_one_that_ends_with_its_connection() -> None:
    with _serving(_answer(plain(b'{"a": 1}')), _answer(b"HTTP/1.1 200 OK\r\n\r\n{}")) as origin:
        answers = [_ask(EventConnection(origin), origin) for _ in range(2)]
    assert [answer.bodies for answer in answers] == [[b'{"a": 1}'], [b"{}"]]
    assert [answer.failure for answer in answers] == [None, None]


def test_a_server_that_is_not_there_is_a_failed_connection() -> None:
    with _serving() as origin:
        pass
    assert _ask(EventConnection(origin), origin).failure is Outcome.CONNECT
