"""Exchanges with a raw server on a loopback port: connections kept and replaced, and every way in which an exchange fails."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop

from bench_records.record import Outcome
from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS
from harness.clients.protocol import AnswerEnd, ConnectionUsage, ExchangeFailedError
from harness.clients.transport import http1_pool
from harness.clients.transport.http1_pool import HttpCaller, post_request, server_message
from harness.clients.transport.url import Origin
from harness.host.clock import now_ns
from tests.free_port import closed_port
from tests.harness.clients.cancelled import assert_has_times, end_when_cancelled
from tests.harness.clients.scripted_http import EVENTS_HEAD, Answered, Peer, Script, chunked, exchange, plain, serving

_MARK = b"[DONE]"


@pytest.fixture(autouse=True, params=[True, False], ids=["compiled", "interpreted"])
def _reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Event streams are read in one of two ways, which differ in speed alone."""
    monkeypatch.setattr(http1_pool, "is_compiled", request.param)


def _ask(origin: Origin, body: bytes = b'{"ask": 1}') -> bytes:
    return post_request(origin, "/ask", body, "text/event-stream", {})


async def _once(script: Script, timeout_s: float = 10.0, marker: bytes | None = None) -> Answered:
    async with serving(script) as origin:
        caller = HttpCaller(origin, marker)
        await caller.connect(5.0)
        try:
            return await exchange(caller, _ask(origin), timeout_s)
        finally:
            await caller.close()


