"""Options of mixtures: classes of traffic, probes beside the load, and planned cancellations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option

if TYPE_CHECKING:
    from bench_cli.measurement.client_options import ClientOptions
    from bench_cli.measurement.load_options import LoadOptions
    from bench_cli.measurement.target_options import TargetOptions
    from workloads.schedule.cancellations import Cancellation
    from workloads.schedule.traffic_classes import TrafficClass


def _read_cancel(context: click.Context, parameter: click.Parameter, text: str | None) -> Cancellation | None:
    """Callback of --cancel. Raises WorkloadError."""
    if text is None:
        return None
    from workloads.schedule.cancellations import parse_cancellation

    return parse_cancellation(text)


def _with_objectives(traffic_class: TrafficClass, context: click.Context, parameter: click.Parameter) -> TrafficClass:
    """The class with its objectives as they are printed. Raises BadParameter."""
    from reports.criteria import parse_slo
    from reports.metrics.goodput import Objective

    objectives: list[str] = []
    for text in traffic_class.objectives:
        try:
            criterion = parse_slo(text)
        except ValueError as error:
            raise click.BadParameter(f"{traffic_class.name}: {error}", context, parameter) from None
        if not isinstance(criterion, Objective):
            raise click.BadParameter(
                f"{traffic_class.name}: {text!r} judges a whole run; a class has objectives for each request, as ttft<=500ms",
                context,
                parameter,
            )
        objectives.append(str(criterion))
    return replace(traffic_class, objectives=tuple(objectives))


def _read_classes(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[TrafficClass, ...]:
    """Callback of --class; the imports are late, for they need numpy. Raises BadParameter, and WorkloadError."""
    if not texts:
        return ()
    from workloads.schedule.traffic_classes import parse_class

    classes = tuple(_with_objectives(parse_class(text), context, parameter) for text in texts)
    names = [traffic_class.name for traffic_class in classes]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"{name} is given twice; a class has one --class", context, parameter)
    return classes


@dataclass(frozen=True)
class MixtureOptions(Concern, title="Mixtures (docs/explanation/load.md)"):
    """What is mixed into the load. ``classes`` is empty, ``probe_rate`` and ``cancel`` are None where there is none."""

    classes: tuple[TrafficClass, ...] = option(
        (),
        "--class",
        metavar="NAME:KEY=VALUE,…",
        callback=_read_classes,
        help="A class of requests, with a row of its own in the report: weight=3 is its share of all classes' weights, "
        "model=NAME and lora=TASK_ID what it requests, slo=ttft<=500ms an objective for its requests only. Repeatable.",
    )
    probe_rate: float | None = option(
        None,
        type=click.FloatRange(min=0, min_open=True, max=1e6),
        metavar="R",
        help="Beside the load, R small requests per second (exponential gaps), reported apart; the load is the same without.",
    )
    probe_isl: int = option(32, type=click.IntRange(1, 10_000_000), help="Input tokens of a probe.")
    probe_osl: int = option(8, type=click.IntRange(1, 10_000_000), help="Output tokens of a probe.")
    cancel: Cancellation | None = option(
        None,
        metavar="SHARE:after=…",
        callback=_read_cancel,
        help="Cancel a share of the requests: 5%:after=2s (5 % of requests, 2 s after sending) or 5%:after=20tokens. Cancelled "
        "requests do not count as failed. Probes are never cancelled.",
    )


def check_mixture_options(options: MixtureOptions, load: LoadOptions, client: ClientOptions, target: TargetOptions) -> None:
    """Raise UsageError for options that contradict each other or the protocol, or have no effect."""
    if options.probe_rate is None:
        for name in options.given("probe_isl", "probe_osl"):
            raise click.UsageError(f"--{name} applies to probes: give --probe_rate")
    elif load.concurrency is not None:
        raise click.UsageError(
            "--probe_rate cannot be combined with --concurrency: probes are due by the clock, and a closed loop has no times "
            "of its own; give --request_rate"
        )
    for traffic_class in options.classes:
        variant = traffic_class.variant
        if variant is not None and variant.lora_task_id is not None and not target.serving.takes_lora_task_id:
            raise click.UsageError(
                f"--class {traffic_class}: lora= is a task id of Triton's models; over OpenAI's protocol an adapter is a model "
                "of its own: give model=ADAPTER"
            )
    after_ns = None if options.cancel is None else options.cancel.point.after_ns
    if after_ns is not None and after_ns >= client.request_timeout * 1e9:
        raise click.UsageError(
            f"--cancel {options.cancel}: no request lasts so long, for --request_timeout {client.request_timeout:g} ends it"
        )
    if options.cancel is not None and options.cancel.point.after_tokens is not None and target.streaming is False:
        raise click.UsageError(f"--cancel {options.cancel}: tokens come together without --streaming; give a time")
