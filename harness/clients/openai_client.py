"""The part of a client that OpenAI's chat completions and completions have in common; both stream server-sent events.

https://platform.openai.com/docs/api-reference. The servers (vLLM, trtllm-serve, SGLang, NVIDIA NIM) refuse or misread
different fields, so only what each of them takes is sent: ``model``, the prompt, ``stream``, ``max_tokens`` (in chats
trtllm-serve refuses it beside its newer name ``max_completion_tokens``, which older servers refuse),
``stream_options.include_usage`` where streamed, ``ignore_eos`` where requested. Sampling keeps the server's defaults; ``extra``
adds the user's own fields. ``times_fields`` ask the server for what it measured of the request; what comes without a request is
read, too.

The last chunk has only the usage, and carries no token. The others carry one token or several; one whose text is empty carries
a character that is not complete yet. ``stream_options.continuous_usage_stats`` adds a running count to each chunk; servers that
do not implement it ignore it (SGLang) or refuse it (OpenAI), so it is sent only where ``continuous_usage`` was found to work.
``harness/recording/token_attribution.py`` attributes the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import msgspec
from msgspec.structs import replace

from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS, AnswerLimits
from harness.clients.openai_server import api_key, authorization
from harness.clients.protocol import (
    Connection,
    MalformedResponseError,
    Response,
    TokenCount,
    is_full_message,
    read_json,
)
from harness.clients.secret_values import Spellings, spellings
from harness.clients.server_times import ServerTimes, of_dynamo, of_llama_cpp, of_vllm
from harness.clients.transport.http1_pool import HttpCaller, post_request, server_message
from harness.clients.transport.url import Origin
from workloads.elements.request import Request

OUR_FIELDS = frozenset(
    {
        "model", "messages", "prompt", "stream", "stream_options", "max_tokens",
        "input", "max_output_tokens",  # of Responses
        "token_ids", "sampling_params",  # of vLLM's tokens in and out
    }
)  # fmt: skip
_END_MARKER = b"[DONE]"
_BROKEN_OFF = ("abort", "error", "cancelled", "timeout", "insufficient_system_resource")
"""Finish reasons of SGLang, vLLM, trtllm-serve and DeepSeek, beside OpenAI's."""
_MOST_TOKENS = 2**31 - 1
_MOST_CHOICES = 128  # OpenAI's own limit of n
_LONGEST_REASON = 60  # characters


class OpenAIClient(msgspec.Struct, frozen=True):
    """A Client for one model of a server, whose requests go to ``path``. ``extra`` is added to every body.

    ``continuous_usage`` and ``sends_finish_reason`` are what the trial showed. Requests of the run ``run_id`` name it, and
    their number, in the header X-Request-ID; "" sends no such header. ``times_fields`` of each request ask the server for its
    own times of it.
    """

    origin: Origin
    model: str
    path: str
    streaming: bool = True
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)
    continuous_usage: bool = False
    sends_finish_reason: bool = False
    limits: AnswerLimits = DEFAULT_ANSWER_LIMITS
    secrets: tuple[str, ...] = ()  # among what is sent
    times_fields: Mapping[str, Any] = msgspec.field(default_factory=dict)
    run_id: str = ""
    connection_timeout_s: float | None = None

    def prompt_sent(self, request: Request) -> str | Sequence[int]:
        """The prompt as text or as token ids, in the form in which it is sent. Raises ValueError for a request without it."""
        raise NotImplementedError

    def prompt_fields(self, request: Request) -> Mapping[str, object]:
        """The fields of the body that hold the prompt. Raises ValueError for a request without one."""
        raise NotImplementedError

    def decode(self, body: bytes) -> Response:
        raise NotImplementedError

    @property
    def hidden(self) -> Spellings:
        return spellings((*self.secrets, api_key()))

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

    def for_run(self, run_id: str) -> Self:
        return replace(self, run_id=run_id)

    def encode(self, index: int, request: Request) -> bytes:
        """The body has no field for ``index`` that all servers take; the header X-Request-ID has it."""
        accept = "text/event-stream" if self.streaming else "application/json"
        body = msgspec.json.encode(self.fields_of(request))
        identity = {"x-request-id": request_uuid(self.run_id, index)} if self.run_id else {}
        return post_request(self.origin, self.path, body, accept, {**authorization(), **identity, **self.headers})

    def fields_of(self, request: Request) -> Mapping[str, object]:
        """The body of a request. Raises ValueError for one without the prompt that the protocol takes."""
        fields: dict[str, object] = {
            "model": self.model_of(request),
            **self.prompt_fields(request),
            "max_tokens": request.output_tokens,
            **self.stream_fields(),
        }
        if request.ignore_eos:
            fields["ignore_eos"] = True
        return fields | dict(self.times_fields) | dict(self.extra)

    def model_of(self, request: Request) -> str:
        """The model that the request asks."""
        variant = request.variant
        return self.model if variant is None or variant.model is None else variant.model

    def stream_fields(self) -> Mapping[str, object]:
        """The fields that ask for a stream with its usage, or for a whole answer."""
        if not self.streaming:
            return {"stream": False}
        counts = {"continuous_usage_stats": True} if self.continuous_usage else {}
        return {"stream": True, "stream_options": {"include_usage": True, **counts}}

    async def connect(self, timeout_s: float) -> Connection:
        caller = HttpCaller(self.origin, _END_MARKER, self.limits, self.connection_timeout_s)
        await caller.connect(timeout_s)
        return caller


