"""Triton's core model: one exchange a request, which ends at the engine where its reader ends."""

from __future__ import annotations

import asyncio
import re
from array import array
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
import numpy as np
from tritonclient.grpc import service_pb2

from serving.client.request import GenerationRequest, ModelInterface
from serving.client.triton import encode
from serving.errors import SERVER_FAILURE, RequestError
from serving.front_end.api_error import SERVER_ERROR, ApiError
from serving.front_end.core_events import CoreEvents, can_stream
from serving.front_end.core_response import CoreResponse, error_of, not_ready
from serving.front_end.request_times import STAMP_OUTPUTS, stamps_of

_SERVICE = "/inference.GRPCInferenceService/"
_FINAL = "triton_final_response"
_ASK_TIMEOUT_S = 5.0
_INVALID = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED)
_SERVER_FAILED = re.compile(rf"^{re.escape(SERVER_FAILURE)}|[Ss]tub process|Failed to process the request")  # Triton's backend
_FLOATS = {"FP32": np.float32, "FP16": np.float16}


class CoreClient:
    """``model`` is the core model's name; all gRPC streams share ``channel``, and ``events`` takes what it can."""

    def __init__(self, channel: grpc.aio.Channel, model: str, events: CoreEvents) -> None:
        self._model = model
        self._events = events
        self._interface: ModelInterface | None = None
        self._infer = channel.stream_stream(
            f"{_SERVICE}ModelStreamInfer",
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
        self._ready = channel.unary_unary(
            f"{_SERVICE}ModelReady",
            request_serializer=service_pb2.ModelReadyRequest.SerializeToString,
            response_deserializer=service_pb2.ModelReadyResponse.FromString,
        )
        self._metadata = channel.unary_unary(
            f"{_SERVICE}ModelMetadata",
            request_serializer=service_pb2.ModelMetadataRequest.SerializeToString,
            response_deserializer=service_pb2.ModelMetadataResponse.FromString,
        )

    async def is_ready(self) -> bool:
        """Whether the model takes requests."""
        try:
            answer = await self._ready(service_pb2.ModelReadyRequest(name=self._model), timeout=_ASK_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.ready)

    async def interface(self) -> ModelInterface:
        """The model's tensors, requested once. Raises ApiError while there is no model."""
        if self._interface is None:
            try:
                answer = await self._metadata(service_pb2.ModelMetadataRequest(name=self._model), timeout=_ASK_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                raise _api_error(error) from error
            inputs, outputs = ([tensor.name for tensor in tensors] for tensors in (answer.inputs, answer.outputs))
            self._interface = ModelInterface(self._model, frozenset(inputs), frozenset(outputs))
        return self._interface

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[CoreResponse, None]:
        """The responses to ``request``. Raises ApiError. Closing the iterator ends the request at the engine."""
        model = await self.interface()
        way = self._events.generate if can_stream(request) else self._generate_over_grpc
        try:
            async with aclosing(way(model, request)) as responses:
                async for response in responses:
                    yield response
        except RequestError as error:
            raise ApiError(str(error)) from error

    async def _generate_over_grpc(
        self, model: ModelInterface, request: GenerationRequest
    ) -> AsyncGenerator[CoreResponse, None]:
        message = encode(model, request)
        call, is_answered, errors = self._infer(), False, list[ApiError]()
        try:
            await call.write(message)
            await call.done_writing()
            # Read to the end that Triton gives the stream: a cancellation would race with it.
            while (response := await call.read()) is not grpc.aio.EOF:
                if response.error_message:
                    errors.append(_error_of_text(response.error_message))
                    continue
                read = read_response(response.infer_response)
                is_answered = read.is_final
                yield read
            if errors:  # of one sequence; others may have ended well
                raise errors[0]
            if not is_answered:
                raise ApiError("the model ended its answer early", 500, SERVER_ERROR)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise _api_error(error) from error
        finally:
            call.cancel()


def read_response(response: Any) -> CoreResponse:
    """The values of a ``ModelInferResponse``."""
    token_ids: list[int] = []
    log_probs: list[float] = []
    logits, index, length, stamps = None, 0, None, dict[str, int]()
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        match output.name:
            case "output_ids":
                token_ids = array("i", raw).tolist()
            case "sequence_length":
                [length] = array("i", raw)
            case "sequence_index":
                [index] = array("i", raw)
            case "output_log_probs":
                log_probs = array("f", raw).tolist()
            case "generation_logits":
                logits = np.frombuffer(raw, _FLOATS[output.datatype]).reshape(-1, output.shape[-1])
            case name if name in STAMP_OUTPUTS:
                [stamps[name]] = array("q", raw)
    is_final = response.parameters[_FINAL].bool_param if _FINAL in response.parameters else False
    ids = token_ids if length is None else token_ids[:length]
    return CoreResponse(index, ids, log_probs, logits, is_final, stamps_of(stamps))


def _error_of_text(message: str) -> ApiError:
    """The error of a stream, on which Triton 24.10 sends a text without a status.

    With the metadata ``triton_grpc_error`` it would end the stream with one, and crash where several requests fail at once.
    """
    return error_of(message, is_invalid=_SERVER_FAILED.search(message) is None)


def _api_error(error: BaseException) -> ApiError:
    if not isinstance(error, grpc.aio.AioRpcError):
        return ApiError("the model's connection ended", 503, SERVER_ERROR)
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return not_ready()
    return error_of(error.details() or error.code().name, error.code() in _INVALID)
