"""A scripted HTTP/2 server beside a run: in a thread of its own, since the run keeps the test's own one busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.clients.transport.http2_peer import Script, peer_at


@contextmanager
def peer_server(script: Script) -> Iterator[str]:
    """The address of a server that follows ``script`` on every connection; it is gone when the block is left."""
    loop, ended = asyncio.new_event_loop(), asyncio.Event()
    addresses: list[str] = []
    ready = threading.Event()

    async def serve() -> None:
        async with peer_at(script) as address:
            addresses.append(address)
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait()
    try:
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
