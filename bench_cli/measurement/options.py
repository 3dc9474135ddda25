"""Options that every measuring verb shares, by concern. Spelled as upstream's README spells them where upstream has them.

A concern's option group and its dataclass are in one file; a field has the name of its option, and of its key in ``run.json``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from bench_cli.engine_options import EngineSettings, engine_group
from bench_cli.measurement.client_options import ClientOptions, client_group
from bench_cli.measurement.config_option import config_option
from bench_cli.measurement.distribution_options import DistributionOptions, distribution_group
from bench_cli.measurement.embedded_options import EmbeddedOptions, embedded_group
from bench_cli.measurement.load_options import LoadOptions, TrafficOptions, load_group, traffic_group
from bench_cli.measurement.mixture_options import MixtureOptions, mixture_group
from bench_cli.measurement.output_options import CriteriaOptions, OutputOptions, output_group
from bench_cli.measurement.secrets import SecretText, hide_fields, hide_in_url
from bench_cli.measurement.target_options import TargetOptions, http_group, target_group
from bench_cli.measurement.telemetry_options import TelemetryOptions, telemetry_group

_GROUPS = (
    target_group, http_group, embedded_group, engine_group, load_group, traffic_group, mixture_group, client_group,
    distribution_group,
    telemetry_group, output_group,
)  # fmt: skip
_Concern = TypeVar("_Concern")


@dataclass(frozen=True)
class MeasureOptions:
    """The shared options of one measurement. ``measure.py`` opens it; all others take the concern that they need."""

    target: TargetOptions
    embedded: EmbeddedOptions
    load: LoadOptions
    traffic: TrafficOptions
    mixture: MixtureOptions
    client: ClientOptions
    distribution: DistributionOptions
    telemetry: TelemetryOptions
    output: OutputOptions
    criteria: CriteriaOptions

    def manifest_entry(self) -> dict[str, Any]:
        """The key ``options`` of run.json: each option's value as JSON has it, without secrets."""
        entry: dict[str, Any] = {}
        for concern in fields(self):
            entry |= vars(getattr(self, concern.name))
        recorded = {name: _json_value(value) for name, value in entry.items()}
        recorded["extra_body"] = hide_fields(recorded["extra_body"])
        urls = ("url", "endpoint", "metrics_url")
        return recorded | {name: hide_in_url(recorded[name]) for name in urls if isinstance(recorded.get(name), str)}


def measure_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a verb with every shared option, and with --config."""
    function = config_option(function)
    for group in reversed(_GROUPS):
        function = group(function)
    return function


def read_options(values: dict[str, Any]) -> MeasureOptions:
    """The shared options, from the values that click passes to a verb that ``measure_options`` decorates."""
    engine_settings = read_concern(EngineSettings, values)
    return MeasureOptions(
        target=read_concern(TargetOptions, values),
        embedded=read_concern(EmbeddedOptions, values | {"engine_settings": engine_settings}),
        load=read_concern(LoadOptions, values),
        traffic=read_concern(TrafficOptions, values),
        mixture=read_concern(MixtureOptions, values),
        client=read_concern(ClientOptions, values),
        distribution=read_concern(DistributionOptions, values),
        telemetry=read_concern(TelemetryOptions, values),
        output=read_concern(OutputOptions, values),
        criteria=read_concern(CriteriaOptions, values),
    )


def read_concern(concern: Callable[..., _Concern], values: dict[str, Any]) -> _Concern:
    """The options of one concern, a dataclass, from the values that click passes to a verb."""
    return concern(**{field.name: values[field.name] for field in fields(concern)})  # type: ignore[arg-type]


def _json_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | list):
        return [_json_value(item) for item in value]
    if isinstance(value, EngineSettings):
        return _json_value(vars(value))
    if isinstance(value, dict):
        return {name: _json_value(item) for name, item in value.items()}
    return value.shown if isinstance(value, SecretText) else str(value)  # of a path, a header and an objective, too
