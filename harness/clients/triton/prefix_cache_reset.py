"""Emptying the prefix cache of the embedded engine behind Triton, by a request to its core model.

The project's ``tensorrt_llm`` model answers a request with the parameter ``reset_prefix_cache`` without an output, when the
cache is empty. NVIDIA's C++ backend has no such call, and would generate a token.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

import grpc
import msgspec
from tritonclient.grpc import service_pb2

from harness.clients.transport.http_get import GetError, HttpGetter, HttpStatusError
from harness.clients.transport.url import Origin
from harness.clients.triton.model import TritonModel
from harness.clients.triton.service import open_channel
from harness.errors import TargetError

_PARAMETER = "reset_prefix_cache"
_INPUTS = ("input_ids", "input_lengths", "request_output_len")  # those that every request must have
_GENERATED = "it generated a token instead; bench serve there is older than this call, so start it anew"
_BUSY = "in flight"  # of the engine's message
_BUSY_S, _PAUSE_S = 10.0, 0.25  # a server may count the last request as running a moment after its answer
_TIMEOUT_S = 600.0  # a large model is loaded anew


class ResetError(Exception):
    """The server refused to empty its cache, or did not answer; the message is its reason."""


class ResetCall(Protocol):
    """One request for an empty cache to the core model. Raises ResetError."""

    def __call__(self) -> None: ...


@dataclass(frozen=True)
class GrpcResetCall:
    """Over gRPC, to ``model`` at ``address``."""

    address: str
    model: str

    def __call__(self) -> None:
        message = service_pb2.ModelInferRequest(model_name=self.model)
        for name in _INPUTS:
            message.inputs.add(name=name, datatype="INT32", shape=(1, 1))
            message.raw_input_contents.append(struct.pack("<i", 1))
        message.parameters[_PARAMETER].bool_param = True
        try:
            with open_channel(self.address, (("grpc.enable_http_proxy", 0),)) as channel:
                stream = channel.stream_stream(
                    "/inference.GRPCInferenceService/ModelStreamInfer",
                    request_serializer=service_pb2.ModelInferRequest.SerializeToString,
                    response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
                )
                answers = list(stream(iter([message]), timeout=_TIMEOUT_S))
        except grpc.RpcError as error:
            raise ResetError(str(error)) from error
        for answer in answers:
            if answer.error_message:
                raise ResetError(answer.error_message)
            if answer.infer_response.outputs:
                raise ResetError(_GENERATED)


@dataclass(frozen=True)
class HttpResetCall:
    """Over HTTP, by the generate extension, to ``model`` at ``origin``, with ``headers``."""

    origin: Origin
    model: str
    headers: Mapping[str, str]

    def __call__(self) -> None:
        body = msgspec.json.encode(dict.fromkeys(_INPUTS, 1) | {"parameters": {_PARAMETER: True}})
        url = self.origin.url(f"/v2/models/{quote(self.model, safe='')}/generate")
        try:
            with HttpGetter(url, tuple(self.headers.items()), _TIMEOUT_S, "POST", body) as call:
                answer = call.get()
        except HttpStatusError as error:
            raise ResetError(error.message or str(error)) from error
        except GetError as error:
            raise ResetError(str(error)) from error
        if b'"output_ids"' in answer:
            raise ResetError(_GENERATED)


@dataclass(frozen=True)
class TritonPrefixCacheReset:
    """The call that empties the cache of the engine that ``model`` uses."""

    model: str
    call: ResetCall

    def __str__(self) -> str:
        return f"{_PARAMETER} of the model {self.model}"

    def __call__(self) -> None:
        """Empty the cache. A server that is busy is asked again for 10 s. Raises TargetError."""
        deadline_s = time.monotonic() + _BUSY_S
        while True:
            try:
                self.call()
                return
            except ResetError as error:
                if _BUSY not in str(error) or time.monotonic() > deadline_s:
                    raise TargetError(f"--reset_prefix_cache: the model {self.model}: {error}") from error
            time.sleep(_PAUSE_S)


def find_triton_prefix_cache_reset(
    inspect: Callable[[str], TritonModel], model: str, make_call: Callable[[str], ResetCall]
) -> TritonPrefixCacheReset:
    """The call of the core ``model``, after it has emptied the cache once.

    Raises TargetError where there is none, or it fails.
    """
    if not dict(inspect(model).parameters).get("engine"):
        raise TargetError(
            f"--reset_prefix_cache: the model {model} is not the engine of bench serve; NVIDIA's C++ backend and other models "
            "of Triton have no call that empties the prefix cache, so restart the server before each run"
        )
    reset = TritonPrefixCacheReset(model, make_call(model))
    reset()
    return reset