def request_uuid(run_id: str, index: int) -> str:
    """The id of a request: the first 20 digits of its run's, two of them replaced, and its number in 12 decimal digits.

    It has the form of a UUID of version 4 (RFC 9562): starlette-context, and so llama-cpp-python's server, answers other ids
    with status 400.
    """
    run = f"{run_id:0<20.20}"
    return f"{run[:8]}-{run[8:12]}-4{run[13:16]}-8{run[17:20]}-{index:012d}"


def text_prompt(request: Request, api: str) -> str:
    """The prompt of a request to an ``api`` that takes text alone. Raises ValueError for a request without text."""
    if request.prompt is None:
        raise ValueError(f"{api} takes text, and this request has none")
    return encodable(request.prompt)


def encodable(text: str) -> str:
    """``text`` with a question mark for each surrogate, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


# ---- answers


class Choice(msgspec.Struct, gc=False):
    """The fields of a choice that both protocols have."""

    index: Any = 0
    finish_reason: Any = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: TokenCount | None = None
    completion_tokens: TokenCount | None = None
    total_tokens: Any = None  # no server's oddity here, or in the details, may fail a request
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None


AnyChoice = TypeVar("AnyChoice", bound=Choice)


class Chunk(msgspec.Struct, Generic[AnyChoice], gc=False):
    """The fields read from one event, or from an answer that is not streamed."""

    choices: list[AnyChoice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    metrics: Any = None  # of vLLM
    nvext: Any = None  # of Dynamo
    timings: Any = None  # of llama.cpp


_NO_USAGE = _Usage()


@dataclass(frozen=True, slots=True)
class ChunkReader(Generic[AnyChoice]):
    """Reads the responses of one protocol, each of which is a ``noun``.

    ``texts`` returns the reasoning and the answer in a choice, "" where empty, or None where it has neither, as one that ends
    an answer. ``opens`` returns whether a choice is that of a chunk before the answer, if it has no text. ``ids`` returns the
    token ids in a choice; None in protocols whose answers are text.
    """

    noun: str
    decode: Callable[[bytes], Chunk[AnyChoice]]
    texts: Callable[[AnyChoice], tuple[str, str] | None]
    opens: Callable[[AnyChoice], bool]
    ids: Callable[[AnyChoice], Sequence[int]] | None = None

    def read(self, body: bytes) -> Response:
        """Raises MalformedResponseError."""
        chunk = read_json(self.decode, body, f"a {self.noun}")
        if chunk.error or chunk.object == "error":  # a server may send an error of "" or {} with each chunk
            message = server_message(body)
            return Response(error=message, refused=is_full_message(message))
        choice = _only_choice(chunk)
        return self._of_any(chunk, body) if choice is None else self._of_one(choice)

    def _of_one(self, choice: AnyChoice) -> Response:
        """What ``_of_any`` returns for a chunk as nearly all are, at a third of the time."""
        texts = self.texts(choice)
        return Response(
            token_ids=None if self.ids is None else tuple(self.ids(choice)),
            text=None if texts is None else texts[0] + texts[1],
            opening=texts == ("", "") and self.opens(choice),
            reasoning_characters=0 if texts is None else len(texts[0]),
        )

    def _of_any(self, chunk: Chunk[AnyChoice], body: bytes) -> Response:
        choices, usage = chunk.choices or (), chunk.usage or _NO_USAGE
        if chunk.choices is None and chunk.usage is None and not _has_times(chunk):
            raise MalformedResponseError(f"not a {self.noun}, it has neither choices nor usage: {body[:200]!r}")
        finish_reasons = tuple(_finish_reason(choice) for choice in choices if choice.finish_reason)
        broken_off = next((reason for reason in finish_reasons if reason in _BROKEN_OFF), None)
        if broken_off is not None:
            return Response(error=f"the server broke the answer off: its finish_reason is {broken_off}")
        text, reasoning_characters = None, 0
        for texts in filter(None, map(self.texts, choices)):
            reasoning, answer = texts
            text = (text or "") + reasoning + answer
            reasoning_characters += len(reasoning)
        return Response(
            token_ids=None if self.ids is None else tuple(token for choice in choices for token in self.ids(choice)),
            text=text,
            opening=text == "" and any(map(self.opens, choices)),
            reasoning_characters=reasoning_characters,
            choices=max(map(_number, choices), default=1),
            finish_reasons=finish_reasons,
            server_tokens_so_far=usage.completion_tokens,
            server_reasoning_tokens=reasoning_tokens(
                usage.completion_tokens_details, usage.prompt_tokens, usage.completion_tokens, usage.total_tokens
            ),
            server_input_tokens=usage.prompt_tokens,
            server_cached_tokens=cached_tokens(usage.prompt_tokens_details),
            server_times=_server_times(chunk),
        )


def _only_choice(chunk: Chunk[AnyChoice]) -> AnyChoice | None:
    """The first choice, which goes on, of a chunk that has nothing besides; else None."""
    if (
        chunk.choices is not None
        and len(chunk.choices) == 1
        and chunk.choices[0].index == 0
        and not chunk.choices[0].finish_reason
        and chunk.usage is None
        and not _has_times(chunk)
    ):
        return chunk.choices[0]
    return None


def _has_times(chunk: Chunk[Any]) -> bool:
    """Whether the chunk has what servers say of a request beside the answer, which may be all that it has."""
    return chunk.metrics is not None or chunk.nvext is not None or chunk.timings is not None


def _server_times(chunk: Chunk[Any]) -> ServerTimes | None:
    return of_vllm(chunk.metrics) or of_dynamo(chunk.nvext) or of_llama_cpp(chunk.timings)


def _number(choice: Choice) -> int:
    """The number of choices that the answer has if this is its last one."""
    return choice.index + 1 if type(choice.index) is int and 0 <= choice.index < _MOST_CHOICES else 1


def _finish_reason(choice: Choice) -> str:
    reason = choice.finish_reason
    text = reason if isinstance(reason, str) else msgspec.json.encode(reason).decode()
    return text[:_LONGEST_REASON]


def cached_tokens(details: Any) -> int | None:
    """``cached_tokens`` of the details of a usage, whatever they are; None where the server does not report it."""
    return _detail(details, "cached_tokens")


def reasoning_tokens(details: Any, prompt: int | None, output: int | None, total: Any) -> int | None:
    """``reasoning_tokens`` of the details of a usage, whatever they are; None where the server does not report them, or does
    not count them among the tokens of the ``output``, as the ``total`` shows.
    """
    reasoning = _detail(details, "reasoning_tokens")
    if not reasoning or output is None or reasoning > output:
        return None
    return None if total == (prompt or 0) + output + reasoning else reasoning


def _detail(details: Any, name: str) -> int | None:
    count = details.get(name) if isinstance(details, dict) else None
    return count if type(count) is int and 0 <= count <= _MOST_TOKENS else None
