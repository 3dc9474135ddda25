"""Triton over gRPC: ``ModelInfer`` for one answer, ``ModelStreamInfer`` with one stream a request where the model is decoupled.

During the run only bytes are handled: protocol buffers are built before it, and parsed after it by ``messages.py``. Message
definitions are those that ``tritonclient`` ships (KServe v2 with Triton's extensions).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, Self

import grpc
import msgspec
from tritonclient.grpc import service_pb2

from bench_records.record import Outcome
from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS, AnswerLimits
from harness.clients.protocol import (
    AnswerEnd,
    Connection,
    ConnectionUsage,
    ExchangeFailedError,
    OnResponses,
    Response,
    is_full_message,
)
from harness.clients.secret_values import Spellings
from harness.clients.transport.certificates import BY_ENVIRONMENT, BY_OPTION, closed_problem, grpc_problem, unencrypted_problem
from harness.clients.transport.grpc import BadAnswerError, CallFailedError, GrpcCaller, NoConnectionMadeError
from harness.clients.transport.http2_pool import DEFAULT_LIMITS, ConnectionLimits
from harness.clients.transport.url import parse_grpc
from harness.clients.triton.messages import read_response
from harness.clients.triton.model import TritonModel
from harness.clients.triton.model_kinds import Ends, Tensor
from harness.clients.triton.service import SERVICE, open_channel
from harness.errors import NoSuchModelError, TargetError
from workloads.elements.request import Request

_CLOSED = "Socket closed"  # in details of gRPC
_TOO_LARGE = re.compile(r"message (larger than max|exceeds maximum size)")  # of gRPC in C++ and Go, and in Java
_FORMATS = {"INT32": "i", "UINT64": "Q", "BOOL": "?"}


def inspect_model(address: str, name: str, timeout_s: float = 10.0) -> TritonModel:
    """Fetch a model's configuration. Raises TargetError where none answers, NoSuchModelError where it has no such model."""
    with open_channel(address) as channel:
        return _inspect(channel, address, name, timeout_s, BY_ENVIRONMENT)


def inspect_model_over(channel: grpc.Channel, address: str, name: str, timeout_s: float) -> TritonModel:
    """As ``inspect_model``, over a channel to ``address`` that exists already, which may be encrypted."""
    return _inspect(channel, address, name, timeout_s, BY_OPTION)


def _inspect(channel: grpc.Channel, address: str, name: str, timeout_s: float, trust: str) -> TritonModel:
    request = service_pb2.ModelConfigRequest(name=name)
    call = channel.unary_unary(
        f"{SERVICE}/ModelConfig",
        request_serializer=service_pb2.ModelConfigRequest.SerializeToString,
        response_deserializer=service_pb2.ModelConfigResponse.FromString,
    )
    try:
        answer = call(request, timeout=timeout_s)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            raise NoSuchModelError(f"--model {name}: the server at {address} has no such model ({error.details()})") from error
        raise TargetError(_inspection_problem(address, name, error, timeout_s, trust)) from error
    if answer is None:  # an answer that ended in order within its message
        raise TargetError(f"--url {address}: the server ended its answer about model {name} without a message")
    return TritonModel.of_config(name, answer.config)


def _inspection_problem(address: str, name: str, error: Any, timeout_s: float, trust: str) -> str:
    certificate = grpc_problem(error.details() or "", trust)
    match error.code():
        case grpc.StatusCode.UNAVAILABLE if certificate is not None:
            return f"--url {address}: {certificate}"
        case grpc.StatusCode.UNAVAILABLE if (plain := unencrypted_problem(error.details() or "")) is not None:
            return f"--url {address}: {plain}"
        case grpc.StatusCode.UNAVAILABLE if parse_grpc(address).is_encrypted and _CLOSED in (error.details() or ""):
            return f"--url {address}: {closed_problem()}"
        case grpc.StatusCode.UNAVAILABLE:
            return f"--url {address}: no server answers there ({error.details()}); is the server up, and is this its gRPC port?"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"--url {address}: no answer within {timeout_s:.3g} s; is this the server's gRPC port?"
        case code:
            problem = f"the request for the configuration of model {name} failed with {code.name}: {error.details()}"
            return f"--url {address}: {problem}"


