"""A server whose certificate is not in order: one sentence with what to do, over HTTPS and gRPC."""

from __future__ import annotations

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
from tests.certificates import Certificates, Flaw, make_certificates

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
def _https(certificates: Certificates, flaw: Flaw) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = certificates.context(flaw).wrap_socket(server.socket, server_side=True)
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
