"""HTTP through the proxy's process: what reaches the server, what is refused, and how answers pass."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import time
import zlib

import pytest

from serving.launch.addresses import ServerAddresses
from tests.serving.proxy.conftest import BOUNDS, MANY, Proxied, many_connections

_WAIT_S = 20.0


def _ask(address: str, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=_WAIT_S)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _exchange(addresses: ServerAddresses, sent: bytes) -> bytes:
    """All that the proxy answers to ``sent`` until it closes the connection."""
    with socket.create_connection((addresses.host, addresses.http_port), _WAIT_S) as client:
        received = b""
        try:
            client.sendall(sent)
            while part := client.recv(65536):
                received += part
        except ConnectionError:
            pass
        return received


def test_body_of_small_chunks_reaches_the_server_with_its_length(proxied: Proxied) -> None:
    sent = b"POST /v2/x?y=%2f HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    sent += b"Connection: close, X-Gone\r\nX-Gone: 1\r\ntriton-admin-key: k3y\r\n\r\n"
    answer = _exchange(proxied.addresses, sent + b"1\r\na\r\n" * 4000 + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    ((_, path, headers, body),) = proxied.upstream.requests
    assert (path, body) == ("/v2/x?y=%2f", b"a" * 4000)
    assert headers["content-length"] == "4000"
    assert headers["triton-admin-key"] == "k3y"
    assert not {"transfer-encoding", "x-gone", "user-agent"} & set(headers)


def test_body_of_too_many_small_chunks_is_refused(proxied: Proxied) -> None:
    head = b"POST /v2/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b"chunks of less than 16 bytes" in _exchange(proxied.addresses, head + b"1\r\na\r\n" * 4500)
    assert not proxied.upstream.requests


def test_answer_passes_with_its_status_and_headers_but_those_of_the_connection(proxied: Proxied) -> None:
    connection = http.client.HTTPConnection(proxied.addresses.http, timeout=_WAIT_S)
    connection.request("GET", "/v2/created", headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["X-Kept"], answer.headers["X-Hop"]) == (201, "1", None)
    assert json.loads(gzip.decompress(answer.read())) == {"path": "/v2/created", "bytes": 0}
    connection.close()


def test_each_part_of_an_answer_passes_before_the_next_is_there(proxied: Proxied) -> None:
    connection = http.client.HTTPConnection(proxied.addresses.http, timeout=_WAIT_S)
    connection.request("POST", "/v2/parts", b"{}")
    answer = connection.getresponse()
    assert answer.read1() == b"first"
    proxied.upstream.go_on.set()
    assert answer.read() == b"second"
    connection.close()


def test_client_that_leaves_ends_its_request_to_the_server(proxied: Proxied) -> None:
    with socket.create_connection((proxied.addresses.host, proxied.addresses.http_port), _WAIT_S) as client:
        client.sendall(b"POST /v2/endless HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        assert client.recv(100)
    assert proxied.upstream.client_left.wait(_WAIT_S)


def test_client_that_does_not_read_ends_its_request_to_the_server(proxied: Proxied) -> None:
    with socket.create_connection((proxied.addresses.host, proxied.addresses.http_port), _WAIT_S) as client:
        client.sendall(b"POST /v2/endless HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        assert proxied.upstream.client_left.wait(_WAIT_S)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (403, {"Origin": "http://evil.example", "Content_Type": "text/plain"}),
        (403, {"Host": "evil.example"}),
        (403, {"Sec_Fetch_Site": "cross-site"}),
        (415, {"Content_Encoding": "br"}),
        (200, {"Host": "gpu1.example:8000"}),
        (200, {"Origin": "http://localhost", "Host": "localhost"}),
    ],
)
def test_headers_decide_whether_a_request_reaches_the_server(proxied: Proxied, status: int, headers: dict[str, str]) -> None:
    answered, body = _ask(proxied.addresses.http, "POST", "/v2/x", b"{}", **headers)
    assert answered == status
    assert bool(proxied.upstream.requests) == (status == 200)
    assert status == 200 or json.loads(body)["error"]


@pytest.mark.parametrize(
    ("port", "method", "path", "status"),
    [
        ("http", "GET", "/metrics", 404),
        ("http", "GET", "http://localhost/v2/x", 404),
        ("http", "DELETE", "/v2/x", 405),
        ("metrics", "GET", "/metrics", 200),
        ("metrics", "POST", "/metrics", 405),
        ("metrics", "POST", "/v2/x", 404),
    ],
)
def test_only_tritons_paths_and_methods_are_forwarded(proxied: Proxied, port: str, method: str, path: str, status: int) -> None:
    assert _ask(getattr(proxied.addresses, port), method, path)[0] == status
    assert not proxied.upstream.requests


def test_body_longer_than_the_bound_is_refused_in_each_framing(proxied: Proxied) -> None:
    longer = b"a" * (BOUNDS.body_bytes + 1)
    assert _ask(proxied.addresses.http, "POST", "/v2/x", longer)[0] == 413
    head = b"POST /v2/x HTTP/1.1\r\nHost: localhost\r\n"
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(longer), longer)
    assert b" 413 " in _exchange(proxied.addresses, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked)
    bomb = zlib.compress(b"\0" * 50_000_000)
    assert len(bomb) < BOUNDS.body_bytes
    assert _ask(proxied.addresses.http, "POST", "/v2/x", bomb, Content_Encoding="deflate")[0] == 413
    assert not proxied.upstream.requests


def test_compressed_body_reaches_the_server_as_it_was(proxied: Proxied) -> None:
    assert _ask(proxied.addresses.http, "POST", "/v2/x", gzip.compress(b"text"), Content_Encoding="gzip")[0] == 200
    ((_, _, headers, body),) = proxied.upstream.requests
    assert (body, headers["content-length"]) == (b"text", "4")
    assert "content-encoding" not in headers


def test_json_that_would_overflow_a_parser_is_refused_and_tensors_after_it_are_not_read(proxied: Proxied) -> None:
    status, answer = _ask(proxied.addresses.http, "POST", "/v2/x", b"[" * 1000)
    assert (status, json.loads(answer)) == (400, {"error": "the JSON of this request is nested too deeply"})
    binary = b"{}" + b"[" * 1000
    assert _ask(proxied.addresses.http, "POST", "/v2/x", binary, Inference_Header_Content_Length="2")[0] == 200
    assert [body for *_, body in proxied.upstream.requests] == [binary]


def test_client_that_waits_to_be_asked_for_its_body_is_asked(proxied: Proxied) -> None:
    with socket.create_connection((proxied.addresses.host, proxied.addresses.http_port), _WAIT_S) as client:
        client.sendall(b"POST /v2/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"{}")
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "head",
    [b"GET /v2/" + b"a" * 40_000, b"GET /v2/x HTTP/1.1\r\nX: " + b"a" * 40_000, b"GET /v2/x HTTP/1.1\r\n" + b"X: a\r\n" * 400],
)
def test_head_longer_than_the_bound_ends_the_connection(proxied: Proxied, head: bytes) -> None:
    assert b" 400 " in _exchange(proxied.addresses, head + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET /v2/x HTTP/1.1\r\nHost: loc", b""),
        (b"POST /v2/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{", b"HTTP/1.1 408 "),
    ],
)
def test_request_that_does_not_arrive_in_time_ends_its_connection(proxied: Proxied, sent: bytes, answer: bytes) -> None:
    started = time.monotonic()
    received = _exchange(proxied.addresses, sent)
    assert received.startswith(answer)
    assert bool(received) == bool(answer)
    assert time.monotonic() - started >= BOUNDS.receive_timeout_s * 0.9


def test_connections_beyond_the_bound_are_closed_and_the_others_served(proxied: Proxied) -> None:
    first = http.client.HTTPConnection(proxied.addresses.http, timeout=_WAIT_S)
    first.request("GET", "/v2/x")
    assert first.getresponse().read()
    with many_connections(proxied.addresses.host, proxied.addresses.http_port) as closed:
        first.request("GET", "/v2/x")
        assert first.getresponse().status == 200
        assert closed >= MANY - BOUNDS.connections
    first.close()
