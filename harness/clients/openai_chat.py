"""OpenAI's chat completions, streamed as server-sent events: what vLLM, trtllm-serve, SGLang and NVIDIA NIM serve.

https://platform.openai.com/docs/api-reference/chat. Those servers refuse or misread different fields, so only what each of
them takes is sent: ``model``, ``messages``, ``stream``, ``max_tokens`` (trtllm-serve refuses it beside its newer name
``max_completion_tokens``, which older servers refuse), ``stream_options.include_usage`` where streamed, ``ignore_eos``
where requested. Sampling keeps the server's defaults; ``extra`` adds the user's own fields. ``include_metrics`` asks vLLM for
what it measured of the request (``asks_for_times``); what comes unasked is read, too.

The first chunk often names the role alone, the last has only the usage: neither carries a token. The others carry one token or
several; one whose text is empty carries a character that is not complete yet. ``stream_options.continuous_usage_stats`` adds a
running count to each chunk; servers that do not implement it ignore it (SGLang) or refuse it (OpenAI), so it is sent only where
``continuous_usage`` was found to work. ``harness/recording/token_attribution.py`` attributes the tokens.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS, AnswerLimits
from harness.clients.protocol import (
    NOT_JSON,
    Connection,
    MalformedResponseError,
    Response,
    TokenCount,
    is_full_message,
)
from harness.clients.secret_values import Spellings, spellings
from harness.clients.server_times import of_vllm
from harness.clients.transport.http1_pool import HttpCaller, post_request, server_message
from harness.clients.transport.http_get import HttpStatusError, get_json
from harness.clients.transport.url import Origin
from harness.errors import TargetError
from workloads.elements.request import Message, Request

COMPLETIONS = "/chat/completions"  # below the base path
DEFAULT_PATH = f"/v1{COMPLETIONS}"
API_KEY_VARIABLE = "OPENAI_API_KEY"
OUR_FIELDS = frozenset({"model", "messages", "stream", "stream_options", "max_tokens"})
_END_MARKER = b"[DONE]"
_BROKEN_OFF = ("abort", "error")  # finish reasons of SGLang and vLLM, beside OpenAI's
_SHOWN_MODELS = 20
_LONGEST_NAME = 200  # characters of a model's name in a message
_MOST_TOKENS = 2**31 - 1
_MOST_CHOICES = 128  # OpenAI's own limit of n
_LONGEST_REASON = 60  # characters


def served_models(origin: Origin, path: str, headers: Mapping[str, str], timeout_s: float = 10.0) -> tuple[str, ...] | None:
    """The names of the models that the server lists; None where it lists none. ``path`` is that of the chat completions.

    Raises TargetError where no server answers, or the key is refused.
    """
    try:
        listed = get_json(origin, models_path(path), {**authorization(), **headers}, timeout_s)
    except HttpStatusError as error:
        if error.status in (401, 403):
            problem = f"the server refused access ({error.message}); is its key in the environment variable {API_KEY_VARIABLE}?"
            raise TargetError(f"--url {origin}: {problem}") from error
        return None
    try:
        return tuple(model.id for model in msgspec.convert(listed, _Models).data)
    except msgspec.ValidationError:
        return None


def models_path(path: str) -> str:
    """The path of the list of models beside that of the chat completions."""
    return path.removesuffix(COMPLETIONS) + "/models" if path.endswith(COMPLETIONS) else "/v1/models"


def choose_model(requested: str | None, served: tuple[str, ...] | None) -> str:
    """The model to drive: the requested one, listed or not, or the server's only one. Raises TargetError without either."""
    if requested is None:
        if served is not None and len(served) == 1:
            return served[0]
        raise TargetError(
            f"--model: name the model; the server has {_listed(served)}"
            if served
            else "--model: name the model; the server lists none, as /v1/models would"
        )
    return requested


def unlisted_model(requested: str, served: tuple[str, ...] | None) -> str | None:
    """A warning that the server does not list the model; None where it does, or has no list. Routers and servers that load a
    model on request serve models that they do not list.
    """
    if served is None or requested in served:
        return None
    has = _listed(served) or "none"
    return f"--model {requested}: the server does not list it in /v1/models, which has {has}; {requested} is used all the same"


def authorization() -> dict[str, str]:
    """The header with the user's key, which is read from the environment alone and never written to a file."""
    key = os.environ.get(API_KEY_VARIABLE, "").strip()
    return {"authorization": f"Bearer {key}"} if key else {}


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(name[:_LONGEST_NAME] for name in names[:_SHOWN_MODELS]) + (
        f" and {len(names) - _SHOWN_MODELS} more" if len(names) > _SHOWN_MODELS else ""
    )


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class _Content(msgspec.Struct, gc=False):
    """A ``delta`` or a ``message``. Servers name the reasoning in one of two ways, some in both."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct, gc=False):
    index: Any = 0
    delta: _Content | None = None
    message: _Content | None = None
    finish_reason: Any = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: TokenCount | None = None
    completion_tokens: TokenCount | None = None
    prompt_tokens_details: Any = None  # no server's oddity here may fail a request


class _Chunk(msgspec.Struct, gc=False):
    """The fields read from one event, or from an answer that is not streamed."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    metrics: Any = None  # of vLLM


_NO_USAGE = _Usage()
_decode = msgspec.json.Decoder(_Chunk).decode