def _answered(*parts: bytes, marker: bytes | None = None) -> Answered:
    """What an exchange makes of an answer of exactly these bytes, after which the server closes."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(*parts)

    return uvloop.run(_once(script, marker=marker))


# ---- requests


def test_request_is_what_http_asks_for() -> None:
    raw = post_request(Origin("http", "::1", 8000), "/v1/chat completions", b"{}", "text/event-stream", {"X-Route": "a"})
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/chat%20completions HTTP/1.1"
    assert set(lines[1:]) == {
        "host: [::1]:8000",
        "user-agent: inflight-bench",
        "accept: text/event-stream",
        "accept-encoding: identity",
        "content-type: application/json",
        "x-route: a",
        "content-length: 2",
    }
    assert body == b"{}"


def test_users_header_wins_over_ours_and_the_default_port_is_not_named() -> None:
    raw = post_request(Origin("https", "api.example", 443), "/", b"", "a/b", {"Accept": "c/d"})
    assert b"host: api.example\r\n" in raw
    assert raw.count(b"accept: ") == 1
    assert b"accept: c/d\r\n" in raw


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": "of Triton"}', "of Triton"),
        (b'{"error": {"message": "of OpenAI", "type": "x", "code": 400}}', "of OpenAI"),
        (b'{"object": "error", "message": "of SGLang", "code": 400}', "of SGLang"),
        (b'{"detail": "of FastAPI"}', "of FastAPI"),
        (b'{"detail": [{"loc": 1}]}', '{"detail": [{"loc": 1}]}'),
        (b"<html>of a proxy</html>\n", "<html>of a proxy</html>"),
        (b"\xff", "�"),
        (b'{"error": "\xe4"}', '{"error": "�"}'),
        (b"[" * 1_200, "[" * 300),
        (b"", ""),
        (b"x" * 10_000, "x" * 300),
        (b'{"error": "' + b"x" * 10_000 + b'"}', "x" * 2_000),
        (b'{"error": ""}', '{"error": ""}'),
        (b'""', '""'),
        (b"<h1>\r\n  Not\tFound\x1b[31m\x00</h1>\n", "<h1> Not Found\ufffd[31m\ufffd</h1>"),
        (b'data: {"error": {"message": "in an event"}}\n\n', "in an event"),
        (b"data: no route\n\ndata: [DONE]\n\n", "no route"),
        (b"data: " * 2_000, "data: " * 50),
    ],
)
def test_message_of_an_error_in_each_servers_way(body: bytes, message: str) -> None:
    assert server_message(body) == message


def test_message_of_an_error_that_is_longer_than_an_event_may_be() -> None:
    assert server_message(b"x" * (DEFAULT_ANSWER_LIMITS.max_message_bytes + 1)) == "x" * 300


# ---- answers


def test_events_are_handed_on_one_by_one_and_other_bodies_whole() -> None:
    stream = chunked(b"data: one\n\n", b"data: two\n\ndata: th", b"ree\n\n")
    assert _answered(EVENTS_HEAD + stream) == ([b"one", b"two", b"three"], None, "")
    assert _answered(plain(b'{"whole": 1}')) == ([b'{"whole": 1}'], None, "")


@pytest.mark.parametrize("kind", [b"", b"Content-Type: text/plain\r\n", b"Content-Type: text/html; charset=utf-8\r\n"])
@pytest.mark.parametrize(
    ("parts", "bodies"),
    [
        ((b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n"), [b"one", b"two"]),
        ((b"da", b"ta: one\n\ndata: [DONE]\n\n"), [b"one"]),
        ((b": wait\n\n", b"event: x\ndata: one\n\n", b"data: [DONE]\n\n"), [b"one"]),
        ((b"data: a",), [b"a"]),
        ((b'{"whole":', b" 1}"), [b'{"whole": 1}']),
        ((b"{}",), [b"{}"]),
        ((), [b""]),
    ],
)
def test_a_body_without_a_telling_type_is_what_it_begins_like(
    kind: bytes, parts: tuple[bytes, ...], bodies: list[bytes]
) -> None:
    head = b"HTTP/1.1 200 OK\r\n" + kind + b"Transfer-Encoding: chunked\r\n\r\n"
    found, outcome, _ = _answered(head, *(b"%x\r\n%b\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n", marker=_MARK)
    assert (found, outcome) == (bodies, None)


def test_json_is_no_event_stream_whatever_it_begins_like() -> None:
    assert _answered(plain(b"data: 1", headers=b"Content-Type: application/json\r\n"))[0] == [b"data: 1"]


@pytest.mark.parametrize("head_alone", [False, True])
def test_the_first_event_is_handed_on_at_once(head_alone: bool) -> None:
    seen: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.read_request()
        if head_alone:
            await peer.send(EVENTS_HEAD)
            await asyncio.sleep(0.05)
        await peer.send((b"" if head_alone else EVENTS_HEAD) + b"b\r\ndata: one\n\n\r\n")
        while not seen:
            await asyncio.sleep(0.001)
        await peer.send(chunked(b"data: two\n\n"))

    async def run() -> None:
        async with serving(script) as origin:
            caller = HttpCaller(origin)
            await caller.exchange(_ask(origin), lambda _, arrived: seen.extend(arrived), 10.0)
            await caller.close()

    uvloop.run(run())
    assert seen == [b"one", b"two"]


@pytest.mark.parametrize("spaces", [b"", b" ", b" \t"])
def test_end_marker_is_not_handed_on_and_nothing_behind_it(spaces: bytes) -> None:
    stream = chunked(b"data: one\n\n", b"data: [DONE]%b\n\n" % spaces, b"data: two\n\n")
    assert _answered(EVENTS_HEAD + stream, marker=_MARK) == ([b"one"], None, "")


def test_an_event_that_only_begins_like_the_end_marker_is_handed_on() -> None:
    stream = chunked(b"data: [DONE] or not\n\n", b"data: [DONE]\n\n")
    assert _answered(EVENTS_HEAD + stream, marker=_MARK) == ([b"[DONE] or not"], None, "")


def test_connection_that_is_lost_behind_the_end_marker_has_lost_nothing() -> None:
    cut = EVENTS_HEAD + chunked(b"data: one\n\ndata: [DONE]\n\n")[:-5]
    assert _answered(cut, marker=_MARK) == ([b"one"], None, "")


@pytest.mark.parametrize("in_one_piece", [True, False])
def test_a_message_that_goes_on_after_the_end_marker_is_not_waited_for(in_one_piece: bool) -> None:
    """As of a server that keeps the stream open; the answer is complete."""
    events = [b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n"]
    parts = [chunked(b"".join(events))] if in_one_piece else [chunked(event) for event in events]
    parts = [part.removesuffix(b"0\r\n\r\n") for part in parts]

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(EVENTS_HEAD, *parts)
        await asyncio.sleep(60)

    assert uvloop.run(_once(script, 30.0, _MARK)) == ([b"one", b"two"], None, "")


def test_stream_that_ends_in_order_without_its_marker_ends_with_that_remark() -> None:
    answered = _answered(EVENTS_HEAD + chunked(b"data: one\n\n"), marker=_MARK)
    assert answered == ([b"one"], None, "the stream ended without [DONE]")


@pytest.mark.parametrize("coding", [b"identity", b"Identity", b"", b"none"])
def test_an_answer_that_is_called_uncompressed_is_read(coding: bytes) -> None:
    assert _answered(plain(b"{}", headers=b"Content-Encoding: " + coding + b"\r\n")) == ([b"{}"], None, "")


def test_whole_body_needs_no_end_marker() -> None:
    assert _answered(plain(b"{}"), marker=_MARK) == ([b"{}"], None, "")


@pytest.mark.parametrize(
    ("parts", "outcome", "words"),
    [
        ((b"",), Outcome.STREAM_CUT, "the server closed the connection"),
        ((b"HTTP/1.1 20",), Outcome.STREAM_CUT, "the server closed the connection"),
        ((EVENTS_HEAD, b"b\r\ndata: one\n\n\r\n"), Outcome.STREAM_CUT, "the server closed the connection"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",), Outcome.STREAM_CUT, "the server closed the connection"),
        ((b"HTTP/1.1 500 E\r\nContent-Length: 9\r\n\r\nno",), Outcome.SERVER_ERROR, "HTTP status 500: no"),
        ((b"HTTP/1.1 429 E\r\nTransfer-Encoding: chunked\r\n\r\n",), Outcome.REFUSED, "HTTP status 429: the body"),
        ((b"SMTP ready\r\n",), Outcome.MALFORMED, "not HTTP"),
        ((plain(b"x", headers=b"Content-Encoding: gzip\r\n"),), Outcome.MALFORMED, "compressed"),
        ((EVENTS_HEAD.replace(b"chunked", b"gzip, chunked") + chunked(b"\x1f\x8b"),), Outcome.MALFORMED, "compressed"),
        (
            (plain(b"\x1f\x8b", b"429 Too Many Requests", b"Content-Encoding: gzip\r\n"),),
            Outcome.REFUSED,
            "HTTP status 429: the body of the answer is compressed",
        ),
        (
            (plain(b"\x1f\x8b", b"502 Bad Gateway", b"Content-Encoding: br\r\n"),),
            Outcome.SERVER_ERROR,
            "HTTP status 502: the body of the answer is compressed",
        ),
        ((plain(b'{"error": "no such model"}', b"404 Not Found"),), Outcome.SERVER_ERROR, "HTTP status 404: no such model"),
        ((plain(b"", b"500 Internal Server Error"),), Outcome.SERVER_ERROR, "HTTP status 500: "),
        ((plain(b"slow down", b"429 Too Many Requests"),), Outcome.REFUSED, "HTTP status 429: slow down"),
        ((plain(b'{"error": "Exceeds maximum queue size"}', b"503 Unavailable"),), Outcome.REFUSED, "maximum queue size"),
        ((plain(b'{"message": "The request queue is full."}', b"503 Unavailable"),), Outcome.REFUSED, "queue is full"),
        ((plain(b"", b"503 Unavailable", b"Retry-After: 1\r\n"),), Outcome.REFUSED, "HTTP status 503"),
        ((plain(b"no healthy upstream", b"503 Unavailable"),), Outcome.SERVER_ERROR, "no healthy upstream"),
        ((plain(b"", b"301 Moved", b"Location: http://there/\r\n"),), Outcome.SERVER_ERROR, "redirects to http://there/"),
        ((plain(b"", b"302 Found"),), Outcome.SERVER_ERROR, "HTTP status 302: the server redirects to no address"),
        (
            (EVENTS_HEAD.replace(b"200 OK", b"400 Bad Request") + chunked(b'data: {"error": "in an event"}\n\n'),),
            Outcome.SERVER_ERROR,
            "HTTP status 400: in an event",
        ),
        (
            (EVENTS_HEAD.replace(b"200 OK", b"404 Not Found") + chunked(b'{"reason": "no such model"}'),),
            Outcome.SERVER_ERROR,
            'HTTP status 404: {"reason": "no such model"}',
        ),
        (
            (plain(b"", b"404 Not Found"),),
            Outcome.SERVER_ERROR,
            "HTTP status 404: the body of the answer is empty",
        ),
        ((plain(b"<p>" + b" " * 5 + b"x" * 400, b"500 Broken"),), Outcome.SERVER_ERROR, "HTTP status 500: <p> " + "x" * 296),
        ((plain(b"x" * 400 + b" overloaded", b"500 Broken"),), Outcome.REFUSED, "HTTP status 500: x"),
    ],
)
def test_each_failure_has_its_kind(parts: tuple[bytes, ...], outcome: Outcome, words: str) -> None:
    _, found, problem = _answered(*parts)
    assert found is outcome
    assert words in problem


@pytest.mark.parametrize("body", [b'{"error": "\xe4"}', b"[" * 1_200, b"\xff"])
def test_an_error_that_cannot_be_read_is_one_of_the_server_at_once(body: bytes) -> None:
    answer = b"HTTP/1.1 500 Broken\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    bodies, outcome, problem = _answered(answer)
    assert (bodies, outcome) == ([], Outcome.SERVER_ERROR)
    assert "HTTP status 500" in problem


def test_a_fault_of_ours_at_the_end_of_an_answer_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(body: bytes) -> str:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(http1_pool, "server_message", broken)
    with pytest.raises(ZeroDivisionError, match="ours"):
        _answered(b"HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n")


def test_error_event_ends_the_exchange_and_keeps_what_came() -> None:
    stream = chunked(b"data: one\n\n", b'event: error\ndata: {"error": "the engine failed"}\n\n', b"data: two\n\n")
    bodies, outcome, problem = _answered(EVENTS_HEAD + stream)
    assert bodies[0] == b"one"
    assert (outcome, problem) == (Outcome.SERVER_ERROR, "the engine failed")


def test_connection_reset_in_the_middle_is_a_cut_stream() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(EVENTS_HEAD + b"b\r\ndata: one\n\n\r\n")
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await asyncio.sleep(0.1)
        peer.reset()

    bodies, outcome, problem = uvloop.run(_once(script))
    assert (bodies, outcome) == ([b"one"], Outcome.STREAM_CUT)
    assert "connection" in problem


def test_one_deadline_is_over_the_whole_exchange() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(EVENTS_HEAD)
        for _ in range(200):
            await peer.send(b"b\r\ndata: one\n\n\r\n")
            await asyncio.sleep(0.05)

    bodies, outcome, problem = uvloop.run(_once(script, timeout_s=1.5))
    assert len(bodies) >= 1
    assert (outcome, problem) == (Outcome.TIMEOUT, "no end within 1.5 s")


@pytest.mark.parametrize("how", ["time out", "cancel"])
def test_connection_of_a_cancelled_exchange_is_closed(how: str) -> None:
    async def run() -> tuple[bool, bool]:
        closed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        reached = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.read_request()
            await peer.send(EVENTS_HEAD)
            reached.set()
            closed.set_result(await peer.closed_by_client())

        async with serving(script) as origin:
            caller = HttpCaller(origin)
            task = asyncio.create_task(exchange(caller, _ask(origin), 2.0 if how == "time out" else 30.0))
            await reached.wait()
            if how == "cancel":
                task.cancel()
            await asyncio.wait([task])
            assert len(caller._open) <= 1
            result = await closed, task.cancelled()
            await caller.close()
            return result

    assert uvloop.run(run()) == (True, how == "cancel")


# ---- connecting


def test_connecting_in_vain_leaves_nothing_behind() -> None:
    async def run() -> None:
        port = closed_port()
        for number in range(6):
            if number == 1:  # the first opens what stays for good
                gc.collect()
                before = len(os.listdir("/proc/self/fd"))
            with pytest.raises(ExchangeFailedError):
                await HttpCaller(Origin("http", "127.0.0.1", port)).connect(5.0)
        assert len(os.listdir("/proc/self/fd")) <= before

    uvloop.run(run())


def test_no_server() -> None:
    async def run() -> tuple[str, Answered]:
        caller = HttpCaller(Origin("http", "127.0.0.1", closed_port()))
        with pytest.raises(ExchangeFailedError) as caught:
            await caller.connect(5.0)
        assert caught.value.outcome is Outcome.CONNECT
        return str(caught.value), await exchange(caller, b"x")

    problem, answered = uvloop.run(run())
    assert problem == "cannot connect: Connection refused"
    assert answered == ([], Outcome.CONNECT, "cannot connect: Connection refused")


def test_name_that_does_not_exist() -> None:
    async def run() -> None:
        await HttpCaller(Origin("http", "nosuch.invalid", 80)).connect(20.0)

    with pytest.raises(ExchangeFailedError, match="cannot connect") as caught:
        uvloop.run(run())
    assert caught.value.outcome is Outcome.CONNECT


def test_time_that_connecting_takes_is_within_the_deadline() -> None:
    """A server that takes the connection and never answers TLS's greeting."""

    async def script(peer: Peer) -> None:
        await peer.reader.read()

    async def run() -> Answered:
        async with serving(script) as origin:
            caller = HttpCaller(Origin("https", origin.host, origin.port))
            with pytest.raises(ExchangeFailedError, match=r"no connection within 0\.2 s"):
                await caller.connect(0.2)
            return await exchange(caller, b"x", 0.2)

    assert uvloop.run(run()) == ([], Outcome.CONNECT, "no connection within 0.2 s")


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_names_and_ipv6(host: str) -> None:
    if host == "::1":
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")

    async def script(peer: Peer) -> None:
        head, _ = await peer.read_request()
        await peer.send(plain(head.split(b"\r\n")[1]))

    async def run() -> tuple[Answered, str]:
        async with serving(script, host="127.0.0.1" if host == "localhost" else host) as served:
            origin = Origin("http", host, served.port)
            caller = HttpCaller(origin)
            await caller.connect(5.0)
            answered = await exchange(caller, _ask(origin))
            await caller.close()
            return answered, origin.authority

    answered, authority = uvloop.run(run())
    assert answered == ([f"host: {authority}".encode()], None, "")


