"""The live page of a distributed run, over real HTTP to the process that serves it."""

from __future__ import annotations

import http.client
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import psutil
import pytest

from bench_cli.worker import worker_command
from harness.distribution.page_guard import LiveAddress, PageGuard
from harness.distribution.remote_pool import Master, RemotePool
from harness.errors import RunError
from harness.run.shared_state import Command
from tests.free_port import free_port

_TOKEN = "a-token-of-this-run"


@pytest.fixture(scope="module")
def pool_and_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RemotePool, int]]:
    if find_spec("locust") is None:
        pytest.skip("needs locust")
    port = free_port()
    pool = RemotePool(Master("127.0.0.1", 0, 1, wait_s=5.0, page=LiveAddress("127.0.0.1", port, _TOKEN)), lambda _: None)
    worker = None
    try:
        folder = tmp_path_factory.mktemp("worker")
        worker = subprocess.Popen(worker_command("127.0.0.1", pool.open(), folder), stderr=subprocess.DEVNULL)
        deadline_s = time.monotonic() + 120
        while not pool._peers and time.monotonic() < deadline_s:  # without a worker the button has no effect
            time.sleep(0.05)
        yield pool, port
    finally:
        pool.close()
        if worker is not None:
            worker.kill()
            worker.wait()


def _ask(port: int, method: str, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


def test_the_url_with_the_token_opens_the_page_and_its_cookie_serves_the_rest(pool_and_port: tuple[RemotePool, int]) -> None:
    _, port = pool_and_port
    opened = _ask(port, "GET", f"/?token={_TOKEN}")
    assert opened.status == 200
    cookie = opened.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    rest = _ask(port, "GET", "/stats/requests", Cookie=cookie.partition(";")[0], Origin=f"http://127.0.0.1:{port}")
    assert rest.status == 200


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/stop", {}),
        ("/stop?token=another", {}),
        ("/stop?token=" + _TOKEN, {"Origin": "https://evil.example"}),
        ("/stop?token=" + _TOKEN, {"Origin": "null"}),
        ("/stop?token=" + _TOKEN, {"Host": "evil.example"}),
        ("/stop?token=" + _TOKEN, {"Host": "127.0.0.1:1"}),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_another_web_page_can_neither_stop_the_run_nor_read_it(
    pool_and_port: tuple[RemotePool, int], method: str, path: str, headers: dict[str, str]
) -> None:
    pool, port = pool_and_port
    assert _ask(port, method, path, **headers).status == 403
    assert pool._command is Command.RUN


def test_the_token_is_not_in_the_list_of_processes(pool_and_port: tuple[RemotePool, int]) -> None:
    lines = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # also of a zombie of an earlier test
            lines.append(" ".join(child.cmdline()))
    assert any("locust_master" in line for line in lines)
    assert not [line for line in lines if _TOKEN in line]


def test_the_button_of_the_page_stops_the_run(pool_and_port: tuple[RemotePool, int]) -> None:
    pool, port = pool_and_port
    _ask(port, "POST", "/stop", Cookie=f"bench-live-{port}={_TOKEN}", Origin=f"http://127.0.0.1:{port}")
    deadline_s = time.monotonic() + 120
    while pool._command is Command.RUN and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert pool._command is not Command.RUN


@pytest.mark.parametrize(
    ("bound", "host", "admitted"),
    [
        ("127.0.0.1", "localhost:8089", True),
        ("localhost", "127.0.0.1:8089", True),
        ("::1", "[::1]:8089", True),
        ("10.0.0.2", "10.0.0.2:8089", True),
        ("10.0.0.2", "localhost:8089", False),
        ("0.0.0.0", "192.0.2.7:8089", True),
        ("0.0.0.0", "evil.example:8089", False),
        ("127.0.0.1", "[::1:8089", False),
        ("127.0.0.1", "127.0.0.1:port", False),
        ("127.0.0.1", "", False),
    ],
)
def test_the_host_is_the_page_s_own(bound: str, host: str, admitted: bool) -> None:
    guard = PageGuard(LiveAddress(bound, 8089, _TOKEN))
    assert (guard.refusal(host, None, (_TOKEN,)) is None) == admitted


def test_the_url_has_the_token_and_the_representation_has_not() -> None:
    address = LiveAddress("::1", 8089, _TOKEN)
    assert address.url == f"http://[::1]:8089/?token={_TOKEN}"
    assert _TOKEN not in repr(address)


def test_a_name_of_two_addresses_is_tried_at_the_one_at_which_locust_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """On most machines localhost is ::1, too, and Locust listens at 127.0.0.1."""
    asked = socket.getaddrinfo

    def both(host: str | None, port: int, family: int = 0, *arguments: int, **named: int) -> list[Any]:
        own = asked("127.0.0.1", port, socket.AF_INET, *arguments, **named)
        other = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))
        return own if family == socket.AF_INET else [other, *own]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RunError, match="the page cannot be opened there"):
        LiveAddress("localhost", taken.getsockname()[1], "t").check()
