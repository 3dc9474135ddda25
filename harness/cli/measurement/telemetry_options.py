"""Options of telemetry: the place of the server's own metrics, and the period of their readings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import cloup

from harness.cli.measurement.secrets import hide_in_url

if TYPE_CHECKING:
    from harness.clients.transport.url import HttpUrl

METRICS_PATH = "/metrics"


@dataclass(frozen=True)
class TelemetryOptions:
    """The reading of metrics. ``metrics_url`` None: the target's usual place; ``telemetry_period`` in seconds, 0 for none."""

    metrics_url: str | None
    telemetry_period: float

    def url(self) -> HttpUrl | None:
        """--metrics_url, parsed. Raises BadParameter."""
        from harness.clients.transport.url import parse_url

        if self.metrics_url is None:
            return None
        try:
            return parse_url(self.metrics_url, METRICS_PATH)
        except ValueError as error:
            raise click.BadParameter(f"{hide_in_url(self.metrics_url)!r}: {error}", param_hint="--metrics_url") from error


telemetry_group = cloup.option_group(
    "The server's own numbers",
    cloup.option(
        "--metrics_url",
        show_default="port 8002 of --url's host; the embedded pipeline's own",
        help="URL of the server's metrics in Prometheus's format: http://host:port/path.",
    ),
    cloup.option(
        "--telemetry_period",
        type=click.FloatRange(min=0),
        default=1.0,
        help="Seconds between two readings of the metrics; 0 reads none.",
    ),
)
