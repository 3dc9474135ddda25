"""Triton's model statistics: the requests of each model, and how long they were queued and computed.

``ModelStatistics`` over gRPC and ``/v2/models/stats`` over HTTP; Triton's docs/protocol/extension_statistics.md defines them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import msgspec
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import service_pb2

from bench_records.manifest import ModelStatistics, PhaseTotal
from harness.clients.transport.http_get import GetError, Headers, HttpGetter
from harness.clients.transport.url import HttpUrl
from harness.clients.triton.service import SERVICE, open_channel

_TIMEOUT_S = 5.0
_COUNTS = ("inference_count", "execution_count")
_DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
_SETTLING_S = 0.1
_SETTLING_READS = 10
_LONGEST_REASON = 2_000  # characters

ByModel = dict[str, ModelStatistics]
"""The statistics of each model, by its name."""

ReadStatistics = Callable[[], ByModel]


class StatisticsError(Exception):
    """A server returned no model statistics; the text is the reason, cut where a server's is long."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason[:_LONGEST_REASON])


def grpc_statistics(address: str) -> ByModel:
    """Fetch over gRPC from ``address`` (``parse_grpc``). Raises StatisticsError."""
    with open_channel(address) as channel:
        call = channel.unary_unary(
            f"{SERVICE}/ModelStatistics",
            request_serializer=service_pb2.ModelStatisticsRequest.SerializeToString,
            response_deserializer=service_pb2.ModelStatisticsResponse.FromString,
        )
        try:
            answer = call(service_pb2.ModelStatisticsRequest(), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            raise StatisticsError(f"{error.code().name}: {error.details()}") from error
    if answer is None:  # an answer that ended in order within its message
        raise StatisticsError("the server ended its answer without a message")
    return _by_model(MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))


def http_statistics(url: HttpUrl, headers: Headers = ()) -> ByModel:
    """The same over HTTP; ``url`` is that of ``/v2/models/stats``. Raises StatisticsError."""
    try:
        with HttpGetter(url, headers) as getter:
            return _by_model(json.loads(getter.get()))
    except (GetError, RecursionError, ValueError) as error:
        raise StatisticsError(str(error)) from error


def settled(read: ReadStatistics) -> ByModel:
    """Read until nothing changes: a server counts a request shortly after answering it. Raises StatisticsError."""
    statistics = read()
    for _ in range(_SETTLING_READS):
        time.sleep(_SETTLING_S)
        before, statistics = statistics, read()
        if statistics == before:
            break
    return statistics


def sum_of(servers: Sequence[ByModel]) -> ByModel:
    """The sums over servers, of each model of any of them: all are counts and times in all."""
    sums: ByModel = {}
    for models in servers:
        for name, model in models.items():
            sums[name] = _sum(sums.get(name, ModelStatistics()), _as_answered(model))
    return dict(sorted(sums.items()))


def _as_answered(model: ModelStatistics) -> Any:
    """The statistics in the form of a server's answer."""
    counts = {name: getattr(model, name) for name in _COUNTS}
    return counts | {"inference_stats": {name: msgspec.to_builtins(getattr(model, name)) for name in _DURATIONS}}


def _by_model(answer: Any) -> ByModel:
    """The sums over the versions of each model."""
    by_model: ByModel = {}
    try:
        for version in answer["model_stats"]:
            name = version["name"]
            by_model[name] = _sum(by_model.get(name, ModelStatistics()), version)
        return msgspec.convert(msgspec.to_builtins(dict(sorted(by_model.items()))), ByModel)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise StatisticsError(f"the answer cannot be read: {error!r}") from error


def _sum(sums: ModelStatistics, version: Any) -> ModelStatistics:
    counts = {name: getattr(sums, name) + int(version.get(name, 0)) for name in _COUNTS}
    phases = {name: _with(getattr(sums, name), version["inference_stats"].get(name, {})) for name in _DURATIONS}
    return ModelStatistics(**counts | phases)


def _with(total: PhaseTotal, phase: Any) -> PhaseTotal:
    return PhaseTotal(total.count + int(phase.get("count", 0)), total.ns + int(phase.get("ns", 0)))
