"""A server of chat completions with one queue, first come first served, in a process of its own: its capacity is known.

    python -m tests.harness.queue_server PER_S LAW

It serves PER_S requests a second, one at a time, each for a constant or an exponential time (LAW), and sends all tokens of an
answer together when it has been served. It prints its port, and ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_TOKENS = 4


@dataclass(frozen=True)
class QueueServer:
    """A running server."""

    address: str
    process: subprocess.Popen[bytes]


@contextmanager
def queue_server(per_s: float, law: str = "constant") -> Iterator[QueueServer]:
    """A server that ends with the block."""
    command = [sys.executable, "-m", "tests.harness.queue_server", str(per_s), law]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield QueueServer(f"127.0.0.1:{int(process.stdout.readline())}", process)
        process.stdin.close()


class _Queue:
    """One server, whose next request begins when the last one has ended."""

    def __init__(self, service_s: Callable[[], float]) -> None:
        self._service_s = service_s
        self._free_at = 0.0

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._free_at = max(self._free_at, loop.time()) + self._service_s()
        await asyncio.sleep(self._free_at - loop.time())


async def _answer(queue: _Queue, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
            body = await reader.readexactly(length)
            if head.startswith("get"):
                writer.write(_whole(json.dumps({"data": [{"id": "m"}]})))
                continue
            tokens = int(json.loads(body).get("max_tokens") or _TOKENS)
            await queue.serve()
            writer.write(_stream(tokens))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _whole(text: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def _stream(tokens: int) -> bytes:
    events = [{"choices": [{"index": 0, "delta": {"content": f" w{k}"}, "finish_reason": None}]} for k in range(tokens)]
    ending = [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
        {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": tokens}},
    ]
    texts = [*map(json.dumps, [*events, *ending]), "[DONE]"]
    chunks = [b"data: " + text.encode() + b"\n\n" for text in texts]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(data), data) for data in chunks) + b"0\r\n\r\n"


async def _serve(per_s: float, law: str) -> None:
    drawn = random.Random(1)
    queue = _Queue((lambda: 1.0 / per_s) if law == "constant" else (lambda: drawn.expovariate(per_s)))
    server = await asyncio.start_server(lambda reader, writer: _answer(queue, reader, writer), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1]), sys.argv[2]))
