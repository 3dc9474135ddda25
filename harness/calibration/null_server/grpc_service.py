"""The null server's version of Triton's gRPC service: inference, and the metadata that clients fetch before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from tritonclient.grpc import model_config_pb2, service_pb2

from harness.calibration.null_server.grpc_channel import Call, GrpcChannel
from harness.calibration.null_server.grpc_messages import read_request, response_template
from harness.calibration.null_server.models import NULL_MODELS, BadRequestError, NullModel
from harness.calibration.null_server.pacing import Pace

_SERVICE = "/inference.GRPCInferenceService/"
_NAME, _VERSION = "null", "1"


class GrpcService:
    """Answers the messages of every channel. ``inferences`` counts the accepted requests, by model."""

    def __init__(self, pace: Pace, inferences: Counter[str]) -> None:
        self._pace = pace
        self._inferences = inferences
        self._metadata_methods: dict[str, tuple[Any, Callable[[Any], Any]]] = {
            "ServerLive": (service_pb2.ServerLiveRequest, lambda _: service_pb2.ServerLiveResponse(live=True)),
            "ServerReady": (service_pb2.ServerReadyRequest, lambda _: service_pb2.ServerReadyResponse(ready=True)),
            "ServerMetadata": (
                service_pb2.ServerMetadataRequest,
                lambda _: service_pb2.ServerMetadataResponse(name=_NAME, version=_VERSION),
            ),
            "ModelReady": (
                service_pb2.ModelReadyRequest,
                lambda query: service_pb2.ModelReadyResponse(ready=query.name in NULL_MODELS),
            ),
            "ModelMetadata": (service_pb2.ModelMetadataRequest, _metadata),
            "ModelConfig": (
                service_pb2.ModelConfigRequest,
                lambda query: service_pb2.ModelConfigResponse(config=_model(query.name).config()),
            ),
            "ModelStatistics": (service_pb2.ModelStatisticsRequest, self._statistics),
        }

    def on_message(self, channel: GrpcChannel, call: Call, message: bytes, received_ns: int) -> None:
        """Answer one message, or end its call with a status that contains the reason."""
        method = call.method.removeprefix(_SERVICE)
        try:
            if method in ("ModelInfer", "ModelStreamInfer"):
                self._infer(channel, call, service_pb2.ModelInferRequest.FromString(message), received_ns)
            elif method in self._metadata_methods:
                kind, reply = self._metadata_methods[method]
                channel.reply(call, reply(kind.FromString(message)).SerializeToString())
            else:
                channel.end(call, grpc.StatusCode.UNIMPLEMENTED, f"the null server has no {call.method}")
        except _UnknownModelError as error:
            channel.end(call, grpc.StatusCode.NOT_FOUND, str(error))
        except (BadRequestError, DecodeError) as error:
            channel.end(call, grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _infer(self, channel: GrpcChannel, call: Call, request: Any, received_ns: int) -> None:
        model = _model(request.model_name)
        if model.decoupled != call.method.endswith("ModelStreamInfer"):
            wanted = "ModelStreamInfer" if model.decoupled else "ModelInfer"
            raise BadRequestError(f"the model {model.name} is called by {wanted}")
        inference = read_request(request, model)
        if inference.streaming:
            count, tokens, pace = inference.tokens, 1, self._pace
        else:
            count, tokens, pace = 1, inference.tokens, self._pace.unstreamed(inference.tokens)
        message, stamp_at = response_template(model, inference.id, tokens, received_ns)
        self._inferences[model.name] += 1
        channel.answer(call, message, stamp_at, count, pace, received_ns)

    def _statistics(self, query: Any) -> Any:
        """The accepted requests of the named model, or of each where none is named."""
        models = [_model(query.name)] if query.name else list(NULL_MODELS.values())
        response = service_pb2.ModelStatisticsResponse()
        for model in models:
            count = self._inferences[model.name]
            statistics = response.model_stats.add(
                name=model.name, version=_VERSION, inference_count=count, execution_count=count
            )
            statistics.inference_stats.success.count = count
        return response


class _UnknownModelError(Exception):
    pass


def _model(name: str) -> NullModel:
    model = NULL_MODELS.get(name)
    if model is None:
        raise _UnknownModelError(f"Request for unknown model: '{name}' is not found; there are {', '.join(NULL_MODELS)}")
    return model


def _metadata(query: Any) -> Any:
    config = _model(query.name).config()
    response = service_pb2.ModelMetadataResponse(name=config.name, versions=[_VERSION], platform=config.platform)
    for tensors, described in ((config.input, response.inputs), (config.output, response.outputs)):
        for tensor in tensors:
            kind = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
            described.add(name=tensor.name, datatype="BYTES" if kind == "STRING" else kind, shape=tensor.dims)
    return response
