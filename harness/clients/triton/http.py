"""Triton over HTTP, by its generate extension: ``generate_stream`` (server-sent events) for streamed answers, or ``generate``.

docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/protocol/extension_generate.html. Observed with 2.51:

- A field whose name is an input becomes that tensor: a number of shape [1, 1], a list of shape [1, n]. So the core model can be
  driven, too. A field that names no input is ignored.
- The answer contains every output of the model, requested or not; a list of one element is a bare number.
- A stream ends with the HTTP message, without a marker of its own.
- An error before the first response has its own status; a later one, and any one of ``generate``, has status 200.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeVar
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS, AnswerLimits
from harness.clients.protocol import (
    Connection,
    MalformedResponseError,
    Response,
    TokenCount,
    TokenId,
    is_full_message,
    read_json,
)
from harness.clients.secret_values import Spellings, spellings
from harness.clients.server_times import STAMPS, of_stamps
from harness.clients.transport.http1_pool import HttpCaller, post_request, server_message, status_message
from harness.clients.transport.http_get import HttpStatusError, get_json
from harness.clients.transport.url import Origin
from harness.clients.triton.model import TritonModel
from harness.clients.triton.model_kinds import Ends, Tensor, broken_off, finish_reasons
from harness.errors import NoSuchModelError, TargetError
from workloads.elements.request import Request


def inspect_model(origin: Origin, name: str, headers: Mapping[str, str], timeout_s: float = 10.0) -> TritonModel:
    """Fetch a model's configuration. Raises TargetError where none answers, NoSuchModelError where it has no such model."""
    try:
        answer = get_json(origin, f"/v2/models/{quote(name, safe='')}/config", headers, timeout_s)
    except HttpStatusError as error:
        if "unknown model" in error.message:
            raise NoSuchModelError(f"--model {name}: the server at {origin} has no such model ({error.message})") from error
        status = status_message(error.status, error.message)
        problem = f"the request for the configuration of model {name} failed with {status}"
        raise TargetError(f"--url {origin}: {problem}; is it a Triton server?") from error
    try:
        config = msgspec.convert(answer, _Config)
    except msgspec.ValidationError as error:
        raise TargetError(f"--url {origin}: the answer about model {name} is not a Triton configuration: {error}") from error
    return TritonModel.of_config(name, config)


class _Tensor(msgspec.Struct):
    name: str
    dims: list[Any] = []


class _Policy(msgspec.Struct):
    decoupled: bool = False


class _Parameter(msgspec.Struct):
    string_value: str = ""


class _Config(msgspec.Struct):
    input: list[_Tensor]
    output: list[_Tensor]
    max_batch_size: int = 0
    model_transaction_policy: _Policy = msgspec.field(default_factory=_Policy)
    parameters: dict[str, _Parameter] = {}


NOUN = "a Triton response"


class Body(msgspec.Struct, gc=False):
    """The fields read from one response: its outputs by their names."""

    id: str | None = None
    output_ids: TokenId | list[TokenId] | None = None
    sequence_length: TokenCount | list[TokenCount] | None = None
    text_output: str | list[str] | None = None
    finish_reason: Any = None
    num_input_tokens: TokenCount | list[TokenCount] | None = None
    num_output_tokens: TokenCount | list[TokenCount] | None = None
    arrival_time_ns: Any = None
    first_scheduled_time_ns: Any = None
    first_token_time_ns: Any = None
    last_token_time_ns: Any = None
    error: Any = None  # Triton's is a text, those of others have a message in it


_Value = TypeVar("_Value", int, str)
_decode = msgspec.json.Decoder(Body).decode


class TritonHttpClient(msgspec.Struct, frozen=True, tag="triton_http"):
    """A Client for one model of a Triton server. ``end_id`` and ``pad_id`` are sent where known and taken."""

    origin: Origin
    model: TritonModel
    streaming: bool
    end_id: int | None = None
    pad_id: int | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    limits: AnswerLimits = DEFAULT_ANSWER_LIMITS
    secrets: tuple[str, ...] = ()  # among what is sent
    connection_timeout_s: float | None = None

    @property
    def hidden(self) -> Spellings:
        return spellings(self.secrets)

    @property
    def excludes_prompt(self) -> bool:
        return self.model.excludes_prompt

    @property
    def expects_finish_reason(self) -> bool | None:
        return None

    @property
    def continuous_usage(self) -> bool | None:
        return None

    def sockets(self, in_flight: int) -> int:
        return max(1, in_flight)

    def for_decoding(self) -> Self:
        return replace(self, headers={}, secrets=())

    def for_run(self, run_id: str) -> Self:
        return self

    def encode(self, index: int, request: Request) -> bytes:
        fields: dict[str, object] = {"id": str(index)}
        for tensor in self._tensors(request):
            fields[tensor.name] = tensor.values[0] if len(tensor.values) == 1 else list(tensor.values)
        verb, accept = ("generate_stream", "text/event-stream") if self.streaming else ("generate", "application/json")
        path = f"/v2/models/{quote(self.model.named(request), safe='')}/{verb}"
        return post_request(self.origin, path, msgspec.json.encode(fields), accept, self.headers)

    def _tensors(self, request: Request) -> list[Tensor]:
        return self.model.tensors(request, self.streaming, Ends(self.end_id, self.pad_id))

    def decode(self, body: bytes) -> Response:
        fields = read_json(_decode, body, NOUN)
        return error_of(body) if fields.error else response_of(fields, body, self.model)

    async def connect(self, timeout_s: float) -> Connection:
        caller = HttpCaller(self.origin, limits=self.limits, connection_timeout_s=self.connection_timeout_s)
        await caller.connect(timeout_s)
        return caller


def error_of(body: bytes) -> Response:
    """The response that is the error in ``body``."""
    message = server_message(body)
    return Response(error=message, refused=is_full_message(message))


def response_of(fields: Body, body: bytes, model: TritonModel) -> Response:
    """The response by its outputs. Raises MalformedResponseError for one without an answer, which names ``body``."""
    if fields.output_ids is None and fields.text_output is None:
        raise MalformedResponseError(f"not {NOUN}, it has neither output_ids nor text_output: {body[:200]!r}")
    length = _first(fields.sequence_length)
    reasons = finish_reasons(_first(fields.finish_reason))
    if (error := broken_off(reasons)) is not None:
        return Response(error=error, request_id=fields.id or None)
    ids = (fields.output_ids,) if isinstance(fields.output_ids, int) else fields.output_ids
    return Response(
        token_ids=None if ids is None else tuple(ids if length is None else ids[:length]),
        text=_first(fields.text_output),
        server_tokens=_first(fields.num_output_tokens),
        server_input_tokens=_first(fields.num_input_tokens),
        request_id=fields.id or None,
        server_times=of_stamps(*(_first(getattr(fields, name)) for name in STAMPS)) if model.asks_for_times else None,
        repetition=model.repetition,
        finish_reasons=reasons,
    )


def _first(value: _Value | list[_Value] | None) -> _Value | None:
    if isinstance(value, list):
        return value[0] if value else None
    return value