def _certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file."""
    made = folder / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key"), "-out", str(folder / "certificate")]
    subprocess.run([*command, *files], check=True, capture_output=True)
    made.write_text((folder / "key").read_text() + (folder / "certificate").read_text())
    return made


def test_tls_is_spoken_with_servers_that_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = _certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def script(peer: Peer) -> None:
        for _ in range(2):
            await peer.read_request()
            await peer.send(EVENTS_HEAD + chunked(b"data: %d\n\n" % peer.number))

    async def run() -> list[Answered]:
        async with serving(script, context) as origin:
            caller = HttpCaller(origin)
            answers = [await exchange(caller, _ask(origin)) for _ in range(2)]
            await caller.close()
            return answers

    [(_, outcome, problem), _] = uvloop.run(run())
    assert outcome is Outcome.CONNECT
    assert "certificate is not trusted" in problem
    assert "SSL_CERT_FILE" in problem
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert uvloop.run(run()) == [([b"0"], None, "")] * 2  # both on one connection


def test_tls_is_not_spoken_with_a_server_that_does_not_speak_it() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(plain(b"no TLS", b"400 Bad Request"))

    async def run() -> Answered:
        async with serving(script) as origin:
            secure = Origin("https", origin.host, origin.port)
            return await exchange(HttpCaller(secure), _ask(secure))

    _, outcome, problem = uvloop.run(run())
    assert (outcome, "cannot connect: the server does not speak TLS at this port" in problem) == (Outcome.CONNECT, True)


def test_over_tls_the_end_of_the_request_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = _certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(EVENTS_HEAD)
        await asyncio.sleep(0.05)
        await peer.send(chunked(b"data: one\n\n"))

    end, [first_ns], _ = _ask_once(script, bytes(1_000_000), context)
    assert end.written_ns is None
    assert end.head_ns is not None
    assert end.head_ns < first_ns


# ---- connections, kept and replaced


async def _keep_answering(peer: Peer) -> None:
    """Answer every request with the connection's number and the request's."""
    while True:
        await peer.read_request()
        await peer.send(plain(b"%d.%d" % (peer.number, len(peer.received))))


def test_connection_is_used_again_and_as_many_are_open_as_were_in_flight() -> None:
    async def run() -> None:
        async with serving(_keep_answering) as origin:
            caller = HttpCaller(origin)
            await caller.connect(5.0)
            assert [(await exchange(caller, _ask(origin)))[0] for _ in range(3)] == [[b"0.1"], [b"0.2"], [b"0.3"]]
            assert len(caller._open) == 1
            at_once = await asyncio.gather(*(exchange(caller, _ask(origin)) for _ in range(20)))
            assert len({bodies[0] for bodies, _, _ in at_once}) == 20
            assert len(caller._open) == 20
            at_once = await asyncio.gather(*(exchange(caller, _ask(origin)) for _ in range(20)))
            assert len(caller._open) == 20
            await caller.close()
            assert len(caller._open) == 0

    uvloop.run(run())


def test_connections_are_there_before_the_requests_that_need_them() -> None:
    async def run() -> None:
        async with serving(_keep_answering) as origin:
            caller = HttpCaller(origin)
            await caller.connect(5.0)
            await caller.prepare(120, 5.0)
            assert len(caller._open) == 120
            at_once = await asyncio.gather(*(exchange(caller, _ask(origin)) for _ in range(120)))
            assert len({bodies[0] for bodies, _, _ in at_once}) == 120
            await caller.prepare(7, 5.0)
            assert len(caller._open) == 120
            caller.reset_usage()  # the run starts
            await asyncio.gather(*(exchange(caller, _ask(origin)) for _ in range(121)))
            assert caller.usage(0) == ConnectionUsage(per_worker=120, opened=121)
            await caller.close()

    uvloop.run(run())


def test_connection_that_the_server_closed_while_idle_is_replaced_unnoticed() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(plain(b"%d" % peer.number))  # and closes without announcing it

    async def run() -> list[Answered]:
        async with serving(script) as origin:
            caller = HttpCaller(origin)
            answers = []
            for _ in range(4):
                answers.append(await exchange(caller, _ask(origin)))
                await asyncio.sleep(0.05)
            await caller.close()
            return answers

    assert uvloop.run(run()) == [([b"%d" % number], None, "") for number in range(4)]


def test_connection_that_was_idle_too_long_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_pool, "_LONGEST_IDLE_NS", 0)

    async def run() -> list[Answered]:
        async with serving(_keep_answering) as origin:
            caller = HttpCaller(origin)
            answers = [await exchange(caller, _ask(origin)) for _ in range(3)]
            await asyncio.sleep(0.05)
            assert len(caller._open) == 1
            await caller.close()
            return answers

    assert uvloop.run(run()) == [([b"%d.1" % number], None, "") for number in range(3)]


def test_request_that_the_server_may_have_begun_is_never_sent_again() -> None:
    received: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(plain(b"{}"))
        await peer.read_request()
        received.append(peer.number)  # and closes the connection: it read the request, and may have processed it

    async def run() -> list[Answered]:
        async with serving(script) as origin:
            caller = HttpCaller(origin)
            answers = [await exchange(caller, _ask(origin)) for _ in range(2)]
            await asyncio.sleep(0.1)
            await caller.close()
            return answers

    first, second = uvloop.run(run())
    assert first[1] is None
    assert second[:2] == ([], Outcome.STREAM_CUT)
    assert second[2] == "the server closed the connection, kept from an earlier request, before an answer began"
    assert received == [0]


@contextmanager
def _in_thread(serve: Callable[[socket.socket], None]) -> Iterator[Origin]:
    """A server of bare sockets: what the kernel does with bytes is what these tests are about."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.settimeout(20)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield Origin("http", "127.0.0.1", listener.getsockname()[1])
        finally:
            thread.join()


