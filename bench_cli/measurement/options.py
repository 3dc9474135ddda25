"""Options that every measuring verb shares, by concern. Spelled as upstream's README spells them where upstream has them.

A field of a concern has the name of its option, and of its key in ``run.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench_cli.declared import Concern, option, part
from bench_cli.measurement.client_options import ClientOptions
from bench_cli.measurement.config_option import read_config
from bench_cli.measurement.distribution_options import DistributionOptions
from bench_cli.measurement.embedded_options import EmbeddedOptions
from bench_cli.measurement.load_options import LoadOptions, TrafficOptions
from bench_cli.measurement.mixture_options import MixtureOptions
from bench_cli.measurement.output_options import CriteriaOptions, OutputOptions
from bench_cli.measurement.secrets import SecretText, hide_fields, hide_in_url
from bench_cli.measurement.target_options import TargetOptions
from bench_cli.measurement.telemetry_options import TelemetryOptions

MEASURING_VERBS = ("dataset", "token_norm_dist", "token_from_histogram", "trace")
"""The verbs that take these options."""


@dataclass(frozen=True)
class MeasureOptions(Concern):
    """The shared options of one measurement. ``measure.py`` opens it; all others take the concern that they need."""

    target: TargetOptions = part(TargetOptions)
    embedded: EmbeddedOptions = part(EmbeddedOptions)
    load: LoadOptions = part(LoadOptions)
    traffic: TrafficOptions = part(TrafficOptions)
    mixture: MixtureOptions = part(MixtureOptions)
    client: ClientOptions = part(ClientOptions)
    distribution: DistributionOptions = part(DistributionOptions)
    telemetry: TelemetryOptions = part(TelemetryOptions)
    output: OutputOptions = part(OutputOptions)
    criteria: CriteriaOptions = part(CriteriaOptions)
    config: Path | None = option(
        None,
        type=click.Path(path_type=Path, dir_okay=False),
        is_eager=True,
        callback=read_config,
        common=True,
        help="TOML file of options, for example request_rate = 10; the command line wins. Repeatable ones are lists: "
        'slo = ["p99_ttft<=300ms"].',
    )

    def manifest_entry(self) -> dict[str, Any]:
        """The key ``options`` of run.json: each option's value as JSON has it, without secrets."""
        recorded = {name: _json_value(value) for name, value in self.values_of_parts().items()}
        recorded["extra_body"] = hide_fields(recorded["extra_body"])
        return recorded | {name: _hidden_urls(recorded[name]) for name in ("url", "endpoint", "metrics_url")}


def _hidden_urls(value: Any) -> Any:
    """A URL, several, or None, without secrets."""
    if isinstance(value, list):
        return [hide_in_url(url) for url in value]
    return None if value is None else hide_in_url(value)


def _json_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | list):
        return [_json_value(item) for item in value]
    if isinstance(value, Concern):
        return _json_value(value.values())
    if isinstance(value, dict):
        return {name: _json_value(item) for name, item in value.items()}
    return value.shown if isinstance(value, SecretText) else str(value)  # of a path, a header and an objective, too
