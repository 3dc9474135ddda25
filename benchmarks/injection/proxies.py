"""A proxy on loopback that delays, in windows with delays: a connection, what the client sends, or what the server answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.injection.longer_prompts import longer, read_request
from benchmarks.injection.loop_in_thread import running
from benchmarks.injection.windows import injects

_END = b"0\r\n\r\n"  # of a body in chunks
_ANSWER, _LAST = b"HTTP/1.1 200 OK\r\n", b"connection: close\r\n"  # how an answer begins, and what says that it is the last
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class ProxyDelays:
    """``to_server_s`` and ``to_client_s`` are for every piece of bytes, ``to_server_always_s`` also in the other windows.
    With ``tls`` the proxy shakes hands ``handshake_s`` late, which is when the client has its connection. With ``closes`` it
    ends each connection after one answer in chunks, so that each request needs a new one. ``longer_prompt`` are tokens that
    each prompt of ids has more in windows with delays, over HTTP/1.1.
    """

    to_server_s: float = 0.0
    to_server_always_s: float = 0.0
    to_client_s: float = 0.0
    handshake_s: float = 0.0
    tls: ssl.SSLContext | None = None
    closes: bool = False
    longer_prompt: int = 0

    def to_server(self) -> float:
        """The delay of what the client sends now, in s."""
        return self.to_server_always_s + (self.to_server_s if injects(time.monotonic()) else 0.0)

    def to_client(self) -> float:
        """The delay of what the server answers now, in s."""
        return self.to_client_s if injects(time.monotonic()) else 0.0


NO_DELAY = ProxyDelays()


@contextlib.contextmanager
def delaying_proxy(port: int, delays: ProxyDelays) -> Iterator[int]:
    """A proxy before ``port`` in a thread; yields its own port."""
    loop = asyncio.new_event_loop()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    accepting = loop.create_task(_accept(listening, port, delays))
    with listening, running(loop, accepting.cancel):
        yield listening.getsockname()[1]


def self_signed(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1, made by ``openssl`` in ``folder``, and the context of a server that shows it."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=proxy"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return certificate, context


async def _accept(listening: socket.socket, port: int, delays: ProxyDelays) -> None:
    loop, open_ones = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    while True:
        end, _ = await loop.sock_accept(listening)
        task = asyncio.create_task(_carry(end, port, delays))
        open_ones.add(task)
        task.add_done_callback(open_ones.discard)


async def _carry(end: socket.socket, port: int, delays: ProxyDelays) -> None:
    loop = asyncio.get_running_loop()
    if injects(time.monotonic()):
        await asyncio.sleep(delays.handshake_s)
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    with contextlib.suppress(OSError, asyncio.CancelledError):
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, end, ssl=delays.tls)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.closing(writer), contextlib.closing(to_server):
            await _both(
                _longer(reader, to_server, delays.longer_prompt)
                if delays.longer_prompt
                else _delayed(reader, to_server, delays.to_server, closes=False),
                _delayed(from_server, writer, delays.to_client, closes=delays.closes),
            )


async def _both(*ways: Coroutine[Any, Any, None]) -> None:
    """Carry on both ways until both have ended, or one fails: then the other is cancelled, since nothing else would end it.
    Raises what the first one raised.
    """
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _longer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tokens: int) -> None:
    """Pass on requests, in windows with delays with ``tokens`` ids more."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            head, body = await read_request(reader)
            writer.write(longer(head, body, tokens) if injects(time.monotonic()) else head + body)
            await writer.drain()
    writer.close()


async def _delayed(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: Callable[[], float], closes: bool
) -> None:
    """Pass on what comes, each piece the seconds after it came that ``delay`` returns then."""
    loop, pieces = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def send() -> None:
        while True:
            due_s, piece = await pieces.get()
            await asyncio.sleep(due_s - loop.time())
            if piece:
                writer.write(piece)
                await writer.drain()
            if not piece or (closes and piece.endswith(_END)):
                writer.close()
                return

    sending = asyncio.ensure_future(send())
    piece = b"-"
    try:
        while piece:
            piece = await reader.read(_READ_BYTES)
            if closes and piece.startswith(_ANSWER):
                piece = piece.replace(_ANSWER, _ANSWER + _LAST, 1)
            pieces.put_nowait((loop.time() + delay(), piece))
        await sending
    finally:
        sending.cancel()
