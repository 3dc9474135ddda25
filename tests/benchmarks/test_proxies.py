"""The delaying proxy and the scripted server end with all their tasks."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct

import pytest

from benchmarks.injection.loop_in_thread import running
from benchmarks.injection.proxies import NO_DELAY, delaying_proxy

_PATIENCE_S = 10.0


def test_a_connection_that_its_client_resets_leaves_no_task(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, delaying_proxy(server.getsockname()[1], NO_DELAY) as port:
        client = socket.create_connection(("127.0.0.1", port))
        behind, _ = server.accept()
        with behind:
            behind.settimeout(_PATIENCE_S)
            client.sendall(b"a")
            assert behind.recv(1) == b"a"
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            assert behind.recv(1) == b""
            gc.collect()
    assert "Task was destroyed" not in caplog.text


def test_a_task_that_begins_at_the_end_ends_too() -> None:
    loop, ended = asyncio.new_event_loop(), list[str]()

    async def last() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("last")

    async def first() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("first")
            tasks.append(loop.create_task(last()))

    tasks = [loop.create_task(first())]
    with running(loop, lambda: None):
        pass
    assert ended == ["first", "last"]
    assert loop.is_closed()
