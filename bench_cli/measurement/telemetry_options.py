"""Options of telemetry: the place of the server's own metrics, and the period of their readings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option
from bench_cli.measurement.secrets import SecretText, WrittenIn, hide_in_refused_url, reveal_query

if TYPE_CHECKING:
    from harness.clients.transport.url import HttpUrl

METRICS_PATH = "/metrics"


def _read_metrics_urls(ctx: click.Context, parameter: click.Parameter, urls: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of --metrics_url. Raises BadParameter."""
    return tuple(reveal_query(WrittenIn.of(ctx, parameter), url) for url in urls)


@dataclass(frozen=True)
class TelemetryOptions(Concern, title="The server's own numbers"):
    """The reading of metrics. ``metrics_url`` (): the target's usual place; ``telemetry_period`` in seconds, 0 for none."""

    metrics_url: tuple[str, ...] = option(
        (),
        callback=_read_metrics_urls,
        show_default="port 8002 of --url's host; with -i openai /metrics or /prometheus/metrics of the server; the embedded "
        "pipeline's own",
        help="URL of the server's metrics in Prometheus's format: http://host:port/path; in its query, NAME=@FILE and "
        "NAME=$VARIABLE read the value. Repeatable: a page for each of several servers, in the order of --url.",
    )
    telemetry_period: float = option(
        1.0, type=click.FloatRange(min=0), help="Seconds between two readings of the metrics; 0 reads none."
    )

    def check(self) -> None:
        """Raises UsageError for --metrics_url where nothing is read, BadParameter where it is malformed."""
        if self.metrics_url and not self.telemetry_period:
            raise click.UsageError("--metrics_url: --telemetry_period 0 reads no metrics; leave one of them out")
        self.urls()

    def urls(self) -> tuple[MetricsUrl, ...]:
        """Each --metrics_url, parsed. Raises BadParameter."""
        found = tuple(map(_parsed, self.metrics_url))
        for number, page in enumerate(found):
            if page.url in [other.url for other in found[:number]]:
                raise click.BadParameter(f"{page.shown!r} is given twice", param_hint="--metrics_url")
        return found


@dataclass(frozen=True, slots=True)
class MetricsUrl:
    """The address of a page of metrics; ``shown`` is its text without secrets."""

    url: HttpUrl
    shown: str


def _parsed(text: str) -> MetricsUrl:
    """Raises BadParameter."""
    from harness.clients.transport.url import parse_url

    shown = text.shown if isinstance(text, SecretText) else text
    try:
        url = parse_url(str(text), METRICS_PATH)
        if not re.fullmatch(r"[!-~]*", url.path):
            raise ValueError("its path has characters that HTTP does not send")
        return MetricsUrl(url, str(parse_url(shown, METRICS_PATH)))
    except ValueError as error:
        problem = f"{hide_in_refused_url(shown)!r} is no address of metrics; give http://host:port/path"
        raise click.BadParameter(problem, param_hint="--metrics_url") from error
