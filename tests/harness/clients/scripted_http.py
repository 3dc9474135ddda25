"""A raw HTTP server whose answer to each request a test scripts, byte for byte."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from bench_records.record import Outcome
from harness.clients.protocol import Connection, ExchangeFailedError
from harness.clients.transport.url import Origin

Answered = tuple[list[bytes], Outcome | None, str]


@dataclass
class Peer:
    """The server's end of one connection; ``number`` counts the connections from 0."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    received: list[bytes] = field(default_factory=list)

    async def read_request(self) -> tuple[bytes, bytes]:
        """Head and body of the next request. Raises IncompleteReadError at the end of the connection."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
        body = await self.reader.readexactly(length)
        self.received.append(body)
        return head, body

    async def send(self, *parts: bytes) -> None:
        """Send ``parts``, each in a packet of its own as far as that can be had."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(0.002 if len(parts) > 1 else 0)

    def reset(self) -> None:
        """End the connection with a reset."""
        self.writer.transport.abort()

    async def closed_by_client(self) -> bool:
        """Wait for the client to end the connection; False where it does not within 30 s."""
        try:
            async with asyncio.timeout(30):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Origin]:
    """A server that runs ``script`` on every connection, and closes it then."""
    peers: list[Peer] = []

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(Peer(len(peers), reader, writer))
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await script(peers[-1])
        writer.close()

    server = await asyncio.start_server(on_connection, host, 0, ssl=tls)
    try:
        yield Origin("http" if tls is None else "https", host, server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def exchange(connection: Connection, payload: bytes, timeout_s: float = 10.0) -> Answered:
    """One exchange: what came, how it failed, if it did, and the message of that, or what its end lacks."""
    bodies: list[bytes] = []
    try:
        end = await connection.exchange(payload, lambda _, arrived: bodies.extend(arrived), timeout_s)
    except ExchangeFailedError as error:
        return bodies, error.outcome, str(error)
    return bodies, None, (None if end is None else end.missing) or ""


def chunked(*parts: bytes) -> bytes:
    """A body in chunked transfer coding, whole."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


EVENTS_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def plain(body: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    """A whole answer with a length."""
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, headers, len(body), body)
