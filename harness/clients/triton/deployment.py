"""What a Triton server says of itself: its metadata, and the configuration of every model.

``ServerMetadata``, ``ModelStatistics`` for the names of the models, since ``RepositoryIndex`` is for administrators where a
server restricts protocols, and ``ModelConfig``; over gRPC, and the same over HTTP (Triton's docs/protocol). A server that lacks
one of them, or does not answer in time, has said nothing of it: a run does not depend on this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote

import grpc
import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from tritonclient.grpc import model_config_pb2, service_pb2

from bench_records.manifest import Deployment, Document
from harness.clients.deployment import within_bounds
from harness.clients.protocol import NOT_JSON
from harness.clients.transport.http_get import GetError, Headers, HttpGetter
from harness.clients.transport.url import Origin
from harness.clients.triton.service import SERVICE, open_channel

_LEAST_S = 0.01  # of a call, where the time is up
_MOST_ASKED = 100  # models

_Answer = TypeVar("_Answer")


def grpc_deployment(address: str, timeout_s: float) -> Deployment | None:
    """Asked over gRPC of ``address`` (``parse_grpc``), in ``timeout_s`` for all; None where the server says nothing."""
    end_s = time.monotonic() + timeout_s
    with open_channel(address) as channel:

        def ask(method: str, request: Any, answer: type[_Answer]) -> _Answer | None:
            call = channel.unary_unary(
                f"{SERVICE}/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,  # type: ignore[attr-defined]
            )
            with suppress(grpc.RpcError):
                found: _Answer | None = call(request, timeout=max(_LEAST_S, end_s - time.monotonic()))
                return found
            return None

        def config_of(name: str) -> Any:
            found: Any = ask("ModelConfig", service_pb2.ModelConfigRequest(name=name), service_pb2.ModelConfigResponse)
            return None if found is None else found.config

        server: Any = ask("ServerMetadata", service_pb2.ServerMetadataRequest(), service_pb2.ServerMetadataResponse)
        listed: Any = ask("ModelStatistics", service_pb2.ModelStatisticsRequest(), service_pb2.ModelStatisticsResponse)
        return _deployment(server, listed, config_of)


class _Server(msgspec.Struct):
    name: str | None = None
    version: str | None = None
    extensions: tuple[str, ...] | None = None


class _Listed(msgspec.Struct):
    name: str


class _Statistics(msgspec.Struct):
    model_stats: list[_Listed]


def http_deployment(origin: Origin, headers: Headers, timeout_s: float) -> Deployment | None:
    """The same over HTTP."""
    end_s = time.monotonic() + timeout_s

    def ask(path: str, answer: type[_Answer]) -> _Answer | None:
        try:
            with HttpGetter(origin.url(path), headers, max(_LEAST_S, end_s - time.monotonic())) as getter:
                return msgspec.json.decode(getter.get(), type=answer)
        except (GetError, *NOT_JSON):
            return None

    def config_of(name: str) -> Any:
        found = ask(f"/v2/models/{quote(name, safe='')}/config", dict[str, Any])
        if found is None:
            return None
        try:
            return ParseDict(found, model_config_pb2.ModelConfig(), ignore_unknown_fields=True)
        except (ParseError, RecursionError, TypeError, ValueError):
            return None

    return _deployment(ask("/v2", _Server), ask("/v2/models/stats", _Statistics), config_of)


def _deployment(server: Any, listed: Any, config_of: Callable[[str], Any]) -> Deployment | None:
    """What the answers for the ``server`` and for its models say, each None where there was none."""
    models = None if listed is None else _models((model.name for model in listed.model_stats), config_of)
    if server is None:
        return None if models is None else Deployment(models=models)
    extensions = None if server.extensions is None else tuple(server.extensions)
    return Deployment(server=server.name, version=server.version, extensions=extensions, models=models)


def _models(names: Iterable[str], config_of: Callable[[str], Any]) -> dict[str, Document]:
    """The configuration of each of the models, as a document; those that the server does not give are left out."""
    configs = {name: config_of(name) for name in sorted(set(names))[:_MOST_ASKED]}
    return within_bounds({name: _document(config) for name, config in configs.items() if config is not None})


def _document(config: Any) -> Document:
    """A ``ModelConfig`` without the fields that have protobuf's defaults; parameters, which are texts, by their names."""
    document: dict[str, object] = MessageToDict(config, preserving_proto_field_name=True)
    if config.parameters:
        document["parameters"] = {name: config.parameters[name].string_value for name in sorted(config.parameters)}
    return document
