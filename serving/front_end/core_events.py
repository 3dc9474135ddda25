"""Triton's core model over its generate extension: server-sent events, at half of what a response over ``grpc.aio`` costs.

A request that this can express goes this way, others over gRPC (``core_client.py``). Triton notices a closed connection some
responses later than a cancelled stream, so only answers that are streamed take it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import numpy as np
from aiohttp import ClientError, ClientSession

from serving.client.request import GenerationRequest, ModelInterface, input_tensors
from serving.front_end.core_response import CoreResponse, error_of, not_ready
from serving.front_end.request_times import STAMP_OUTPUTS, Stamps, stamps_of

_END = b"\n\n"
_DATA = b"data: "
_JSON = {"Content-Type": "application/json"}
_OK, _BAD_REQUEST, _LEAST_SERVER_ERROR = 200, 400, 500


class _Event(msgspec.Struct):
    """The fields read from one event; a tensor of one element may be a number."""

    output_ids: list[int] | int = msgspec.field(default_factory=list)
    output_log_probs: list[float] | float = msgspec.field(default_factory=list)
    sequence_length: list[int] | int | None = None
    sequence_index: list[int] | int = 0
    arrival_time_ns: list[int] | int | None = None
    first_scheduled_time_ns: list[int] | int | None = None
    first_token_time_ns: list[int] | int | None = None
    last_token_time_ns: list[int] | int | None = None
    error: str | None = None


_decode = msgspec.json.Decoder(_Event).decode


class CoreEvents:
    """``url`` is that of Triton's HTTP; ``model`` is the core model."""

    def __init__(self, session: ClientSession, url: str, model: str) -> None:
        self._session = session
        self._url = f"{url}/v2/models/{model}/generate_stream"

    async def generate(self, model: ModelInterface, request: GenerationRequest) -> AsyncGenerator[CoreResponse, None]:
        """The responses to ``request``, for which ``can_stream``. Raises ApiError, and RequestError as ``input_tensors``."""
        body = event_body(model, request)
        try:
            async with self._session.post(self._url, data=body, headers=_JSON) as answer:
                try:
                    rest = b""
                    async for part in answer.content.iter_any():
                        *events, rest = (rest + part).split(_END)
                        for event in events:
                            yield read_event(event, answer.status)
                    if rest.strip():  # an error of Triton itself is no event
                        yield read_event(rest, answer.status)
                finally:
                    answer.close()
        except (ClientError, TimeoutError, msgspec.MsgspecError) as error:
            raise not_ready() from error


def can_stream(request: GenerationRequest) -> bool:
    """Whether the generate extension can express ``request``, whose tensors have one dimension there, in short events."""
    scalars = request.scalars
    return bool(scalars.get("streaming")) and not request.arrays and not scalars.get("return_generation_logits")


def event_body(model: ModelInterface, request: GenerationRequest) -> bytes:
    """The JSON of a request. Raises RequestError where the model has no input for what is requested."""
    tensors = {name: _values(array) for name, array in input_tensors(request, model, None).items()}
    return msgspec.json.encode({"id": request.request_id, **tensors})


def read_event(event: bytes, status: int = _OK) -> CoreResponse:
    """The values of one event, which has no mark of the last one. Raises ApiError for one that is an error."""
    read = _decode(event.removeprefix(_DATA))
    if read.error is not None:
        raise error_of(read.error, is_invalid=_BAD_REQUEST <= status < _LEAST_SERVER_ERROR)
    ids, log_probs, [index] = _list(read.output_ids), _list(read.output_log_probs), _list(read.sequence_index)
    if read.sequence_length is not None:
        [length] = _list(read.sequence_length)
        ids = ids[:length]
    return CoreResponse(index, ids, log_probs, None, is_final=False, stamps=_stamps(read))


def _stamps(read: _Event) -> Stamps | None:
    if read.arrival_time_ns is None:
        return None
    values = ((name, getattr(read, name)) for name in STAMP_OUTPUTS)
    return stamps_of({name: _list(value)[0] for name, value in values if value is not None})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _values(array: np.ndarray[Any, Any]) -> Any:
    values = [value.decode() if isinstance(value, bytes) else value for value in array.reshape(-1).tolist()]
    return values[0] if len(values) == 1 else values
