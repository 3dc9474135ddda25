"""Observation of the target beside the exchanges: the sources of its metrics and of its models' statistics."""

from __future__ import annotations

from functools import partial

import click

from bench_cli.measurement.polled_times import with_polled_times
from bench_cli.measurement.target import Target
from bench_cli.measurement.telemetry_options import METRICS_PATH, TelemetryOptions
from bench_records.run_folder import RunFolder
from harness.clients.secret_values import hide_in_text
from harness.clients.transport.http_get import Headers
from harness.clients.transport.url import HttpUrl, parse_url
from harness.clients.triton.statistics import ReadStatistics, grpc_statistics
from harness.errors import JournalError
from harness.observation.machine_use import target_at
from harness.observation.observation import MetricsSource, Observation, TimesSource, tabulate_observations


def observe(options: TelemetryOptions, target: Target, folder: RunFolder, *, distributed: bool) -> Observation:
    """The context to enter around the run. The CPU of a ``distributed`` client is not all of this machine's processes."""
    return Observation(
        folder,
        _statistics(target),
        metrics_source(options, target),
        note=lambda text: click.echo(hide_in_text(text, target.client.hidden), err=True),
        find_target=None if distributed else target_at(target.origin.host, target.origin.port),
        times=None if target.times_url is None else TimesSource(target.times_url, _headers(target, target.times_url)),
    )


def tabulate(folder: RunFolder) -> None:
    """Write client.parquet and server.parquet, and into requests.parquet the server's times that were polled; a full disk, or a
    damaged file, costs these, and not the run.
    """
    try:
        tabulate_observations(folder)
        if folder.perf_metrics.exists():
            click.echo(with_polled_times(folder), err=True)
    except (OSError, JournalError) as error:
        click.echo(f"The observations of client and server cannot be written, and are lost: {error}", err=True)


def metrics_source(options: TelemetryOptions, target: Target) -> MetricsSource | None:
    """The metrics at --metrics_url, else at the usual place of such a target; None for --telemetry_period 0."""
    period_s = options.telemetry_period
    if not period_s:
        return None
    url = options.url()
    if url is not None:
        is_own = url.origin == target.origin
        return MetricsSource(url, period_s, headers=_headers(target, url), shown=options.shown_url, of_target=is_own)
    if target.embedded is not None:
        return MetricsSource(parse_url(target.embedded.metrics, METRICS_PATH), period_s)
    model, source = target.protocol.named_in_metrics(target.model), None
    for url in reversed(target.protocol.metrics_urls(target.origin)):
        headers, is_own = _headers(target, url), url.origin == target.origin
        source = MetricsSource(url, period_s, model, headers, otherwise=source, of_target=is_own)
    return source


def _statistics(target: Target) -> ReadStatistics | None:
    if target.embedded is not None:
        return partial(grpc_statistics, target.embedded.grpc)
    return target.protocol.statistics(target.origin, target.headers)


def _headers(target: Target, url: HttpUrl) -> Headers:
    """The headers of every request, which may hold a secret, and are therefore sent to the measured server alone."""
    return target.headers if url.origin == target.origin else ()
