"""Triton over HTTP, by its generate extension."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal

from bench_records.manifest import Deployment
from harness.clients.protocol import Client
from harness.clients.transport.http_get import Headers
from harness.clients.transport.url import Origin, parse_origin
from harness.clients.triton.deployment import http_deployment
from harness.clients.triton.http import TritonHttpClient, inspect_model
from harness.clients.triton.model import TritonModel
from harness.clients.triton.prefix_cache_reset import HttpResetCall, ResetCall
from harness.clients.triton.statistics import ReadStatistics, http_statistics
from harness.protocols.protocol import HTTP_PORTS, ClientSettings, EmbeddedPort, UrlError
from harness.protocols.triton import EndAndPad, TritonProtocol

_STATISTICS_PATH = "/v2/models/stats"


class TritonHttp(TritonProtocol):
    """Triton's ``generate_stream``, or ``generate`` for an answer that is not streamed."""

    name: ClassVar[str] = "http"
    client_type: ClassVar[type] = TritonHttpClient
    calibrated_as: ClassVar[Literal["grpc", "sse"]] = "sse"
    embedded_port: ClassVar[EmbeddedPort | None] = "http"

    def address(self, url: str, path: str | None) -> Origin:
        """Scheme, host and port; the port defaults to 8000, for https to 443."""
        try:
            return parse_origin(url, HTTP_PORTS)
        except ValueError as error:
            raise UrlError("is no HTTP address; give http://host:port, without a path") from error

    def inspect(self, origin: Origin, name: str, headers: Mapping[str, str], timeout_s: float) -> TritonModel:
        return inspect_model(origin, name, headers, timeout_s)

    def client(
        self, origin: Origin, model: TritonModel, streaming: bool, end_and_pad: EndAndPad, settings: ClientSettings
    ) -> Client:
        return TritonHttpClient(
            origin,
            model,
            streaming,
            *end_and_pad,
            settings.headers,
            settings.limits,
            settings.secrets,
            settings.connection_timeout_s,
        )

    def deployment(self, origin: Origin, headers: Headers, timeout_s: float) -> Deployment | None:
        return http_deployment(origin, headers, timeout_s)

    def reset_call(self, origin: Origin, model: str, headers: Mapping[str, str]) -> ResetCall:
        return HttpResetCall(origin, model, headers)

    def statistics(self, origin: Origin, headers: Headers) -> ReadStatistics | None:
        return partial(http_statistics, origin.url(_STATISTICS_PATH), headers)