class OpenAIChatClient(msgspec.Struct, frozen=True, tag="openai_chat"):
    """A Client for one model of a server that speaks OpenAI's protocol at ``path``. ``extra`` is added to every body.

    ``continuous_usage`` and ``sends_finish_reason`` are what the probe found. ``asks_for_times``: each request asks vLLM for
    its own times of it.
    """

    origin: Origin
    model: str
    streaming: bool = True
    path: str = DEFAULT_PATH
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)
    continuous_usage: bool = False
    sends_finish_reason: bool = False
    limits: AnswerLimits = DEFAULT_ANSWER_LIMITS
    secrets: tuple[str, ...] = ()  # among what is sent
    asks_for_times: bool = False

    @property
    def hidden(self) -> Spellings:
        return spellings((*self.secrets, os.environ.get(API_KEY_VARIABLE, "").strip()))

    @property
    def excludes_prompt(self) -> bool:
        return True

    @property
    def expects_finish_reason(self) -> bool:
        return self.sends_finish_reason

    def sockets(self, in_flight: int) -> int:
        return max(1, in_flight)

    def for_decoding(self) -> Self:
        return replace(self, headers={}, extra={}, secrets=(), path=self.path.partition("?")[0])

    def encode(self, index: int, request: Request) -> bytes:
        """``index`` is not sent: there is no field for it that all servers take."""
        if request.prompt is None:
            raise ValueError("a chat takes text, and this request has none")
        variant = request.variant
        messages = [*request.history, Message("user", request.prompt)]
        fields: dict[str, Any] = {
            "model": self.model if variant is None or variant.model is None else variant.model,
            "messages": [{"role": message.role, "content": _encodable(message.content)} for message in messages],
            "max_tokens": request.output_tokens,
            "stream": self.streaming,
        }
        if self.streaming:
            fields["stream_options"] = {"include_usage": True}
            if self.continuous_usage:
                fields["stream_options"]["continuous_usage_stats"] = True
        if request.ignore_eos:
            fields["ignore_eos"] = True
        if self.asks_for_times:
            fields["include_metrics"] = True
        accept = "text/event-stream" if self.streaming else "application/json"
        body = msgspec.json.encode(fields | dict(self.extra))
        return post_request(self.origin, self.path, body, accept, {**authorization(), **self.headers})

    def decode(self, body: bytes) -> Response:
        try:
            chunk = _decode(body)
        except NOT_JSON as error:
            raise MalformedResponseError(f"not a chat completion: {error}") from error
        if chunk.error is not None or chunk.object == "error":
            message = server_message(body)
            return Response(error=message, refused=is_full_message(message))
        choices, usage = chunk.choices or (), chunk.usage or _NO_USAGE
        if chunk.choices is None and chunk.usage is None:
            raise MalformedResponseError(f"not a chat completion, it has neither choices nor usage: {body[:200]!r}")
        finish_reasons = tuple(_finish_reason(choice) for choice in choices if choice.finish_reason)
        broken_off = next((reason for reason in finish_reasons if reason in _BROKEN_OFF), None)
        if broken_off is not None:
            return Response(error=f"the server broke the answer off: its finish_reason is {broken_off}")
        text, reasoning_characters = None, 0
        for texts in filter(None, map(_texts, choices)):
            reasoning, answer = texts
            text = (text or "") + reasoning + answer
            reasoning_characters += len(reasoning)
        return Response(
            text=text,
            opening=text == "" and any(map(_names_role, choices)),
            reasoning_characters=reasoning_characters,
            choices=max(map(_number, choices), default=1),
            finish_reasons=finish_reasons,
            server_tokens_so_far=usage.completion_tokens,
            server_input_tokens=usage.prompt_tokens,
            server_cached_tokens=_cached_tokens(usage.prompt_tokens_details),
            server_times=None if chunk.metrics is None else of_vllm(chunk.metrics),
        )

    async def connect(self, timeout_s: float) -> Connection:
        caller = HttpCaller(self.origin, _END_MARKER, self.limits)
        await caller.connect(timeout_s)
        return caller


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _texts(choice: _Choice) -> tuple[str, str] | None:
    """Reasoning and answer of a chunk, "" where empty; None where it has neither, as one that ends an answer."""
    content = choice.delta or choice.message
    if content is None:
        return None
    reasoning = content.reasoning_content or content.reasoning
    if reasoning:
        return reasoning, content.content or ""
    if content.content is None and content.role is None and content.reasoning_content is None and content.reasoning is None:
        return None
    return "", content.content or ""


def _number(choice: _Choice) -> int:
    """The number of choices that the answer has if this is its last one."""
    return choice.index + 1 if type(choice.index) is int and 0 <= choice.index < _MOST_CHOICES else 1


def _finish_reason(choice: _Choice) -> str:
    reason = choice.finish_reason
    text = reason if isinstance(reason, str) else msgspec.json.encode(reason).decode()
    return text[:_LONGEST_REASON]


def _cached_tokens(details: Any) -> int | None:
    """``cached_tokens`` of ``usage.prompt_tokens_details``; None where the server does not report it."""
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if type(cached) is int and 0 <= cached <= _MOST_TOKENS else None


def _names_role(choice: _Choice) -> bool:
    return choice.delta is not None and choice.delta.role is not None
