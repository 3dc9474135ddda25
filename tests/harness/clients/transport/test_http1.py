"""One connection: answers framed and cut in every way HTTP/1.1 has. Pools and failures are test_http_calls', what others read
test_event_streams'."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.clients.transport.http1 import Body, HttpConnection, OnEvents
from harness.clients.transport.tcp import Arrival


class _Transport:
    """What a connection writes to; its socket is a real one, since the kernel is asked about it."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.written = b""
        self.aborted = False
        self.buffered = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def get_extra_info(self, name: str) -> Any:
        return {"socket": self.end, "peername": ("10.0.0.7", 80)}[name]


class _Answer:
    """Collects its callbacks."""

    def __init__(self) -> None:
        self.heads: list[tuple[int, dict[bytes, bytes]]] = []
        self.body = b""
        self.bodies = 0
        self.ends: list[tuple[Any, ...]] = []
        self.fault: Exception | None = None

    def on_written(self, given_ns: int) -> None: ...

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> Body:
        self.heads.append((status, headers))
        return self

    def event_sink(self) -> OnEvents | None:
        return None

    def end(self) -> None:
        self.bodies += 1

    def feed(self, part: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        self.body += part

    def on_end(self) -> None:
        self.ends.append(("whole",))

    def on_lost(self, problem: str, unprocessed: bool) -> None:
        self.ends.append(("lost", problem, unprocessed))

    def on_garbage(self, problem: str) -> None:
        self.ends.append(("garbage", problem))

    def on_fault(self, error: BaseException) -> None:
        self.ends.append(("fault", error))


class _Pool:
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_open(self, connection: HttpConnection) -> None:
        self.events.append("open")

    def on_idle(self, connection: HttpConnection) -> None:
        self.events.append("idle")

    def on_closed(self, connection: HttpConnection) -> None:
        self.events.append("closed")


class _Wired:
    """A connection with everything that it talks to."""

    def __init__(self, end: socket.socket) -> None:
        self.pool = _Pool()
        self.transport = _Transport(end)
        self.arrival = Arrival()
        self.connection = HttpConnection(self.pool, self.arrival)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def ask(self) -> _Answer:
        answer = _Answer()
        self.connection.send(b"ask", answer)
        return answer

    def reads(self, *parts: bytes) -> None:
        for part in parts:
            if not self.transport.aborted:
                self.connection.data_received(part)


@contextmanager
def _wired() -> Iterator[_Wired]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield _Wired(ours)


_BODY = b"some text, \x00\xff\r\n\r\n0\r\n\r\n and more"
_CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n"
    b"5\r\nsome \r\n19;extension=1\r\ntext, \x00\xff\r\n\r\n0\r\n\r\n and mor\r\n1\r\ne\r\n0\r\nTrailer: 1\r\n\r\n"
)
_LENGTH = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: %d\r\nX-A:b\r\n\r\n%b" % (len(_BODY), _BODY)
_AFTER_INFORMATION = b"HTTP/1.1 103 Early Hints\r\nX-A: no\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + _LENGTH


@given(st.sampled_from([_CHUNKED, _LENGTH, _AFTER_INFORMATION]), st.lists(st.integers(0, 10_000), max_size=20))
@example(_CHUNKED, list(range(len(_CHUNKED))))
@example(_LENGTH, list(range(len(_LENGTH))))
@example(_AFTER_INFORMATION, list(range(len(_AFTER_INFORMATION))))
def test_any_cut_of_any_framing_is_the_same_answer(sent: bytes, places: list[int]) -> None:
    bounds = [0, *sorted(place % (len(sent) + 1) for place in places), len(sent)]
    with _wired() as wired:
        for _ in range(2):  # the second on the connection that the first left
            answer = wired.ask()
            wired.reads(*(sent[start:end] for start, end in pairwise(bounds) if end > start))
            [(status, headers)] = answer.heads
            assert (status, headers[b"x-a"], answer.body, answer.ends) == (200, b"b", _BODY, [("whole",)])
            assert answer.bodies == 1
        assert wired.pool.events == ["open", "idle", "idle"]
        assert wired.transport.written == b"askask"
        assert not wired.transport.aborted


