"""A server whose certificate is not in order: one sentence with what to do, over HTTPS and gRPC."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import pytest

from bench_cli import run
from bench_errors import ExitStatus
from harness.clients.transport.certificates import CLIENT_CERTIFICATE, refused_client
from tests.certificates import Certificates, Flaw, make_certificates
from tests.harness.threaded_http import threaded_http

_PROBLEMS: dict[Flaw, str] = {
    "name": "the server's certificate is for another name; give --url the name or address that it was made for",
    "expired": "the server's certificate has expired, or this machine's clock is wrong; the server needs a new certificate",
    "early": "the server's certificate is not valid yet: compare this machine's clock with the server's",
}
_SELF_SIGNED = "the server's certificate is not trusted ({}); where you trust it, name a file with it or its authority {}"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def _https(certificates: Certificates, flaw: Flaw, context: ssl.SSLContext | None = None) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = (context or certificates.context(flaw)).wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def _grpc(certificates: Certificates, flaw: Flaw) -> Iterator[str]:
    certificate, key = certificates.server(flaw)
    server = grpc.server(futures.ThreadPoolExecutor(1))
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None)


def _sentences(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("Error: ")]


@pytest.mark.parametrize("flaw", ["name", "expired", "early", "self-signed"])
@pytest.mark.parametrize("protocol", ["http", "openai"])
def test_https(
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    protocol: str,
    flaw: Flaw,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    with _https(certificates, flaw) as url:
        assert run(["dataset", "-i", protocol, "--url", url]) == ExitStatus.FAILED
    trust = _SELF_SIGNED.format("self-signed certificate", "in the environment variable SSL_CERT_FILE")
    assert _sentences(capfd.readouterr().err) == [f"Error: --url {url}: {_PROBLEMS.get(flaw, trust)}"]


@pytest.mark.parametrize("flaw", ["name", "expired", "early", "self-signed"])
def test_measuring_over_grpc(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, flaw: Flaw
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    with _grpc(certificates, flaw) as address:
        url = f"grpcs://{address}"
        assert run(["dataset", "--url", url]) == ExitStatus.FAILED
    trust = _SELF_SIGNED.format("self signed certificate", "in the environment variable SSL_CERT_FILE")
    assert _sentences(capfd.readouterr().err) == [f"Error: --url {url}: {_PROBLEMS.get(flaw, trust)}"]


@pytest.mark.parametrize("scheme", ["", "grpcs://"])
@pytest.mark.parametrize("flaw", ["name", "expired", "early", "self-signed"])
def test_grpc(certificates: Certificates, capfd: pytest.CaptureFixture[str], flaw: Flaw, scheme: str) -> None:
    with _grpc(certificates, flaw) as url:
        ssl = () if scheme else ("--ssl",)
        status = run(["generate", "-p", "x", "--url", f"{scheme}{url}", *ssl, "-r", str(certificates.authority)])
    assert status == ExitStatus.FAILED
    trust = _SELF_SIGNED.format("self signed certificate", "with --root_certificates")
    assert _sentences(capfd.readouterr().err) == [f"Error: --url {url}: {_PROBLEMS.get(flaw, trust)}"]


@pytest.mark.parametrize(
    ("command", "url"),
    [
        (["dataset", "-i", "http"], "https://127.0.0.1:{}"),
        (["dataset", "-i", "openai"], "https://127.0.0.1:{}"),
        (["dataset"], "grpcs://127.0.0.1:{}"),
        (["generate", "-p", "x", "--ssl"], "127.0.0.1:{}"),
    ],
)
def test_a_server_without_encryption(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, command: list[str], url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with threaded_http(BaseHTTPRequestHandler) as port:
        address = url.format(port)
        assert run([*command, "--url", address]) == ExitStatus.FAILED
    [sentence] = _sentences(capfd.readouterr().err)
    assert sentence.startswith(f"Error: --url {address}: the server does not speak TLS at this port; give --url http://")


@pytest.mark.parametrize("client", [None, "self-signed", "none"])
@pytest.mark.parametrize("protocol", ["http", "openai"])
def test_https_with_a_certificate_of_the_client(
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    protocol: str,
    client: Flaw | None,
) -> None:
    """The server knows no path: where it takes the certificate, the error is another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    if client is not None:
        (tmp_path / "client.pem").write_bytes(b"".join(file.read_bytes() for file in certificates.server(client)))
        monkeypatch.setenv(CLIENT_CERTIFICATE, str(tmp_path / "client.pem"))
    context = certificates.context("none")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificates.authority)
    with _https(certificates, "none", context) as url:
        assert run(["dataset", "-i", protocol, "--url", url]) == ExitStatus.FAILED
    [sentence] = _sentences(capfd.readouterr().err)
    if client == "none":
        assert "certificate" not in sentence
    else:
        assert sentence.startswith(f"Error: --url {url}: the server ")
        assert CLIENT_CERTIFICATE in sentence


@pytest.mark.parametrize(
    ("reason", "has_own", "words"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", False, "the server requires a client's certificate; name a PEM file"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", False, "the server closed the encrypted connection; where it requires a client's"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", True, "the server closed the encrypted connection; does it accept the client's"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", True, None),
        ("SSLV3_ALERT_BAD_CERTIFICATE", True, "the server does not accept the client's certificate"),
        ("TLSV1_ALERT_UNKNOWN_CA", True, "the server does not accept the client's certificate"),
        ("WRONG_VERSION_NUMBER", True, None),
        ("TLSV1_ALERT_UNKNOWN_CA", False, None),
    ],
)
def test_what_servers_say_of_a_clients_certificate(
    monkeypatch: pytest.MonkeyPatch, reason: str, has_own: bool, words: str | None
) -> None:
    monkeypatch.setenv(CLIENT_CERTIFICATE, "client.pem" if has_own else "")
    error = ssl.SSLError(1, reason)
    error.reason = reason
    found = refused_client(error)
    assert found is None if words is None else str(found).startswith(words)
