"""Known delays between client and server are found in the phase that they belong to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.launch.server import Server
from tests.end_to_end.test_bench import NORMAL, assert_all_done, bench

pytestmark = pytest.mark.slow  # a busy machine does not keep its bounds

_DELAY_S = 0.4
_TRAFFIC = ["--num_requests", "60", "--request_rate", "20", "--warmup_requests", "4", "--seed", "5", "--server_timings"]


async def _delayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Pass on what comes, each piece ``delay_s`` after it came."""
    loop, pieces = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def send() -> None:
        while True:
            due_s, piece = await pieces.get()
            await asyncio.sleep(due_s - loop.time())
            if not piece:
                writer.close()
                return
            writer.write(piece)
            await writer.drain()

    sending = asyncio.ensure_future(send())
    piece = b"-"
    while piece:
        piece = await reader.read(1 << 16)
        pieces.put_nowait((loop.time() + delay_s, piece))
    await sending


@contextlib.contextmanager
def _delaying_proxy(port: int, to_server_s: float, to_client_s: float) -> Iterator[int]:
    """A proxy before ``port`` in a thread; yields its own port."""
    loop = asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_delayed(reader, to_server, to_server_s), _delayed(from_server, writer, to_client_s))

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.1))
        loop.close()


def _phases_ms(port: int, folder: Path, name: str) -> tuple[dict[str, float], dict[str, float | None], float]:
    """The mean phases around p50 TTFT, the percentile without each, and the percentile."""
    result = bench(*NORMAL, *_TRAFFIC, "--url", f"127.0.0.1:{port}", "--run_dir", name, cwd=folder)
    assert_all_done(result, folder / name)
    arguments = ["why", name, "--metric", "ttft", "--percentile", "50", "--format", "json"]
    [latency] = json.loads(bench(*arguments, cwd=folder).stdout)["runs"][0]["latencies"]
    assert latency["clock_error_ms"] == 0.0
    percentile: dict[str, Any] = latency["percentiles"][0]
    phases = {phase["phase"]: phase for phase in percentile["phases"]}
    means = {phase: found["mean_ms"]["value"] for phase, found in phases.items()}
    return means, {phase: found["without_ms"] for phase, found in phases.items()}, percentile["value_ms"]["value"]


@pytest.mark.parametrize("phase", ["front_end", "return"])
def test_a_delay_on_the_way_is_found_where_it_is(decoupled_server: Server, tmp_path: Path, phase: str) -> None:
    """A proxy delays what the client sends, or what the server answers; the same proxy without a delay is beside it."""
    port, injected_ms = decoupled_server.addresses.grpc_port, _DELAY_S * 1e3
    with _delaying_proxy(port, 0.0, 0.0) as proxied:
        plain, _, plain_ms = _phases_ms(proxied, tmp_path, "plain")
    delays = (_DELAY_S, 0.0) if phase == "front_end" else (0.0, _DELAY_S)
    with _delaying_proxy(port, *delays) as proxied:
        delayed, without, _ = _phases_ms(proxied, tmp_path, "delayed")
    assert delayed[phase] - plain[phase] == pytest.approx(injected_ms, rel=0.05)
    assert delayed["unattributed"] == 0.0
    others = sum(abs(delayed[other] - plain[other]) for other in plain if other != phase)
    assert others < 0.1 * injected_ms  # of a busy machine
    without_ms = without[phase]
    assert without_ms is not None
    assert without_ms < plain_ms + 0.1 * injected_ms