def test_parts_of_a_body_are_handed_on_before_it_is_whole() -> None:
    with _wired() as wired:
        answer = wired.ask()
        wired.reads(_CHUNKED[:75])
        assert answer.body == b"some "
        assert answer.ends == []


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
)
def test_body_without_a_length_ends_with_the_connection(head: bytes) -> None:
    with _wired() as wired:
        answer = wired.ask()
        wired.reads(head + b"some ", b"text")
        assert (answer.body, answer.ends) == (b"some text", [])
        wired.connection.eof_received()
        wired.connection.connection_lost(None)
        assert answer.ends == [("whole",)]
        assert wired.pool.events == ["open", "closed"]


@pytest.mark.parametrize("codings", [b"Chunked", b"gzip, chunked", b"gzip\r\nTransfer-Encoding: chunked"])
def test_body_of_chunks_within_which_the_connection_ends_is_lost(codings: bytes) -> None:
    with _wired() as wired:
        answer = wired.ask()
        wired.reads(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: %b\r\n\r\n5\r\nsome \r\n" % codings)
        wired.connection.eof_received()
        assert (answer.body, answer.ends) == (b"some ", [("lost", "the server closed the connection", False)])


def test_body_without_a_length_is_cut_by_a_connection_that_breaks() -> None:
    with _wired() as wired:
        answer = wired.ask()
        wired.reads(b"HTTP/1.1 200 OK\r\n\r\nsome ")
        wired.connection.connection_lost(ConnectionResetError("reset"))
        assert answer.ends == [("lost", "the connection was lost: reset", False)]


@pytest.mark.parametrize("head", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
def test_empty_answers_are_whole_at_once(head: bytes) -> None:
    with _wired() as wired:
        answer = wired.ask()
        wired.reads(head)
        assert (answer.body, answer.ends, wired.pool.events) == (b"", [("whole",)], ["open", "idle"])


@pytest.mark.parametrize("sent", [_CHUNKED, _LENGTH])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_answer_that_is_not_whole_when_the_connection_ends_is_lost(sent: bytes, share: float) -> None:
    with _wired() as wired:
        answer = wired.ask()
        if share:
            wired.reads(sent[: int(share * len(sent))])
        wired.connection.eof_received()
        wired.connection.connection_lost(None)
        when = "" if share else " before an answer began"
        assert answer.ends == [("lost", f"the server closed the connection{when}", False)]


@pytest.mark.parametrize("answers_before", [0, 1])
def test_connection_that_breaks_before_an_answer_is_called_kept_where_it_was(answers_before: int) -> None:
    with _wired() as wired:
        for _ in range(answers_before):
            wired.ask()
            wired.reads(_LENGTH)
        answer = wired.ask()
        wired.connection.connection_lost(ConnectionResetError("reset"))
        when = ", kept from an earlier request, before" if answers_before else " before"
        assert answer.ends == [("lost", f"the connection was lost{when} an answer began: reset", False)]


@pytest.mark.parametrize(
    "sent",
    [
        _LENGTH.replace(b"X-A", b"Connection: close\r\nX-A"),
        _CHUNKED.replace(b"X-A", b"Connection: close\r\nX-A"),
        _LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
def test_connection_that_the_server_will_close_is_not_kept(sent: bytes) -> None:
    with _wired() as wired:
        answer = wired.ask()
        wired.reads(sent)
        assert (answer.body, answer.ends, wired.pool.events) == (_BODY, [("whole",)], ["open"])
        assert wired.transport.aborted


def test_connection_that_still_has_to_write_is_not_kept() -> None:
    with _wired() as wired:
        answer = wired.ask()
        wired.transport.buffered = 9
        wired.reads(_LENGTH)
        assert (answer.ends, wired.pool.events, wired.transport.aborted) == ([("whole",)], ["open"], True)


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",  # HTTP/2, as a gRPC port answers
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_what_is_not_http_is_reported_once_and_ends_the_connection(sent: bytes) -> None:
    with _wired() as wired:
        answer = wired.ask()
        wired.reads(sent)
        wired.connection.connection_lost(None)
        [(kind, problem)] = answer.ends
        assert (kind, wired.transport.aborted) == ("garbage", True)
        assert "not HTTP as requested" in problem
        assert ("switches to another protocol" in problem) == (b" 101 " in sent)


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


_EVENTS_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_pieces_end_behind_the_head_and_behind_each_event() -> None:
    pieces = [_EVENTS_HEAD, _chunk(b"data: a\n\n"), b"data: unchunked\n\n", b"data: b\r\n\r\n", _chunk(b"data: c\n\n")]
    with _wired() as wired:
        ends = wired.connection.piece_ends(b"".join([*pieces, b"9\r\nda"]))
        assert list(ends) == [len(b"".join(pieces[: number + 1])) for number in range(len(pieces))]


def test_error_of_the_receiver_is_reported_and_is_not_the_servers() -> None:
    with _wired() as wired:
        answer = wired.ask()
        answer.fault = ValueError("ours")
        wired.reads(_LENGTH)
        assert answer.ends == [("fault", answer.fault)]
        assert wired.transport.aborted


def test_answer_without_a_request_ends_the_connection() -> None:
    with _wired() as wired:
        answer = wired.ask()
        wired.reads(_LENGTH + b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        assert (answer.body, answer.ends) == (_BODY, [("whole",)])
        assert wired.transport.aborted
        assert not wired.connection.is_fresh(10**18)


def test_nothing_is_heard_of_an_exchange_that_was_abandoned() -> None:
    with _wired() as wired:
        answer = wired.ask()
        wired.reads(_CHUNKED[:75])
        wired.connection.abandon(answer)
        wired.connection.data_received(_CHUNKED[75:])  # it was on its way
        wired.connection.connection_lost(None)
        assert (answer.body, answer.ends) == (b"some ", [])
        assert wired.transport.aborted


def test_connection_is_left_alone_when_an_exchange_that_it_has_ended_is_abandoned() -> None:
    with _wired() as wired:
        first = wired.ask()
        wired.reads(_LENGTH)
        second = wired.ask()
        wired.connection.abandon(first)
        wired.reads(_LENGTH)
        assert (second.ends, wired.transport.aborted) == ([("whole",)], False)


def test_request_to_a_closed_connection_is_not_sent() -> None:
    with _wired() as wired:
        wired.connection.close()
        answer = wired.ask()
        assert wired.transport.written == b""
        [(kind, _, unprocessed)] = answer.ends
        assert (kind, unprocessed) == ("lost", True)


def test_connection_is_fresh_until_it_is_idle_too_long_or_something_comes() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wired = _Wired(ours)
        assert wired.connection.is_fresh(10**18)
        assert not wired.connection.is_fresh(0)
        theirs.shutdown(socket.SHUT_WR)  # known to the kernel alone: no event loop has read it
        assert not wired.connection.is_fresh(10**18)


def test_peer_is_known_by_its_address() -> None:
    with _wired() as wired:
        assert wired.connection.peer_host == "10.0.0.7"


def test_connection_leaves_nothing_for_the_garbage_collector() -> None:
    import gc
    import weakref

    class Watched(HttpConnection):
        __slots__ = ("__weakref__",)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Watched(_Pool(), Arrival())
        connection.connection_made(_Transport(ours))  # type: ignore[arg-type]
        gone = weakref.ref(connection)
        gc.disable()
        try:
            connection.connection_lost(None)
            del connection
            assert gone() is None
        finally:
            gc.enable()
