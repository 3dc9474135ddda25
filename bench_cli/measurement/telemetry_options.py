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


def _read_metrics_url(ctx: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
    """Callback of --metrics_url. Raises BadParameter."""
    return None if url is None else reveal_query(WrittenIn.of(ctx, parameter), url)


@dataclass(frozen=True)
class TelemetryOptions(Concern, title="The server's own numbers"):
    """The reading of metrics. ``metrics_url`` None: the target's usual place; ``telemetry_period`` in seconds, 0 for none."""

    metrics_url: str | None = option(
        None,
        callback=_read_metrics_url,
        show_default="port 8002 of --url's host; with -i openai /metrics or /prometheus/metrics of the server; the embedded "
        "pipeline's own",
        help="URL of the server's metrics in Prometheus's format: http://host:port/path; in its query, NAME=@FILE and "
        "NAME=$VARIABLE read the value.",
    )
    telemetry_period: float = option(
        1.0, type=click.FloatRange(min=0), help="Seconds between two readings of the metrics; 0 reads none."
    )

    @property
    def _shown(self) -> str:
        return self.metrics_url.shown if isinstance(self.metrics_url, SecretText) else self.metrics_url or ""

    @property
    def shown_url(self) -> str:
        """``url`` without secrets."""
        from harness.clients.transport.url import parse_url

        return str(parse_url(self._shown, METRICS_PATH))

    def url(self) -> HttpUrl | None:
        """--metrics_url, parsed. Raises BadParameter."""
        from harness.clients.transport.url import parse_url

        if self.metrics_url is None:
            return None
        try:
            url = parse_url(str(self.metrics_url), METRICS_PATH)
            if not re.fullmatch(r"[!-~]*", url.path):
                raise ValueError("its path has characters that HTTP does not send")
            return url
        except ValueError as error:
            problem = f"{hide_in_refused_url(self._shown)!r} is no address of metrics; give http://host:port/path"
            raise click.BadParameter(problem, param_hint="--metrics_url") from error
