"""Observation of the target beside the exchanges: the sources of its metrics and of its models' statistics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click

from bench_cli.measurement.polled_times import with_polled_times
from bench_cli.measurement.target import Target
from bench_cli.measurement.telemetry_options import METRICS_PATH, MetricsUrl, TelemetryOptions
from bench_records.run_folder import RunFolder
from harness.clients.secret_values import hide_in_text
from harness.clients.transport.http_get import Headers
from harness.clients.transport.url import HttpUrl, parse_url
from harness.clients.triton.statistics import ReadStatistics, grpc_statistics
from harness.errors import JournalError
from harness.observation.machine_use import targets_at
from harness.observation.metrics_pages import MetricsSource
from harness.observation.observation import Observation, TimesSource, tabulate_observations


def observe(options: TelemetryOptions, target: Target, folder: RunFolder, *, distributed: bool) -> Observation:
    """The context to enter around the run. The CPU of a ``distributed`` client is not all of this machine's processes."""

    def note(text: str) -> None:
        click.echo(hide_in_text(text, target.client.hidden), err=True)

    servers = [(server.origin.host, server.origin.port) for server in target.servers]
    return Observation(
        folder,
        [_statistics(server) for server in target.servers],
        metrics_sources(options, target, note),
        note=note,
        find_target=None if distributed else targets_at(servers),
        times=_times(target, note),
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


def metrics_sources(
    options: TelemetryOptions, target: Target, note: Callable[[str], None] = lambda text: None
) -> tuple[MetricsSource, ...]:
    """The metrics at each --metrics_url, else at the usual place of each server; none for --telemetry_period 0.

    Raises UsageError for fewer pages than servers. ``note`` is called where servers have one usual place, whose metrics are
    those of one of them at most: then none are read.
    """
    period_s = options.telemetry_period
    if not period_s:
        return ()
    pages = options.urls()
    if 0 < len(pages) < len(target.servers):
        raise click.UsageError(
            f"--metrics_url: {len(pages)} for {len(target.servers)} --url; give one of each server, else "
            "the counts of the others are missing"
        )
    if pages:
        return tuple(_given_source(target, page, period_s) for page in pages)
    sources = tuple(_usual_source(server, period_s) for server in target.servers)
    places = [source.url for source in sources]
    shared = next((place for place in places if places.count(place) > 1), None)
    if shared is not None:
        note(
            f"{shared} is the usual place of the metrics of several --url, so none are recorded; give a --metrics_url of each."
        )
        return ()
    return sources


def _given_source(target: Target, page: MetricsUrl, period_s: float) -> MetricsSource:
    """The metrics at one --metrics_url."""
    is_own = page.url.origin in [server.origin for server in target.servers]
    return MetricsSource(page.url, period_s, headers=_headers(target, page.url), shown=page.shown, of_target=is_own)


def _times(target: Target, note: Callable[[str], None]) -> TimesSource | None:
    """Where the server's times of requests are polled; ``note`` is called where there are several servers: then none are."""
    if target.times_url is None:
        return None
    if target.others:
        note(f"{target.times_url} is one of several servers, so no times of requests are polled; measure it alone for these.")
        return None
    return TimesSource(target.times_url, _headers(target, target.times_url))


def _usual_source(target: Target, period_s: float) -> MetricsSource:
    """The metrics at the usual place of one server."""
    if target.embedded is not None:
        return MetricsSource(parse_url(target.embedded.metrics, METRICS_PATH), period_s)
    model, source = target.protocol.named_in_metrics(target.model), None
    for url in reversed(target.protocol.metrics_urls(target.origin)):
        headers, is_own = _headers(target, url), url.origin == target.origin
        source = MetricsSource(url, period_s, model, headers, otherwise=source, of_target=is_own)
    assert source is not None, "every protocol has a usual place"
    return source


def _statistics(target: Target) -> ReadStatistics | None:
    if target.embedded is not None:
        return partial(grpc_statistics, target.embedded.grpc)
    return target.protocol.statistics(target.origin, target.headers)


def _headers(target: Target, url: HttpUrl) -> Headers:
    """The headers of every request, which may hold a secret, and are therefore sent to measured servers alone."""
    return target.headers if url.origin in [server.origin for server in target.servers] else ()
