"""The null server's HTTP answers, in the two shapes that are streamed as server-sent events: Triton's generate and OpenAI's.

An event is encoded once for each kind and answer; only its stamp changes, 19 characters wide so that no length does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from harness.calibration.null_server.models import TEXT, TOKEN_ID, NullModel
from harness.calibration.null_server.request import Asked, BadRequestError, check_tokens
from harness.clients.protocol import NOT_JSON

OPENAI_MODEL = "null"
_DEFAULT_TOKENS = 16
_WIDTH = 19
_SENT = b'"sent_ns":'
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a request is answered with: ``count`` times ``response``, with a time in ns at ``stamp_at``, then ``ending``."""

    response: bytearray
    stamp: Callable[[bytearray, int], None]
    opening: bytes
    ending: bytes
    count: int


def read_json(body: bytes) -> dict[str, Any]:
    """The object that a request's body holds. Raises BadRequestError."""
    try:
        found = msgspec.json.decode(body)
    except NOT_JSON as error:
        raise BadRequestError(f"the request's body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadRequestError("the request's body is not a JSON object")
    return found


def read_asked(request: dict[str, Any], tokens_names: tuple[str, ...], stream_name: str) -> Asked:
    """How many tokens are asked for, under the first of ``tokens_names`` that is there, and whether as a stream."""
    tokens = next((request[name] for name in tokens_names if request.get(name) is not None), _DEFAULT_TOKENS)
    if not isinstance(tokens, int):
        raise BadRequestError(f"{tokens_names[0]} must be a whole number")
    check_tokens(tokens)
    return Asked(tokens, bool(request.get(stream_name)))


def generate_answer(model: NullModel, asked: Asked, streamed: bool, received_ns: int) -> HttpAnswer:
    """Of Triton's ``generate`` (one JSON object) and ``generate_stream`` (``streamed``: an event a response)."""
    count, tokens = (asked.tokens, 1) if asked.streaming else (1, asked.tokens)
    fields: dict[str, Any] = {"model_name": model.name, "model_version": "1"}
    if model.takes_text:
        fields |= {"num_output_tokens": tokens, "text_output": TEXT * tokens}
    else:
        fields |= {"output_ids": TOKEN_ID if tokens == 1 else [TOKEN_ID] * tokens, "sequence_length": tokens}
    document = _stamped(_encode(fields), received_ns)
    return _events(document, count, b"") if streamed else _document(document)


def chat_answer(request: dict[str, Any], asked: Asked, received_ns: int) -> HttpAnswer:
    """Of OpenAI's chat completions: a chunk a token, the reason of the end, the usage where asked for; or one object."""
    head = {"id": f"chatcmpl-{received_ns}", "created": int(time.time()), "model": request.get("model") or OPENAI_MODEL}
    usage = _usage(request, asked.tokens)
    if not asked.streaming:
        message = {"role": "assistant", "content": TEXT * asked.tokens}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        whole = head | {"object": "chat.completion", "choices": [choice], "usage": usage}
        return _document(_stamped(_encode(whole), received_ns))
    head["object"] = "chat.completion.chunk"
    wants_usage = bool((request.get("stream_options") or {}).get("include_usage"))
    nothing_yet = {"usage": None} if wants_usage else {}
    token = {"index": 0, "delta": {"content": TEXT}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": "length"}
    trailing = [head | {"choices": [end]} | nothing_yet] + ([head | {"choices": [], "usage": usage}] if wants_usage else [])
    ending = b"".join(_chunk(b"data: %b\n\n" % _encode(event)) for event in trailing) + _chunk(b"data: [DONE]\n\n")
    return _events(_stamped(_encode(head | {"choices": [token]} | nothing_yet), received_ns), asked.tokens, ending)


def _usage(request: dict[str, Any], completion_tokens: int) -> dict[str, int]:
    """Prompt tokens are words: there is no tokenizer here."""
    messages = request.get("messages")
    contents = [m.get("content") for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
    prompt_tokens = sum(len(content.split()) for content in contents if isinstance(content, str))
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def _stamped(document: bytes, received_ns: int) -> bytes:
    """A JSON object with both stamps behind its other fields; spaces before a number are JSON's, too."""
    return b'%b,"received_ns":%d,%b%*d}' % (document[:-1], received_ns, _SENT, _WIDTH, 0)


def _events(document: bytes, count: int, ending: bytes) -> HttpAnswer:
    response = _chunk(b"data: %b\n\n" % document)
    head = http_head("200 OK", "text/event-stream; charset=utf-8", None)
    return HttpAnswer(bytearray(response), _stamper(response), head, ending + b"0\r\n\r\n", count)


def _document(document: bytes) -> HttpAnswer:
    head = http_head("200 OK", "application/json", len(document))
    return HttpAnswer(bytearray(document), _stamper(document), head, b"", 1)


def http_head(status: str, content_type: str, length: int | None) -> bytes:
    """Status line and header fields; without a ``length`` the body comes in chunks."""
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{framing}\r\n\r\n".encode("ascii")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _stamper(response: bytes) -> Callable[[bytearray, int], None]:
    start = response.rindex(_SENT) + len(_SENT)
    return partial(_stamp, slice(start, start + _WIDTH))


def _stamp(place: slice, buffer: bytearray, sent_ns: int) -> None:
    buffer[place] = b"%19d" % sent_ns