def _accept(listener: socket.socket) -> socket.socket:
    accepted, _ = listener.accept()
    accepted.settimeout(20)
    return accepted


def _read_request(connection: socket.socket) -> int:
    """Read one request; returns the length of its body."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        raw += connection.recv(1 << 20)
    head, _, body = raw.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    seen = len(body)
    while seen < length:
        seen += len(connection.recv(1 << 20))
    return length


_LARGE = b"x" * 30_000_000  # more than the kernel's buffers on both sides hold


def _half_close(connection: socket.socket) -> None:
    """End the stream without having read the request."""
    time.sleep(0.3)
    connection.shutdown(socket.SHUT_WR)


def test_a_loop_that_is_late_after_the_end_marker_keeps_the_connection() -> None:
    """The rest of the message comes while the loop is blocked, which is no fault of the server."""
    is_blocked, is_whole = threading.Semaphore(0), threading.Semaphore(0)

    def serve(listener: socket.socket) -> None:
        with _accept(listener) as connection:
            for _ in range(2):
                _read_request(connection)
                whole = EVENTS_HEAD + chunked(b"data: one\n\ndata: [DONE]\n\n")
                connection.sendall(whole[:-5])
                assert is_blocked.acquire(timeout=60)
                connection.sendall(whole[-5:])
                is_whole.release()

    def block(_times: object, bodies: Sequence[bytes]) -> None:
        if bodies:
            is_blocked.release()
            assert is_whole.acquire(timeout=60)
        time.sleep(0.3)  # longer than the loop would have waited for the rest

    async def twice(origin: Origin) -> int:
        caller = HttpCaller(origin, _MARK)
        await caller.connect(5.0)
        try:
            for _ in range(2):
                await caller.exchange(_ask(origin), block, 60.0)
            return caller.usage(0).opened
        finally:
            await caller.close()

    with _in_thread(serve) as origin:
        assert uvloop.run(twice(origin)) == 1


def test_request_that_the_server_never_had_is_sent_once_more() -> None:
    read: list[int] = []

    def serve(listener: socket.socket) -> None:
        with _accept(listener) as first:
            read.append(_read_request(first))
            first.sendall(plain(b"first"))
            _half_close(first)
            with _accept(listener) as second:
                read.append(_read_request(second))
                second.sendall(plain(b"second"))
                second.recv(1)

    async def run(origin: Origin) -> list[Answered]:
        caller = HttpCaller(origin)
        answers = [await exchange(caller, _ask(origin)), await exchange(caller, _ask(origin, _LARGE))]
        await caller.close()
        return answers

    with _in_thread(serve) as origin:
        assert uvloop.run(run(origin)) == [([b"first"], None, ""), ([b"second"], None, "")]
    assert read == [10, len(_LARGE)]


def test_new_connection_that_the_server_ends_before_it_had_the_request_is_a_failure() -> None:
    accepted: list[int] = []

    def serve(listener: socket.socket) -> None:
        with _accept(listener) as only:
            accepted.append(1)
            _half_close(only)
            time.sleep(0.5)
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()

    async def run(origin: Origin) -> Answered:
        caller = HttpCaller(origin)
        answered = await exchange(caller, _ask(origin, _LARGE))
        await caller.close()
        return answered

    with _in_thread(serve) as origin:
        assert uvloop.run(run(origin)) == ([], Outcome.STREAM_CUT, "the server closed the connection before an answer began")
    assert accepted == [1]


def test_two_hundred_exchanges_at_once_all_end() -> None:
    async def script(peer: Peer) -> None:
        while True:
            _, body = await peer.read_request()
            await peer.send(EVENTS_HEAD + chunked(*(b"data: " + body + b"\n\n" for _ in range(5))))

    async def run() -> list[Answered]:
        async with serving(script) as origin:
            caller = HttpCaller(origin)
            asked: list[Awaitable[Answered]] = [exchange(caller, _ask(origin, b"%d" % k), 60.0) for k in range(200)]
            answers = list(await asyncio.gather(*asked))
            await caller.close()
            return answers

    assert uvloop.run(run()) == [([b"%d" % k] * 5, None, "") for k in range(200)]


@pytest.mark.parametrize(
    ("header", "upstream_ms", "router_ms"),
    [
        (b"X-Envoy-Upstream-Service-Time: 20", 20, None),
        (b"x-litellm-overhead-duration-ms: 12.25", None, 12.25),
        (b"x-other: 1", None, None),
    ],
)
def test_a_request_through_a_router_says_how_long_it_was_there(
    header: bytes, upstream_ms: float | None, router_ms: float | None
) -> None:
    """The head comes after 50 ms, on a connection that was open."""
    asked_ns: list[int] = []
    had_ns: list[int] = []
    answers_ns: list[int] = []
    arrived_ns: list[int] = []

    async def script(peer: Peer) -> None:
        for pause_s in (0.0, 0.05):
            await peer.read_request()
            had_ns.append(now_ns())
            await asyncio.sleep(pause_s)
            answers_ns.append(now_ns())
            await peer.send(EVENTS_HEAD.replace(b"\r\n", b"\r\n%b\r\n" % header, 1))
            await asyncio.sleep(0.02)
            await peer.send(chunked(b"data: one\n\n"))

    async def run() -> AnswerEnd:
        async with serving(script) as origin:
            caller = HttpCaller(origin)
            await caller.exchange(_ask(origin), lambda _, arrived: None, 10.0)
            asked_ns.append(now_ns())
            end = await caller.exchange(_ask(origin), lambda times_ns, _: arrived_ns.extend(times_ns), 10.0)
            await caller.close()
            return end

    end = uvloop.run(run())
    if upstream_ms is None:
        assert end.router_ns == (None if router_ms is None else router_ms * 1e6)
        return
    assert end.router_ns is not None
    waited_ns = end.router_ns + (upstream_ms + 0.5) * 1e6  # half a ms is what Envoy cuts off on average
    assert answers_ns[-1] - had_ns[-1] <= waited_ns <= arrived_ns[-1] - asked_ns[-1]
    assert (end.missing, end.connect_ns) == (None, None)


def test_a_request_that_opens_a_connection_says_how_long_that_took() -> None:
    async def script(peer: Peer) -> None:
        for _ in range(2):
            await peer.read_request()
            await peer.send(EVENTS_HEAD + chunked(b"data: one\n\n"))

    async def run() -> None:
        async with serving(script) as origin:
            caller = HttpCaller(origin)
            opening = await caller.exchange(_ask(origin), lambda _, arrived: None, 10.0)
            assert opening.missing is None
            assert opening.connect_ns is not None
            assert 0 < opening.connect_ns < 5_000_000_000
            over_the_same = await caller.exchange(_ask(origin), lambda _, arrived: None, 10.0)
            assert over_the_same.connect_ns is None
            await caller.close()

    uvloop.run(run())


def _ask_once(script: Script, body: bytes = b"{}", trusted: ssl.SSLContext | None = None) -> tuple[AnswerEnd, list[int], int]:
    """The end of one answer, when its events arrived, and when the request was made."""

    async def run() -> tuple[AnswerEnd, list[int], int]:
        arrived_ns: list[int] = []
        async with serving(script, trusted) as origin:
            caller = HttpCaller(origin)
            await caller.connect(5.0)
            asked_ns = now_ns()
            end = await caller.exchange(_ask(origin, body), lambda times_ns, _: arrived_ns.extend(times_ns), 10.0)
            await caller.close()
        return end, arrived_ns, asked_ns

    return uvloop.run(run())


def test_the_head_has_a_time_of_its_own_where_it_comes_before_the_first_event() -> None:
    sent_ns: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.read_request()
        for part in (EVENTS_HEAD, chunked(b"data: one\n\n")):
            await asyncio.sleep(0.3)
            sent_ns.append(now_ns())
            await peer.send(part)

    end, [first_ns], asked_ns = _ask_once(script)
    assert end.written_ns is not None
    assert end.head_ns is not None
    assert asked_ns <= end.written_ns < sent_ns[0] <= end.head_ns < sent_ns[1] <= first_ns


@pytest.mark.parametrize("opens", [True, False])
def test_a_request_that_is_cancelled_keeps_the_times_that_it_had(opens: bool) -> None:
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(EVENTS_HEAD + b"b\r\ndata: one\n\n\r\n")
        await ended.wait()

    async def run() -> AnswerEnd | None:
        async with serving(script) as origin:
            caller = HttpCaller(origin)
            if not opens:
                await caller.connect(5.0)
            try:
                return await end_when_cancelled(lambda seen: caller.exchange_at_once(_ask(origin), seen, 10.0))
            finally:
                ended.set()
                await caller.close()

    end = uvloop.run(run())
    assert_has_times(end)
    assert end is not None
    assert (end.connect_ns is not None) is opens


@pytest.mark.parametrize("answer", [EVENTS_HEAD + chunked(b"data: one\n\n"), plain(b"{}")])
def test_a_head_that_comes_with_the_answer_has_its_time(answer: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(answer)

    end, [arrived_ns], _ = _ask_once(script)
    assert end.head_ns == arrived_ns


def test_a_head_of_a_preliminary_answer_is_not_that_of_the_answer() -> None:
    early_ns: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await asyncio.sleep(0.05)
        early_ns.append(now_ns())
        await peer.send(plain(b"{}"))

    end, _, _ = _ask_once(script)
    assert (end.head_ns or 0) >= early_ns[0]


def test_a_request_that_the_kernel_does_not_take_at_once_is_written_when_it_has_the_last_byte() -> None:
    begun_ns: list[int] = []

    async def script(peer: Peer) -> None:
        await asyncio.sleep(0.05)  # beside 16 MB, which no socket holds
        begun_ns.append(now_ns())
        await peer.read_request()
        await peer.send(plain(b"{}"))

    end, _, _ = _ask_once(script, bytes(16_000_000))
    assert end.written_ns is not None
    assert end.head_ns is not None
    assert begun_ns[0] < end.written_ns < end.head_ns


def test_an_answer_before_the_whole_request_leaves_the_end_of_the_request_unknown() -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(plain(b"{}"))

    end, _, _ = _ask_once(script, bytes(16_000_000))
    assert end.written_ns is None
    assert end.head_ns is not None


def test_an_attempt_over_a_closed_connection_is_a_part_of_the_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    send_over = HttpCaller._send_over
    attempts: list[HttpCaller] = []

    async def closed_at_first(caller: HttpCaller, *sent: object) -> AnswerEnd:
        attempts.append(caller)
        if len(attempts) == 2:
            await asyncio.sleep(0.05)
            raise http1_pool._UnprocessedError(Outcome.STREAM_CUT, "closed")
        return await send_over(caller, *sent)  # type: ignore[arg-type]

    async def run() -> AnswerEnd:
        async with serving(_keep_answering) as origin:
            caller = HttpCaller(origin)
            await caller.exchange(_ask(origin), lambda _, arrived: None, 10.0)
            monkeypatch.setattr(HttpCaller, "_send_over", closed_at_first)
            attempts.append(caller)
            end = await caller.exchange(_ask(origin), lambda _, arrived: None, 10.0)
            await caller.close()
            return end

    end = uvloop.run(run())
    assert end.connect_ns is not None
    assert end.connect_ns >= 40_000_000


def test_a_connection_has_a_time_of_its_own_within_the_deadline() -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.read()

    async def run() -> Answered:
        async with serving(script) as origin:
            caller = HttpCaller(Origin("https", origin.host, origin.port), connection_timeout_s=0.2)
            return await exchange(caller, b"x", 30.0)

    assert uvloop.run(run()) == ([], Outcome.CONNECT, "no connection within 0.2 s")
