"""A whole measurement over gRPC with TLS, against the null server reached by a relay that encrypts."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from harness.calibration.null_server.pacing import Pace
from harness.calibration.null_server.server import NullServerOptions, null_server
from harness.run import local_pool
from tests.certificates import make_certificates


@contextmanager
def _encrypting(context: ssl.SSLContext, address: str) -> Iterator[str]:
    """The address of a relay that speaks TLS and HTTP/2 to clients, and plain HTTP/2 to ``address``."""
    host, _, port = address.rpartition(":")
    context.set_alpn_protocols(["h2"])
    loop = asyncio.new_event_loop()
    relaying: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server = await asyncio.open_connection(host, int(port))
        for source, sink in ((reader, to_server[1]), (to_server[0], writer)):
            task = asyncio.create_task(pump(source, sink))
            relaying.add(task)
            task.add_done_callback(relaying.discard)

    async def end() -> None:
        for task in relaying:
            task.cancel()
        await asyncio.gather(*relaying, return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(relay, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(end())
        loop.close()


def test_a_run_over_grpc_with_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    monkeypatch.setattr(local_pool, "multiprocessing", multiprocessing)  # forks have the environment of their server
    folder = tmp_path / "run"
    words = ["token_norm_dist", "--num_requests", "40", "--concurrency", "4", "--input_mean", "16", "--output_mean", "5"]
    with (
        null_server(NullServerOptions(Pace(2_000_000, 1_000_000))) as addresses,
        _encrypting(certificates.context("none"), addresses.grpc) as address,
    ):
        url = f"grpcs://{address}"
        status = run([*words, "--model", "tensorrt_llm", "--vocab_size", "99", "--url", url, "--run_dir", str(folder)])
    assert status in (ExitStatus.VALID, ExitStatus.INVALID)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["requests"]["done"], summary["requests"]["failed"]) == (40, 0)
    assert "server_counters_disagree" not in [finding["code"] for finding in summary["findings"]]
    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["target"]["address"] == url
    assert manifest["connections"]["unstamped_reads"] >= 40
