"""A server of chat completions that takes a known time for each phase, longer in windows with delays.

The block ``metrics`` of the last chunk follows docs.vllm.ai/en/latest/features/per_request_metrics; its times are measured, not
those that were set.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.injection.delays import Delays
from benchmarks.injection.loop_in_thread import running
from benchmarks.injection.windows import injects

MODEL = "scripted"


_TOKENIZER_S, _QUEUE_S, _PREFILL_S, _STEP_S = 0.004, 0.02, 0.04, 0.006


@contextlib.contextmanager
def scripted_openai(delays: Delays) -> Iterator[int]:
    """Serve on loopback in a thread; yields the port."""
    loop = asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await _answer(reader, writer, delays):
                pass
        writer.close()

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    with running(loop, server.close):
        yield server.sockets[0].getsockname()[1]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delays: Delays) -> bool:
    """Answer one request; returns whether another may come."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    if head.startswith("get"):
        listed = head.startswith("get /v1/models")
        body = json.dumps({"data": [{"id": MODEL}]} if listed else {}).encode()
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (200 if listed else 404, len(body), body))
        return True
    length = int(head.split("content-length:")[1].split("\r\n")[0])
    asked = json.loads(await reader.readexactly(length))
    await _stream(writer, int(asked["max_tokens"]), delays)
    return True


async def _stream(writer: asyncio.StreamWriter, tokens: int, delays: Delays) -> None:
    await asyncio.sleep(_longer(_TOKENIZER_S, delays.tokenizer_s))
    arrived_s = time.monotonic()
    await asyncio.sleep(_longer(_QUEUE_S + delays.queue_always_s, delays.queue_s))
    started_s = time.monotonic()
    await asyncio.sleep(_longer(_PREFILL_S, delays.prefill_s))
    first_s = last_s = time.monotonic()
    step_s = _longer(_STEP_S, delays.decode_step_s)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for token in range(tokens):
        if token:
            await asyncio.sleep(max(0.0, first_s + token * step_s - time.monotonic()))
            last_s = time.monotonic()
        _write(writer, {"choices": [{"index": 0, "delta": {"content": f" w{token}"}, "finish_reason": None}]})
        await writer.drain()
    _write(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    metrics = {
        "queue_time_ms": 1e3 * (started_s - arrived_s),
        "time_to_first_token_ms": 1e3 * (first_s - started_s),
        "generation_time_ms": 1e3 * (last_s - first_s),
    }
    usage = {"prompt_tokens": 8, "completion_tokens": tokens}
    _write(writer, {"choices": [], "usage": usage, "metrics": metrics})
    _write(writer, "[DONE]")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _longer(usual_s: float, delay_s: float) -> float:
    return usual_s + (delay_s if injects(time.monotonic()) else 0.0)


def _write(writer: asyncio.StreamWriter, event: dict[str, Any] | str) -> None:
    data = b"data: %b\n\n" % (event if isinstance(event, str) else json.dumps(event)).encode()
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
