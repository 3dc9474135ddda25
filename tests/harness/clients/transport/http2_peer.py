"""A scripted HTTP/2 server: reads frames, writes what a script contains, also frames that no real server would send."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from harness.clients.transport.grpc import CallFailedError, GrpcCaller
from harness.clients.transport.http2_frames import Flag, FrameType, frame, literal_headers
from harness.clients.transport.http2_pool import ConnectionLimits

OK = [("grpc-status", "0")]
ONE_CONNECTION = ConnectionLimits(1, 1)


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def start(self, *settings: tuple[int, int]) -> None:
        assert (await self.reader.readexactly(24)).startswith(b"PRI * HTTP/2.0")
        self.settings(*settings)

    def settings(self, *settings: tuple[int, int]) -> None:
        self.send(FrameType.SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in settings))

    async def read(self, *kinds: FrameType) -> tuple[int, int, bytes]:
        """The next frame of one of ``kinds``: flags, stream, payload; others are passed over."""
        while True:
            high, low, found, flags, stream = struct.unpack(">HBBBI", await self.reader.readexactly(9))
            payload = await self.reader.readexactly(high << 8 | low)
            if found in kinds:
                return flags, stream, payload

    async def read_request(self) -> int:
        """Read one whole request and return its stream."""
        _, stream, _ = await self.read(FrameType.HEADERS)
        while not (await self.read(FrameType.DATA))[0] & Flag.END_STREAM:
            pass
        return stream

    def send(self, kind: FrameType, flags: int, stream: int, payload: bytes) -> None:
        self.writer.write(frame(kind, flags, stream, payload))

    def headers(self, stream: int, headers: list[tuple[str, str]], flags: int = 0) -> None:
        self.send(FrameType.HEADERS, Flag.END_HEADERS | flags, stream, literal_headers(headers))

    def message(self, stream: int, body: bytes) -> None:
        self.send(FrameType.DATA, 0, stream, prefixed(body))

    def answer(self, stream: int, body: bytes) -> None:
        self.message(stream, body)
        self.headers(stream, OK, Flag.END_STREAM)


Script = Callable[[Peer], Awaitable[None]]
Answer = list[bytes] | CallFailedError


def prefixed(body: bytes) -> bytes:
    """A gRPC message."""
    return struct.pack(">BI", 0, len(body)) + body


@asynccontextmanager
async def peer_at(script: Script, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server that follows ``script`` on every connection, then waits for the client to leave; with
    ``context`` over TLS.
    """
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await script(Peer(reader, writer))
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"{'grpcs://' if context else ''}127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running)


async def answer_of(caller: GrpcCaller, request: bytes, timeout_s: float = 5.0) -> Answer:
    """The messages of a call's answer, or its failure."""
    bodies: list[bytes] = []
    try:
        await caller.call(request, lambda _, arrived: bodies.extend(arrived), timeout_s)
    except CallFailedError as error:
        return error
    return bodies


def calls(script: Script, requests: Sequence[bytes], timeout_s: float = 5.0) -> list[Answer]:
    """What each request's call gave, all of them started at once over one connection to a server that follows ``script``."""

    async def run() -> list[Answer]:
        async with peer_at(script) as address:
            caller = GrpcCaller(address, "/service/Method", ONE_CONNECTION)
            try:
                return await asyncio.gather(*(answer_of(caller, request, timeout_s) for request in requests))
            finally:
                await caller.close()

    return asyncio.run(run())


def answering(script: Callable[[Peer, int], None]) -> Script:
    """A script that reads one request and then runs ``script`` on its stream."""

    async def serve(peer: Peer) -> None:
        await peer.start()
        stream = await peer.read_request()
        script(peer, stream)

    return serve


def end_within_a_message(peer: Peer, stream: int) -> None:
    """End an answer in order, after the half of its only message."""
    peer.headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
    peer.send(FrameType.DATA, 0, stream, prefixed(b"12345678")[:-4])
    peer.headers(stream, OK, Flag.END_STREAM)
