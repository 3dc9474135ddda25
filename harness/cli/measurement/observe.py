"""What a measuring verb watches beside the exchanges: where the target tells its metrics and its models' statistics."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlsplit

import click

from harness.cli.measurement.options import MeasureOptions
from harness.cli.measurement.target import Target
from harness.clients.transport.http_get import Headers, HttpUrl, parse_url
from harness.observation.model_statistics import ReadStatistics, grpc_statistics, http_statistics
from harness.observation.observation import MetricsSource, Observation, tabulate_observations
from harness.records.run_folder import RunFolder

_METRICS_PORT = 8002  # Triton's
_METRICS_PATH = "/metrics"
_STATISTICS_PATH = "/v2/models/stats"


def observe(options: MeasureOptions, target: Target, folder: RunFolder) -> Observation:
    """What to enter around the run. Raises BadParameter for a --metrics_url that is none."""
    return Observation(
        folder, _statistics(options, target), metrics_source(options, target), note=lambda text: click.echo(text, err=True)
    )


def tabulate(folder: RunFolder) -> None:
    """Make client.parquet and server.parquet; without room for them the run is whole all the same."""
    try:
        tabulate_observations(folder)
    except OSError as error:
        click.echo(f"What was watched of client and server is not kept: {error}", err=True)


def check_metrics_url(options: MeasureOptions) -> None:
    """Raises BadParameter, before anything is deployed."""
    if options.metrics_url is not None:
        _given_url(options.metrics_url)


def metrics_source(options: MeasureOptions, target: Target) -> MetricsSource | None:
    """Where to read metrics: where --metrics_url says, else where such a target has them."""
    if not options.telemetry_period:
        return None
    if options.metrics_url is not None:
        url = _given_url(options.metrics_url)
        return MetricsSource(url, options.telemetry_period, headers=_headers(options, target, url))
    if target.server is not None:
        return MetricsSource(parse_url(target.server.addresses.metrics, _METRICS_PATH), options.telemetry_period)
    if options.protocol == "openai":
        server = _server_url(target)
        url = HttpUrl(server.scheme, server.host, server.port, _METRICS_PATH)
        return MetricsSource(url, options.telemetry_period, headers=_headers(options, target, url))
    url = HttpUrl("http", _server_url(target).host, _METRICS_PORT, _METRICS_PATH)
    return MetricsSource(url, options.telemetry_period, model=target.model.name)


def _statistics(options: MeasureOptions, target: Target) -> ReadStatistics | None:
    if target.server is not None:
        return partial(grpc_statistics, target.server.addresses.grpc)
    match options.protocol:
        case "grpc":
            return partial(grpc_statistics, target.address)
        case "http":
            server = _server_url(target)
            url = HttpUrl(server.scheme, server.host, server.port, _STATISTICS_PATH)
            return partial(http_statistics, url, _headers(options, target, url))
        case _:
            return None


def _headers(options: MeasureOptions, target: Target, url: HttpUrl) -> Headers:
    """Those of every request: they may hold a key, which is for the measured server alone."""
    server = _server_url(target)
    ours = (url.scheme, url.host, url.port) == (server.scheme, server.host, server.port)
    return tuple((header.name, header.value) for header in options.header) if ours else ()


def _given_url(url: str) -> HttpUrl:
    try:
        return parse_url(url, _METRICS_PATH)
    except ValueError as error:
        raise click.BadParameter(f"{url!r}: {error}", param_hint="--metrics_url") from error


def _server_url(target: Target) -> HttpUrl:
    """The target's address, which may be host:port or a URL."""
    scheme = urlsplit(target.address).scheme if "://" in target.address else "http"
    return parse_url(target.address if scheme in ("http", "https") else target.address.partition("://")[2], _METRICS_PATH)
