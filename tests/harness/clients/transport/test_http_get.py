"""GETs over a connection that is kept open."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import pytest

from harness.clients.transport import http_get
from harness.clients.transport.http_get import GetError, HttpGetter
from harness.clients.transport.url import HttpUrl
from tests.free_port import closed_port
from tests.harness.metrics_server import MetricsServer, metrics_server


def _getter(server: MetricsServer) -> HttpGetter:
    return HttpGetter(HttpUrl("http", "127.0.0.1", server.port, "/metrics"))


def test_every_get_goes_over_one_connection() -> None:
    with metrics_server(lambda number: (200, b"x" * 200_000 + str(number).encode())) as server:
        getter = _getter(server)
        assert [getter.get()[200_000:] for _ in range(3)] == [b"0", b"1", b"2"]
        getter.close()
    assert server.gets == ["/metrics"] * 3
    assert len(server.clients) == 1


def test_a_connection_that_the_server_closed_meanwhile_is_no_failure() -> None:
    with metrics_server(lambda number: (200, b"one"), keep_alive=False) as server:
        getter = _getter(server)
        assert [getter.get(), getter.get()] == [b"one", b"one"]
        getter.close()
    assert len(server.clients) == 2


def test_failures_are_raised_and_the_next_get_may_succeed() -> None:
    answers = [(404, b"no such page"), None, (200, b"well")]
    with metrics_server(answers.__getitem__) as server:
        getter = _getter(server)
        with pytest.raises(GetError, match="404"):
            getter.get()
        with pytest.raises(GetError):
            getter.get()
        assert getter.get() == b"well"
        getter.close()


def test_no_server() -> None:
    with pytest.raises(GetError, match="refused"):
        HttpGetter(HttpUrl("http", "127.0.0.1", closed_port(), "/metrics")).get()


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_get, "_MAX_BODY_BYTES", 1000)
    with metrics_server(lambda number: (200, b"x" * 300_000)) as server:
        getter = _getter(server)
        with pytest.raises(GetError, match="longer"):
            getter.get()


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with metrics_server(lambda number: (200, b"direct")) as server:
        getter = _getter(server)
        assert getter.get() == b"direct"
        getter.close()


def test_headers_are_sent_with_every_get() -> None:
    with metrics_server(lambda number: (200, b"")) as server:
        getter = HttpGetter(HttpUrl("http", "127.0.0.1", server.port, "/metrics"), (("X-Key", "a"),))
        getter.get()
        getter.get()
        getter.close()
    assert [headers["X-Key"] for headers in server.headers] == ["a", "a"]


@pytest.mark.parametrize("opening", [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Slow: "])
def test_an_answer_that_trickles_is_given_up_in_time(opening: bytes) -> None:
    def trickle() -> None:
        end, _ = server.accept()
        with suppress(OSError), end:
            end.sendall(opening)
            for _ in range(1_200):
                end.sendall(b"x")
                time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=trickle)
        thread.start()
        getter = HttpGetter(HttpUrl("http", "127.0.0.1", server.getsockname()[1], "/"), timeout_s=0.3)
        with pytest.raises(GetError, match=r"longer than 0\.3 s"):
            getter.get()
        thread.join(120)
        assert not thread.is_alive()  # else it could still send, for a minute
