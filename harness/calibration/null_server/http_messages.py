"""The null server's HTTP answers, in the protocols that stream server-sent events: Triton's generate and OpenAI's two.

An event is encoded once an answer; only its stamp changes, which is 19 characters wide, so that the length does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec

from harness.calibration.null_server.models import TEXT, TOKEN_ID, BadRequestError, InferenceRequest, NullModel
from harness.calibration.null_server.pacing import Responses
from harness.clients.protocol import NOT_JSON

OPENAI_MODEL = "null"
_DEFAULT_TOKENS = 16
_WIDTH = 19
_SENT = b'"sent_ns":'
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The responses of an answer, and the bytes after them."""

    responses: Responses
    ending: bytes


def read_json(body: bytes) -> Mapping[str, object]:
    """The JSON object in a request's body. Raises BadRequestError."""
    try:
        document = msgspec.json.decode(body)
    except NOT_JSON as error:
        raise BadRequestError(f"the request's body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadRequestError("the request's body is not a JSON object")
    return document


def read_request(document: Mapping[str, object], tokens_names: tuple[str, ...], stream_name: str) -> InferenceRequest:
    """The requested inference; the tokens are the first of the fields ``tokens_names`` that is set. Raises BadRequestError."""
    tokens = next((document[name] for name in tokens_names if document.get(name) is not None), _DEFAULT_TOKENS)
    if not isinstance(tokens, int):
        raise BadRequestError(f"{tokens_names[0]} must be a whole number")
    return InferenceRequest(tokens, bool(document.get(stream_name)))


def generate_answer(model: NullModel, request: InferenceRequest, streamed: bool, received_ns: int) -> HttpAnswer:
    """The answer of Triton's ``generate`` (one JSON object) or ``generate_stream`` (``streamed``: an event a response)."""
    count, tokens = (request.tokens, 1) if request.streaming else (1, request.tokens)
    fields: dict[str, object] = {"model_name": model.name, "model_version": "1"}
    if model.takes_text:
        fields |= {"num_output_tokens": tokens, "text_output": TEXT * tokens}
    else:
        fields |= {"output_ids": TOKEN_ID if tokens == 1 else [TOKEN_ID] * tokens, "sequence_length": tokens}
    document = _stamped(_encode(fields), received_ns)
    return _events(document, count, b"") if streamed else _document(document)


@dataclass(frozen=True, slots=True)
class OpenAIForm:
    """How one of OpenAI's protocols writes an answer. ``whole`` and ``piece`` return the fields of a choice that hold a text,
    in an answer of one object and in a chunk; ``end`` are those of the chunk that ends the answer.
    """

    id_prefix: str
    whole_object: str
    chunk_object: str
    whole: Callable[[str], Mapping[str, object]]
    piece: Callable[[str], Mapping[str, object]]
    end: Mapping[str, object]


CHAT_FORM = OpenAIForm(
    id_prefix="chatcmpl",
    whole_object="chat.completion",
    chunk_object="chat.completion.chunk",
    whole=lambda text: {"message": {"role": "assistant", "content": text}},
    piece=lambda text: {"delta": {"content": text}},
    end={"delta": {}},
)
COMPLETION_FORM = OpenAIForm(
    id_prefix="cmpl",
    whole_object="text_completion",
    chunk_object="text_completion",
    whole=lambda text: {"text": text},
    piece=lambda text: {"text": text},
    end={"text": ""},
)


def openai_answer(form: OpenAIForm, document: Mapping[str, object], request: InferenceRequest, received_ns: int) -> HttpAnswer:
    """The answer of OpenAI's protocols: a chunk a token, the finish reason, the requested usage; or one object."""
    model = document.get("model") or OPENAI_MODEL
    head: dict[str, object] = {"id": f"{form.id_prefix}-{received_ns}", "created": int(time.time()), "model": model}
    usage = _usage(document, request.tokens)
    if not request.streaming:
        choice = {"index": 0, **form.whole(TEXT * request.tokens), "finish_reason": "length"}
        whole = head | {"object": form.whole_object, "choices": [choice], "usage": usage}
        return _document(_stamped(_encode(whole), received_ns))
    head["object"] = form.chunk_object
    options = document.get("stream_options")
    wants_usage = isinstance(options, dict) and bool(options.get("include_usage"))
    no_usage: dict[str, object] = {"usage": None} if wants_usage else {}
    token = {"index": 0, **form.piece(TEXT), "finish_reason": None}
    end = {"index": 0, **form.end, "finish_reason": "length"}
    trailing = [head | {"choices": [end]} | no_usage] + ([head | {"choices": [], "usage": usage}] if wants_usage else [])
    ending = b"".join(_chunk(b"data: %b\n\n" % _encode(event)) for event in trailing) + _chunk(b"data: [DONE]\n\n")
    return _events(_stamped(_encode(head | {"choices": [token]} | no_usage), received_ns), request.tokens, ending)


def _usage(document: Mapping[str, object], completion_tokens: int) -> dict[str, int]:
    """Token counts; a prompt's tokens are its ids, or its words, since there is no tokenizer."""
    messages, prompt = document.get("messages"), document.get("prompt")
    contents = [m.get("content") for m in messages if isinstance(m, dict)] if isinstance(messages, list) else [prompt]
    words = sum(len(content.split()) for content in contents if isinstance(content, str))
    prompt_tokens = len(prompt) if isinstance(prompt, list) else words
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def _stamped(document: bytes, received_ns: int) -> bytes:
    """A JSON object with both stamps after its other fields; spaces before a number are valid JSON."""
    return b'%b,"received_ns":%d,%b%*d}' % (document[:-1], received_ns, _SENT, _WIDTH, 0)


def _events(document: bytes, count: int, ending: bytes) -> HttpAnswer:
    response = _chunk(b"data: %b\n\n" % document)
    head = http_head("200 OK", "text/event-stream; charset=utf-8", None)
    return HttpAnswer(Responses(bytearray(response), _stamper(response), head, count), ending + b"0\r\n\r\n")


def _document(document: bytes) -> HttpAnswer:
    head = http_head("200 OK", "application/json", len(document))
    return HttpAnswer(Responses(bytearray(document), _stamper(document), head, 1), b"")


def http_head(status: str, content_type: str, length: int | None) -> bytes:
    """Status line and header fields; without a ``length`` the body is chunked."""
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{framing}\r\n\r\n".encode("ascii")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _stamper(response: bytes) -> Callable[[bytearray, int], None]:
    start = response.rindex(_SENT) + len(_SENT)
    return partial(_stamp, slice(start, start + _WIDTH))


def _stamp(place: slice, buffer: bytearray, sent_ns: int) -> None:
    buffer[place] = b"%19d" % sent_ns
