"""A TCP proxy on loopback that breaks what passes through it, by chance from a seed, or on command."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum


class Breakage(Enum):
    """What happens to a connection whose turn it is."""

    RESET = "reset"  # RST: what was under way is lost
    CLOSE = "close"  # FIN in the middle of whatever was under way
    CORRUPT = "corrupt"  # one byte of what the server sent is another one


@dataclass
class UnrulyProxy:
    """Passes bytes on to ``upstream``. Each piece of the server's answer is the last with ``chance``, or is spoilt.

    ``spared`` connections go unharmed at first; ``deaf`` set, nothing is passed on any more, in either direction.
    """

    upstream: int
    breakage: Breakage
    chance: float
    random: random.Random
    port: int = 0
    spared: int = 0
    deaf: bool = False
    connections: int = 0
    broken: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, ready: threading.Event, ended: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await ended.wait()
        server.close()
        for task in self._tasks:
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        spared = self.connections <= self.spared
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            writer.close()
            return
        pumps = [
            asyncio.ensure_future(self._pump(reader, up_writer, unharmed=True)),
            asyncio.ensure_future(self._pump(up_reader, writer, unharmed=spared)),
        ]
        self._tasks.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for end in (writer, up_writer):
            end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, unharmed: bool) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self.deaf:
                    continue
                if not unharmed and self.random.random() < self.chance:
                    self.broken += 1
                    data = self._broken(data, writer)
                    if not data:
                        return
                writer.write(data)
                await writer.drain()

    def _broken(self, data: bytes, writer: asyncio.StreamWriter) -> bytes:
        position = self.random.randrange(len(data))
        match self.breakage:
            case Breakage.RESET:
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                return b""
            case Breakage.CLOSE:
                writer.write(data[:position])
                return b""
            case Breakage.CORRUPT:
                return data[:position] + bytes([data[position] ^ self.random.randrange(1, 256)]) + data[position + 1 :]


@contextmanager
def unruly_proxy(upstream: int, breakage: Breakage, chance: float, seed: int = 0, spared: int = 0) -> Iterator[UnrulyProxy]:
    """A proxy before the server at ``upstream``, in a thread of its own; it is gone when the block is left."""
    proxy = UnrulyProxy(upstream, breakage, chance, random.Random(seed), spared=spared)
    ready, loop, ended = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(proxy.serve(ready, ended)))
    thread.start()
    ready.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
