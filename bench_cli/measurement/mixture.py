"""The mixture of a run: classes, planned cancellations and probes in the schedule of its load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from bench_cli.measurement.load_options import TrafficOptions
from bench_cli.measurement.mixture_options import MixtureOptions
from bench_cli.measurement.prepare import Mixed
from bench_cli.measurement.random_prompts import RandomPrompts, prepare_random_prompts
from bench_cli.measurement.target import Target
from bench_records.manifest import Mixture, MixtureClass, PlannedCancellation, Probes
from harness.errors import TargetError
from reports.criteria import parse_slo
from workloads.arrivals.processes import AllAtOnce
from workloads.elements.request import Request, Variant
from workloads.lengths.families import Constant
from workloads.lengths.samples import Independent
from workloads.schedule.cancellations import Cancellation, with_cancellations
from workloads.schedule.load import OpenLoop
from workloads.schedule.probes import ProbeStream, probe_offsets_ns, probe_seed, with_probes
from workloads.schedule.schedule import AnySchedule, ClosedSchedule, Schedule, SessionSchedule
from workloads.schedule.traffic_classes import TrafficClass, with_classes


def mix(
    schedule: AnySchedule, options: MixtureOptions, traffic: TrafficOptions, target: Target, vocab_size: int | None
) -> Mixed:
    """``schedule``, which has the load alone, with what the options mix in. Raises UsageError.

    ``vocab_size`` is that of the load's random ids, None for the tokenizer's; probes have the same.
    """
    classes, cancel, probes = options.classes, options.cancel, _probe_stream(options)
    if classes:
        for traffic_class in classes:
            _check_class(traffic_class, target)
        schedule = with_classes(schedule, classes, traffic.seed)
    if cancel is not None:
        if cancel.point.after_tokens is not None and not target.streaming:
            raise click.UsageError(f"--cancel {cancel}: the answers are not streamed, so tokens come together; give a time")
        schedule = with_cancellations(schedule, cancel, traffic.seed)
    if probes is not None:
        assert not isinstance(schedule, ClosedSchedule), "refused with the options"
        schedule = _probed(schedule, probes, traffic, target, vocab_size)
    mixed = Mixed(schedule)
    return replace(mixed, entry=_entry(mixed, classes, cancel, probes)) if classes or cancel or probes else mixed


def _probe_stream(options: MixtureOptions) -> ProbeStream | None:
    return None if options.probe_rate is None else ProbeStream(options.probe_rate, options.probe_isl, options.probe_osl)


def _check_class(traffic_class: TrafficClass, target: Target) -> None:
    """Raise UsageError for a class that the target cannot serve, and for an objective that its answers cannot meet; warn of a
    class that it may not serve.
    """
    for objective in traffic_class.objectives:
        if not target.streaming and parse_slo(objective).metric.streamed_only:
            raise click.UsageError(f"--class {traffic_class}: {objective} needs streamed answers (--streaming); use e2e")
    for server in target.servers:
        at = f"--url {server.address}: " if target.others else ""
        try:
            warning = server.check_variant(traffic_class.variant or Variant())
        except TargetError as error:
            problem = str(error).removeprefix(f"--model {traffic_class.variant.model if traffic_class.variant else None}: ")
            raise click.UsageError(f"--class {traffic_class}: {at}{problem}") from error
        if warning is not None:
            click.echo(f"Warning: --class {traffic_class}: {at}{warning}", err=True)


def _probed(
    schedule: Schedule | SessionSchedule,
    stream: ProbeStream,
    traffic: TrafficOptions,
    target: Target,
    vocab_size: int | None,
) -> Schedule | SessionSchedule:
    offsets_ns = probe_offsets_ns(stream, schedule, traffic.seed).tolist()
    if not offsets_ns:
        raise click.UsageError(
            f"--probe_rate {stream.rate_per_s:g}: no probe is due before the last time of the load; give a --request_rate, "
            "measure for longer, or raise it"
        )
    return with_probes(schedule, _probe_requests(stream, len(offsets_ns), traffic, target, vocab_size), offsets_ns)


def _probe_requests(
    stream: ProbeStream, count: int, traffic: TrafficOptions, target: Target, vocab_size: int | None
) -> Sequence[Request]:
    """Random prompts of the probes' lengths, none like another. Raises UsageError."""
    most = target.context_tokens
    if most is not None and stream.input_tokens + stream.output_tokens > most:
        raise click.UsageError(f"--probe_isl and --probe_osl: {stream} do not fit the model's context of {most:,} tokens")
    lengths = Independent(Constant(stream.input_tokens), Constant(stream.output_tokens))
    own = replace(traffic, seed=probe_seed(traffic.seed), num_requests=count, max_input_len=None)
    return prepare_random_prompts(RandomPrompts(lengths, {}, vocab_size), own, OpenLoop(AllAtOnce()), target).requests


def _entry(mixed: Mixed, classes: Sequence[TrafficClass], cancel: Cancellation | None, probes: ProbeStream | None) -> Mixture:
    return Mixture(
        classes=tuple(map(_class_entry, classes)),
        objectives={traffic_class.name: traffic_class.objectives for traffic_class in classes if traffic_class.objectives},
        cancellation=None
        if cancel is None
        else PlannedCancellation(
            percent=cancel.percent,
            after_ns=cancel.point.after_ns,
            after_tokens=cancel.point.after_tokens,
            requests=sum(request.cancel is not None for request in mixed.schedule.requests),
        ),
        probe=None
        if probes is None
        else Probes(
            rate_per_s=probes.rate_per_s,
            input_tokens=probes.input_tokens,
            output_tokens=probes.output_tokens,
            requests=mixed.probes,
        ),
    )


def _class_entry(traffic_class: TrafficClass) -> MixtureClass:
    variant = traffic_class.variant or Variant()
    return MixtureClass(
        name=traffic_class.name, weight=traffic_class.weight, model=variant.model, lora_task_id=variant.lora_task_id
    )
