"""OpenAI's Responses: the API that OpenAI recommends in place of the chat completions, and which vLLM serves, too.

https://platform.openai.com/docs/api-reference/responses; ``openai_client.py`` has what it shares with the other protocols. A
stream has named events: a piece of the answer is ``….delta``, and the last event, ``response.completed`` or
``response.incomplete``, has the whole answer again with the usage. There is no marker after it. Observed with vLLM 0.32: a
token that completes no character has no event, and an answer that was cut at its length is ``completed`` with the status
``incomplete``. ``store`` is false, since a server would keep each answer otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from harness.clients.openai_client import OpenAIClient, cached_tokens, encodable, reasoning_tokens, text_prompt
from harness.clients.openai_server import BASE, RESPONSES
from harness.clients.protocol import (
    Connection,
    MalformedResponseError,
    Response,
    TokenCount,
    is_full_message,
    read_json,
)
from harness.clients.server_times import of_vllm
from harness.clients.transport.http1_pool import HttpCaller, server_message
from workloads.elements.request import Message, Request

DEFAULT_PATH = f"{BASE}{RESPONSES}"
_MARKER = b"[DONE]"  # of gateways, which end every stream so
_ENDS = ("response.completed", "response.incomplete")
_FAILURES = ("response.failed", "response.cancelled", "error")
_BROKEN_OFF = ("failed", "cancelled")  # statuses of an answer, in vLLM also of one whose event is ``completed``
_REASONS = {"max_output_tokens": "length"}  # by OpenAI's other protocols


class OpenAIResponsesClient(OpenAIClient, frozen=True, tag="openai_responses"):
    """A Client for one model of a server of Responses, which puts text or messages into its chat template."""

    path: str = DEFAULT_PATH

    def prompt_sent(self, request: Request) -> str:
        return text_prompt(request, "the Responses API")

    def prompt_fields(self, request: Request) -> Mapping[str, object]:
        prompt = self.prompt_sent(request)
        if not request.history:
            return {"input": prompt}
        messages = [*request.history, Message("user", prompt)]
        return {"input": [{"role": message.role, "content": encodable(message.content)} for message in messages]}

    def fields_of(self, request: Request) -> Mapping[str, object]:
        fields: dict[str, object] = {
            "model": self.model_of(request),
            **self.prompt_fields(request),
            "max_output_tokens": request.output_tokens,
            "stream": self.streaming,
            "store": False,
        }
        if request.ignore_eos:
            fields["ignore_eos"] = True
        return fields | dict(self.times_fields) | dict(self.extra)

    async def connect(self, timeout_s: float) -> Connection:
        caller = HttpCaller(self.origin, limits=self.limits, connection_timeout_s=self.connection_timeout_s)
        await caller.connect(timeout_s)
        return caller

    def decode(self, body: bytes) -> Response:
        if body == _MARKER:
            return Response()
        event = read_json(_decode, body, "an event of Responses")
        if event.type is None:
            return _whole(event, body)
        status = None if event.response is None else event.response.status
        if event.type in _FAILURES or event.error or status in _BROKEN_OFF:
            return _failure(event, body)
        if event.type in _ENDS and event.response is not None:
            return _end(event.response)
        if event.type.endswith(".delta") and isinstance(event.delta, str):
            return Response(text=event.delta, reasoning_characters=len(event.delta) if "reasoning" in event.type else 0)
        return Response()


class _Usage(msgspec.Struct, gc=False):
    input_tokens: TokenCount | None = None
    output_tokens: TokenCount | None = None
    total_tokens: Any = None  # no server's oddity here, or in the details, may fail a request
    input_tokens_details: Any = None
    output_tokens_details: Any = None


class _Answer(msgspec.Struct, gc=False):
    """The fields read from an answer, of which the last event of a stream has one."""

    object: str | None = None
    status: str | None = None
    output: Any = None
    usage: _Usage | None = None
    error: Any = None
    incomplete_details: Any = None
    metrics: Any = None  # of vLLM


class _Event(_Answer, gc=False):
    """An event of a stream, or an answer that is not streamed, which has no type."""

    type: str | None = None
    delta: Any = None
    response: _Answer | None = None
    message: Any = None


_decode = msgspec.json.Decoder(_Event).decode
_NO_USAGE = _Usage()


def _whole(answer: _Event, body: bytes) -> Response:
    """The response of an answer that is not streamed, or of an error in the place of one."""
    if answer.error or answer.status in _BROKEN_OFF:
        return _failure(answer, body)
    if answer.object != "response":
        raise MalformedResponseError(f"not an answer of Responses: {body[:200]!r}")
    pieces = list(_pieces(answer.output))
    reasoning = "".join(text for is_reasoning, text in pieces if is_reasoning)
    return msgspec.structs.replace(
        _end(answer),
        text=reasoning + "".join(text for is_reasoning, text in pieces if not is_reasoning),
        reasoning_characters=len(reasoning),
    )


def _end(answer: _Answer) -> Response:
    """What the end of an answer has beside its text, which a stream has sent before."""
    usage = answer.usage or _NO_USAGE
    return Response(
        finish_reasons=(_finish_reason(answer),),
        server_tokens_so_far=usage.output_tokens,
        server_reasoning_tokens=reasoning_tokens(
            usage.output_tokens_details, usage.input_tokens, usage.output_tokens, usage.total_tokens
        ),
        server_input_tokens=usage.input_tokens,
        server_cached_tokens=cached_tokens(usage.input_tokens_details),
        server_times=None if answer.metrics is None else of_vllm(answer.metrics),
    )


def _finish_reason(answer: _Answer) -> str:
    if answer.status != "incomplete":
        return "stop"
    details = answer.incomplete_details
    reason = details.get("reason") if isinstance(details, dict) else None
    return _REASONS.get(reason, reason) if isinstance(reason, str) else "incomplete"


def _pieces(output: Any) -> Iterator[tuple[bool, str]]:
    """The texts of an answer, each with whether it is reasoning; arguments of calls of tools are text."""
    for item in output if isinstance(output, list) else ():
        if not isinstance(item, dict):
            continue
        is_reasoning = item.get("type") == "reasoning"
        for parts in (item.get("content"), item.get("summary")):
            for part in parts if isinstance(parts, list) else ():
                text = (part.get("text") or part.get("refusal")) if isinstance(part, dict) else None
                if isinstance(text, str):
                    yield is_reasoning, text
        if isinstance(item.get("arguments"), str):
            yield False, item["arguments"]


def _failure(event: _Event, body: bytes) -> Response:
    answer = event if event.response is None else event.response
    message = answer.error.get("message") if isinstance(answer.error, dict) else event.message
    if not isinstance(message, str) or not message.strip():
        is_silent = not answer.error and answer.status in _BROKEN_OFF
        message = f"the server broke the answer off: its status is {answer.status}" if is_silent else server_message(body)
    return Response(error=message, refused=is_full_message(message))
