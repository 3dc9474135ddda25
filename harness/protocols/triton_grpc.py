"""Triton over gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal

from bench_records.manifest import Deployment
from harness.clients.protocol import Client
from harness.clients.transport.http2_pool import DEFAULT_LIMITS, ConnectionLimits
from harness.clients.transport.http_get import Headers
from harness.clients.transport.url import Origin, parse_grpc
from harness.clients.triton.deployment import grpc_deployment
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.clients.triton.model import TritonModel
from harness.clients.triton.prefix_cache_reset import GrpcResetCall, ResetCall
from harness.clients.triton.statistics import ReadStatistics, grpc_statistics
from harness.protocols.protocol import ClientSettings, EmbeddedPort, UrlError
from harness.protocols.triton import EndAndPad, TritonProtocol


class TritonGrpc(TritonProtocol):
    """Triton's gRPC service: ``ModelStreamInfer``, or ``ModelInfer`` for an answer that is not streamed."""

    name: ClassVar[str] = "grpc"
    client_type: ClassVar[type] = TritonGrpcClient
    calibrated_as: ClassVar[Literal["grpc", "sse"]] = "grpc"
    embedded_port: ClassVar[EmbeddedPort | None] = "grpc"
    pools_connections: ClassVar[bool] = True
    takes_headers: ClassVar[bool] = False

    def address(self, url: str, path: str | None) -> Origin:
        """Host and port, and whether it is encrypted; the port defaults to Triton's, for grpcs to 443."""
        try:
            return parse_grpc(url)
        except ValueError as error:
            remedy = "give host:port or grpcs://host:port, or -i openai or -i http for a server over HTTP"
            raise UrlError(f"is no gRPC address; {remedy}") from error

    def shown(self, origin: Origin) -> str:
        return str(origin) if origin.is_encrypted else origin.address

    def inspect(self, origin: Origin, name: str, headers: Mapping[str, str], timeout_s: float) -> TritonModel:
        return inspect_model(self.shown(origin), name, timeout_s)

    def client(
        self, origin: Origin, model: TritonModel, streaming: bool, end_and_pad: EndAndPad, settings: ClientSettings
    ) -> Client:
        connections = connection_limits(settings.connections)
        return TritonGrpcClient(
            self.shown(origin), model, streaming, *end_and_pad, connections, settings.limits, settings.connection_timeout_s
        )

    def deployment(self, origin: Origin, headers: Headers, timeout_s: float) -> Deployment | None:
        return grpc_deployment(self.shown(origin), timeout_s)

    def reset_call(self, origin: Origin, model: str, headers: Mapping[str, str]) -> ResetCall:
        return GrpcResetCall(self.shown(origin), model)

    def statistics(self, origin: Origin, headers: Headers) -> ReadStatistics | None:
        return partial(grpc_statistics, self.shown(origin))


def connection_limits(connections: int | None) -> ConnectionLimits:
    """Exactly ``connections``; None: the number that measured best, and more where each has more than eight streams, or where
    the server's stream limit is reached.
    """
    return DEFAULT_LIMITS if connections is None else ConnectionLimits(connections, connections)
