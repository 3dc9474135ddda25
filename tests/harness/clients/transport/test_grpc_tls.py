"""gRPC calls over TLS: what a connection trusts, and what is sent over it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from harness.clients.transport.certificates import trusted_roots
from harness.clients.transport.grpc import GrpcCaller, NoConnectionMadeError
from tests.certificates import Certificates, Flaw, make_certificates
from tests.harness.clients.transport.http2_peer import ONE_CONNECTION, Answer, Peer, answer_of, peer_at

_UNTRUSTED = (
    "cannot connect: the server's certificate is not trusted (self-signed certificate); where you trust it, name a file with "
    "it or its authority in the environment variable SSL_CERT_FILE"
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


async def _echo(peer: Peer) -> None:
    await peer.start()
    peer.answer(await peer.read_request(), b"answered")


def _call(certificates: Certificates, flaw: Flaw) -> tuple[Answer, int]:
    """The answer to a call, and the number of reads without the kernel's time."""

    async def run() -> tuple[Answer, int]:
        context = certificates.context(flaw)
        context.set_alpn_protocols(["h2"])
        async with peer_at(_echo, context) as address:
            caller = GrpcCaller(address, "/service/Method", ONE_CONNECTION)
            try:
                await caller.connect(5.0)
                return await answer_of(caller, b"asked"), caller.usage(0).unstamped_reads
            finally:
                await caller.close()

    return asyncio.run(run())


def test_a_trusted_certificate(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    answer, unstamped_reads = _call(certificates, "none")
    assert answer == [b"answered"]
    assert unstamped_reads >= 1


def test_a_certificate_that_is_not_trusted(certificates: Certificates) -> None:
    with pytest.raises(NoConnectionMadeError) as caught:
        _call(certificates, "self-signed")
    assert caught.value.details == _UNTRUSTED


def test_files_of_a_folder_of_certificates_are_trusted(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("0a1b2c3d.0", "README", "0a1b2c3d.r0"):  # a certificate, something else, and a list of revoked ones
        (tmp_path / name).write_bytes(name.encode())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    (tmp_path / "0a1b2c3d.1").symlink_to("removed")
    monkeypatch.setenv("SSL_CERT_DIR", f"/absent{os.pathsep}{tmp_path}")
    assert trusted_roots() == certificates.authority.read_bytes() + b"\n0a1b2c3d.0"
