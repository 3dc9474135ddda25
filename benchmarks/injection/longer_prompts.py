"""Prompts made longer on their way to an OpenAI server, and how much longer the first token of such a prompt takes."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import random
import statistics
import time
from typing import Any

from benchmarks.injection.held_batch import served_model

_TOKENS = range(100, 2_000)  # ordinary ones of any vocabulary
_PROMPT, _TRIALS = 64, 20
_TIMEOUT_S = 30.0


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head of the next request, with its empty line, and the body. Raises asyncio.IncompleteReadError at the end."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    return head, await reader.readexactly(int(fields.get(b"content-length", b"0")))


def longer(head: bytes, body: bytes, tokens: int) -> bytes:
    """The request with ``tokens`` more random ids after its prompt; one without a prompt of ids stays as it is."""
    asked = json.loads(body) if body else {}
    if not isinstance(asked.get("prompt"), list):
        return head + body
    more = json.dumps(asked | {"prompt": asked["prompt"] + _random(tokens)}).encode()
    lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"content-length:")]
    return b"\r\n".join([*lines, b"content-length: %d" % len(more), b"", more])


def takes_longer_s(port: int, tokens: int) -> float:
    """How much longer the first token takes after a prompt with ``tokens`` more, alone on the server on loopback at ``port``:
    the difference of two medians, of requests in turns.
    """
    model = served_model(port)
    plain, more = list[float](), list[float]()
    for _ in range(_TRIALS):
        plain.append(_first_token_s(port, model, _PROMPT))
        more.append(_first_token_s(port, model, _PROMPT + tokens))
    return statistics.median(more) - statistics.median(plain)


def _first_token_s(port: int, model: str, tokens: int) -> float:
    fields: dict[str, Any] = {"model": model, "prompt": _random(tokens), "max_tokens": 2, "ignore_eos": True, "stream": True}
    body = json.dumps(fields)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)) as connection:
        connection.connect()
        from_s = time.perf_counter()
        connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
        line = connection.getresponse().readline()
        took_s = time.perf_counter() - from_s
    assert line.startswith(b"data: {"), line
    return took_s


def _random(tokens: int) -> list[int]:
    return random.choices(_TOKENS, k=tokens)