class TritonGrpcClient(msgspec.Struct, frozen=True, tag="triton_grpc"):
    """A Client for one model of the Triton server at ``address`` (``parse_grpc``).

    ``end_id`` and ``pad_id`` are sent where known and taken.
    """

    address: str
    model: TritonModel
    streaming: bool
    end_id: int | None = None
    pad_id: int | None = None
    connections: ConnectionLimits = DEFAULT_LIMITS
    limits: AnswerLimits = DEFAULT_ANSWER_LIMITS
    connection_timeout_s: float | None = None

    @property
    def excludes_prompt(self) -> bool:
        return self.model.excludes_prompt

    @property
    def hidden(self) -> Spellings:
        """Nothing: gRPC sends no secret."""
        return ()

    @property
    def expects_finish_reason(self) -> bool | None:
        return None

    @property
    def continuous_usage(self) -> bool | None:
        return None

    def sockets(self, in_flight: int) -> int:
        return self.connections.at_most

    def for_decoding(self) -> Self:
        return self

    def for_run(self, run_id: str) -> Self:
        return self

    def encode(self, index: int, request: Request) -> bytes:
        message = service_pb2.ModelInferRequest(model_name=self.model.named(request), id=str(index))
        for tensor in self.model.tensors(request, self.streaming, Ends(self.end_id, self.pad_id)):
            message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=self.model.shape(tensor))
            message.raw_input_contents.append(_raw(tensor))
        for name in self.model.outputs_read:
            message.outputs.add(name=name)
        payload: bytes = message.SerializeToString()
        return payload

    def decode(self, body: bytes) -> Response:
        return read_response(body, self.model)

    async def connect(self, timeout_s: float) -> Connection:
        method = "ModelStreamInfer" if self.model.decoupled else "ModelInfer"
        connection = _TritonConnection(GrpcCaller(self.address, f"{SERVICE}/{method}", self.connections, self.limits))
        await connection.connect(min(timeout_s, self.connection_timeout_s or timeout_s))
        return connection


@dataclass(frozen=True, slots=True)
class _TritonConnection:
    caller: GrpcCaller

    async def connect(self, timeout_s: float) -> None:
        try:
            await self.caller.connect(timeout_s)
        except CallFailedError as error:
            raise _failure(error) from error

    async def prepare(self, in_flight: int, timeout_s: float) -> None:
        await self.caller.prepare(in_flight)

    async def exchange(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> AnswerEnd:
        try:
            return await self.caller.call(payload, on_responses, timeout_s)
        except CallFailedError as error:
            raise _failure(error) from error

    async def exchange_at_once(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> AnswerEnd:
        try:
            return await self.caller.call_at_once(payload, on_responses, timeout_s)
        except CallFailedError as error:
            raise _failure(error) from error

    def reset_usage(self) -> None:
        self.caller.reset_usage()

    def usage(self, since_ns: int) -> ConnectionUsage:
        return self.caller.usage(since_ns)

    async def close(self) -> None:
        await self.caller.close()


def _failure(error: CallFailedError) -> ExchangeFailedError:
    message = f"{error.code.name}: {error.details}" if error.details else error.code.name
    if isinstance(error, NoConnectionMadeError):
        return ExchangeFailedError(Outcome.CONNECT, message)
    if isinstance(error, BadAnswerError):
        return ExchangeFailedError(Outcome.MALFORMED, message)
    exhausted = error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE.search(message) is None
    if is_full_message(message) or exhausted:
        return ExchangeFailedError(Outcome.REFUSED, message)
    match error.code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return ExchangeFailedError(Outcome.TIMEOUT, message)
        case grpc.StatusCode.UNAVAILABLE:
            return ExchangeFailedError(Outcome.STREAM_CUT, message)
        case grpc.StatusCode.CANCELLED:  # by the server: cancelling by this client surfaces as asyncio's CancelledError
            return ExchangeFailedError(Outcome.STREAM_CUT, message)
        case _:
            return ExchangeFailedError(Outcome.SERVER_ERROR, message)


def _raw(tensor: Tensor) -> bytes:
    """The values as Triton reads them: little-endian numbers, a byte for a truth value, texts each after its length."""
    if tensor.datatype == "BYTES":
        texts = [str(value).encode() for value in tensor.values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return struct.pack(f"<{len(tensor.values)}{_FORMATS[tensor.datatype]}", *tensor.values)
