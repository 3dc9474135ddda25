"""The manifest of a run (run.json): everything needed to repeat it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

import click
from msgspec import structs

from bench_cli.measurement.load_options import LoadOptions, arrival_law
from bench_cli.measurement.options import MeasureOptions
from bench_cli.measurement.prepare import PreparedRun
from bench_cli.measurement.secrets import without_secrets
from bench_cli.measurement.target import Target
from bench_cli.tokenizers import ordinary_token_ids, text_codec
from bench_records.manifest import (
    CalibrationFacts,
    Connections,
    Criteria,
    Deployment,
    DrawnSchedule,
    EmbeddedServer,
    Environment,
    GapLaw,
    LawOfArrivals,
    Length,
    Lengths,
    LoadFacts,
    LoadStage,
    Manifest,
    OneTarget,
    RepeatedPrefix,
    ServerStatistics,
    TargetFacts,
    WarmUp,
    WorkersFacts,
    Workload,
)
from harness.calibration.result import this_machine
from harness.calibration.store import CalibrationFileError, default_path, find_calibration, for_manifest
from harness.clients.protocol import ConnectionUsage
from harness.clients.secret_values import hide_in_text
from harness.journal.run_identity import new_run_id
from harness.recording.run_result import RunResult
from harness.run.environment import describe_environment
from serving.engines.fingerprints import fingerprints
from workloads.arrivals.processes import AllAtOnce, Recorded, offsets_within
from workloads.arrivals.rate_profile import Piecewise, Profiled
from workloads.elements.request import HistorySource
from workloads.lengths.samples import PairedLengths
from workloads.prompts.exact_text import retokenised_ratio
from workloads.schedule.load import AnyLoad, ClosedLoop, OpenLoop, Sessions
from workloads.schedule.schedule import AnySchedule, ClosedSchedule, SessionSchedule
from workloads.table.prefixes import BLOCK_TOKENS, most_repeated_share, prefix_repetition

_MOST_COMPARED_PROMPTS = 100_000  # 1 to 2 s of CPU after the run
_DESCRIPTION_S = 5.0  # for all that the server says of itself


def make_manifest(verb: str, options: MeasureOptions, prepared: PreparedRun) -> Manifest:
    """The manifest before the first request. It records every option, and therefore takes all of them."""
    target, workload, schedule, workers = prepared.target, prepared.workload, prepared.schedule, prepared.workers
    found = surroundings(options, target)
    return structs.replace(
        found,
        run_id=new_run_id(),
        verb=verb,
        workload=Workload(
            description=workload.description,
            parameters=workload.parameters,
            requests=prepared.load_requests,
            dropped_too_long=workload.dropped_too_long,
        ),
        mixture=prepared.mixed.entry,
        lengths=_lengths(workload.lengths, workload.shared_tokens),
        arrivals=str(prepared.load),
        schedule=DrawnSchedule(digest=schedule.digest, seed=schedule.seed),
        options=options.manifest_entry(),
        criteria=Criteria(
            slo=tuple(map(str, options.criteria.slo)),
            fail_if=tuple(map(str, options.criteria.fail_if)),
            until=options.load.until,
        ),
        warm_up=WarmUp(requests=options.client.warmup_requests),
        prefix_cache_reset=None if target.prefix_cache_reset is None else str(target.prefix_cache_reset),
        calibration=calibration_for_run(
            target.protocol.calibrated_as, found.environment or Environment(), workers_here=options.distribution.are_all_here
        ),
        load=_load_facts(options, prepared),
        workers=WorkersFacts(count=workers.count, why=workers.reason, pinned_cores=tuple(workers.pinned_cores)),
    )


def surroundings(options: MeasureOptions, target: Target) -> Manifest:
    """The manifest's keys about everything but the traffic: the server and its engine, this machine, and versions."""
    timeout_s = min(_DESCRIPTION_S, options.client.connect_timeout)
    with ThreadPoolExecutor(len(target.servers)) as pool:
        deployments = list(pool.map(lambda server: _deployment(server, timeout_s), target.servers))
    return Manifest(
        bench_version=version("inflight-bench"),
        target=_target_facts(target),
        server=None if target.embedded is None else _embedded_server(options),
        deployment=deployments[0],
        targets=_each_target(target, deployments) if target.others else None,
        environment=describe_environment(),
    )


def _embedded_server(options: MeasureOptions) -> EmbeddedServer:
    engine = options.manifest_entry()["engine_settings"]
    folder = options.embedded.engine_settings.folder(options.embedded.engine_dir)
    return EmbeddedServer(engine=engine, engine_files=fingerprints(folder))


def _deployment(target: Target, timeout_s: float) -> Deployment | None:
    """What the server says of itself, without secrets."""
    said, hidden = target.describe(timeout_s), target.client.hidden
    if said is None:
        return None
    configs = (said.models or {}).items()
    models = {hide_in_text(name, hidden): without_secrets(config, hidden) for name, config in configs}
    return Deployment(
        server=without_secrets(said.server, hidden),
        version=without_secrets(said.version, hidden),
        extensions=None if said.extensions is None else tuple(hide_in_text(name, hidden) for name in said.extensions),
        models=None if said.models is None else models,
    )


def _each_target(target: Target, deployments: Sequence[Deployment | None]) -> tuple[OneTarget, ...]:
    return tuple(
        OneTarget(
            address=server.address,
            model_parameters=dict(server.model.parameters),
            continuous_usage=server.client.continuous_usage,
            sends_finish_reason=server.client.expects_finish_reason,
            template_tokens=server.template_tokens,
            deployment=deployment,
        )
        for server, deployment in zip(target.servers, deployments, strict=True)
    )


def _target_facts(target: Target) -> TargetFacts:
    template_tokens = {server.template_tokens for server in target.servers}
    return TargetFacts(
        address=", ".join(server.address for server in target.servers),
        protocol=target.protocol.name,
        model=target.model.name,
        decoupled=target.model.decoupled,
        streaming=target.streaming,
        embedded=target.embedded is not None,
        tokenizer_dir=None if target.tokenizer_dir is None else str(target.tokenizer_dir),
        model_parameters=dict(target.model.parameters),
        continuous_usage=target.client.continuous_usage,
        sends_finish_reason=target.client.expects_finish_reason,
        template_tokens=target.template_tokens if len(template_tokens) == 1 else None,
        token_ids=target.model.takes_token_ids,
        retokenised_ratio=_retokenised_ratio(target.tokenizer) if target.model.returns_text else None,
        server_timings=True if target.server_timings else None,
        servers=len(target.servers) if target.others else None,
        balance=target.balance.value if target.others else None,
    )


def _retokenised_ratio(tokenizer: Any | None) -> float | None:
    """Measured for the check of the server's token counts by the returned texts."""
    return None if tokenizer is None else retokenised_ratio(text_codec(tokenizer), ordinary_token_ids(tokenizer))


def _load_facts(options: MeasureOptions, prepared: PreparedRun) -> LoadFacts:
    """``ran_out`` is as far as that is known before the run."""
    load, requested = prepared.load, options.load
    end_s = _profile_end_s(prepared)
    return LoadFacts(
        mode=_mode(load),
        max_concurrency=requested.max_concurrency,
        concurrency=requested.concurrency,
        duration_s=load.duration_s,
        ramp_up_s=requested.ramp_up,
        prepared=prepared.load_requests,
        ran_out=_ran_out(options, prepared),
        own_arrivals=True if isinstance(load, OpenLoop) and isinstance(load.arrivals, Recorded | Profiled) else None,
        stages=_stages(load, end_s),
        asked_arrivals=_asked_arrivals(load, end_s),
        law=_law(requested) if isinstance(load, OpenLoop) and not isinstance(load.arrivals, Recorded | AllAtOnce) else None,
    )


def _ran_out(options: MeasureOptions, prepared: PreparedRun) -> bool:
    """Whether more requests would arrive within the duration, of sessions more first turns, than there are."""
    load, traffic = prepared.load, options.traffic
    if isinstance(load, ClosedLoop) or load.duration_s is None:
        return False
    if isinstance(load, OpenLoop):
        wanted = prepared.workload.wanted
        arriving = load.most_requests(traffic.seed, traffic.num_requests) if wanted is None else wanted
        return arriving is not None and prepared.load_requests < arriving
    if prepared.load_requests == traffic.num_requests:
        return False
    return offsets_within(load.arrivals, load.duration_s, traffic.seed, load.count + 1).size > load.count


def _profile_end_s(prepared: PreparedRun) -> float | None:
    """When the arrivals by a rate that changes ended: with its profile or --duration, or a mean gap after the last of them
    where --num_requests or the prompts end them before. None where the rate stays.
    """
    load, schedule = prepared.load, prepared.schedule
    if isinstance(load, ClosedLoop) or isinstance(schedule, ClosedSchedule) or not isinstance(load.arrivals, Profiled):
        return None
    parents = schedule.parents if isinstance(schedule, SessionSchedule) else (None,) * len(schedule)
    of_load = list(zip(schedule.offsets_ns, parents, strict=True))[: prepared.load_requests]
    due_ns = [offset_ns or 0 for offset_ns, parent in of_load if parent is None]
    end_s = load.duration_s
    if end_s is not None and offsets_within(load.arrivals, end_s, schedule.seed, len(due_ns) + 1).size <= len(due_ns):
        return end_s
    last_s = max(due_ns) / 1e9
    rate_per_s = load.arrivals.rate_per_s * load.arrivals.profile.rate_at(last_s)
    behind_s = last_s + (1.0 / rate_per_s if rate_per_s else 1e-9)
    return behind_s if end_s is None else min(behind_s, end_s)


def _stages(load: AnyLoad, end_s: float | None) -> tuple[LoadStage, ...] | None:
    """The stages of a rate that changes by steps, up to the end of its arrivals; None for any other."""
    if not isinstance(load, OpenLoop) or not isinstance(load.arrivals, Profiled) or end_s is None:
        return None
    profile = load.arrivals.profile
    stages = profile.stages if isinstance(profile, Piecewise) else ()
    until = [replace(stage, end_s=min(stage.end_s, end_s)) for stage in stages if stage.begin_s < end_s]
    return tuple(LoadStage(**asdict(stage)) for stage in until) or None


def _asked_arrivals(load: AnyLoad, end_s: float | None) -> LawOfArrivals | None:
    """None without a rate. A rate that changes has its mean until ``end_s``."""
    if isinstance(load, ClosedLoop):
        return None
    arrivals = load.arrivals
    rate_per_s = arrivals.asked_rate_per_s
    if isinstance(arrivals, Profiled) and end_s is not None:
        rate_per_s = arrivals.asked_rate_until(end_s)
    if rate_per_s is None:
        return None
    return LawOfArrivals(
        law=load.law if isinstance(load, Sessions) else str(arrivals),
        unit="sessions" if isinstance(load, Sessions) else "requests",
        rate_per_s=rate_per_s,
        gap_cv=arrivals.asked_gap_cv,
        law_gap_cv=arrivals.arrivals.asked_gap_cv if isinstance(arrivals, Profiled) else arrivals.asked_gap_cv,
    )


def _law(requested: LoadOptions) -> GapLaw:
    law = arrival_law(requested)
    return GapLaw(name=law.name.value, parameter=law.parameter, text=str(law))


def _mode(load: AnyLoad) -> str:
    match load:
        case OpenLoop():
            return "open"
        case ClosedLoop():
            return "closed"
        case Sessions():
            return "sessions"


def _lengths(lengths: PairedLengths | None, shared_tokens: int) -> Lengths | None:
    """Each side's law, and what it draws. The lengths of prompts include the tokens that they share."""
    if lengths is None:
        return None
    (input_law, output_law), (input_moments, output_moments) = lengths.laws, lengths.moments()
    return Lengths(
        input=Length(
            law=f"{shared_tokens} + {input_law}" if shared_tokens else str(input_law),
            mean=shared_tokens + input_moments.mean,
            stdev=input_moments.stdev,
        ),
        output=Length(law=str(output_law), mean=output_moments.mean, stdev=output_moments.stdev),
    )


def calibration_for_run(transport: str, environment: Environment, *, workers_here: bool = True) -> CalibrationFacts | None:
    """The result of `bench calibrate` for ``transport`` on this machine; None where there is none, and where workers are on
    other machines, of which it says nothing.

    An unreadable file is a warning, for the run does not depend on it.
    """
    if not workers_here:
        return None
    try:
        return for_manifest(find_calibration(default_path(), this_machine(environment)), transport)
    except CalibrationFileError as error:
        click.echo(f"Warning: {error}", err=True)
        return None


def after_run(
    manifest: Manifest, prepared: PreparedRun, result: RunResult, statistics: Sequence[ServerStatistics | None] = ()
) -> Manifest:
    """``manifest`` with what is known after the run alone: the prefixes that were sent, connections, and the ``statistics`` of
    each target.
    """
    sent = [index for _, index in sorted((r.sent_ns, r.index) for r in result.records if r.sent_ns is not None)]
    limit_of = prepared.workload.limit_of
    of_load = [index for index in sent if index < prepared.load_requests]  # probes come after
    limits = {} if limit_of is None else limit_of(of_load)
    workload = structs.replace(
        manifest.workload,
        parameters={**manifest.workload.parameters, **limits},
        repeated_prefix=_repeated_prefix(prepared.schedule, sent),
    )
    connections, load = connections_of(result.connections), _ended_load(manifest, prepared, result)
    targets = manifest.targets
    if targets is not None and statistics:
        pairs = zip(targets, statistics, strict=True)
        targets = tuple(structs.replace(target, server_statistics=counted) for target, counted in pairs)
    return structs.replace(manifest, workload=workload, connections=connections, load=load, targets=targets)


def _ended_load(manifest: Manifest, prepared: PreparedRun, result: RunResult) -> LoadFacts | None:
    """The load with what was asked of it until a rule ended the run, where its rate changes."""
    load, facts = prepared.load, manifest.load
    if facts is None or result.rule_end is None or not isinstance(load, OpenLoop) or not isinstance(load.arrivals, Profiled):
        return facts
    end_s = result.rule_end.end_ns / 1e9
    if facts.duration_s is not None:
        end_s = min(end_s, facts.duration_s)
    return structs.replace(facts, stages=_stages(load, end_s), asked_arrivals=_asked_arrivals(load, end_s))


def connections_of(usages: Sequence[ConnectionUsage | None]) -> Connections | None:
    """The sums over the connections of all workers, and the largest ``per_worker``; None where no worker reported any. A worker
    that died is missing.
    """
    reported = [usage for usage in usages if usage is not None]
    if not reported:
        return None
    longest_ns = max((usage.longest_wait_ns for usage in reported if usage.longest_wait_ns is not None), default=None)
    return Connections(
        per_worker=max(usage.per_worker for usage in reported),
        opened=sum(usage.opened for usage in reported),
        limit_reached=sum(usage.limit_reached for usage in reported),
        longest_wait_ms=None if longest_ns is None else longest_ns / 1e6,
        total_wait_ms=sum(usage.total_wait_ns for usage in reported) / 1e6,
        unstamped_reads=sum(usage.unstamped_reads for usage in reported),
        workers_told=len(reported),
    )


def _repeated_prefix(schedule: AnySchedule, sent: Sequence[int]) -> RepeatedPrefix | None:
    """None where the server's answers were in the prompts, which are not known then."""
    if isinstance(schedule, SessionSchedule) and schedule.history is HistorySource.SERVER:
        return None
    requests = [schedule.requests[index] for index in sent]
    repetition = prefix_repetition(requests)
    blocks = sum(math.ceil(len(request.input_ids or ()) / BLOCK_TOKENS) for request in requests)
    in_blocks = repetition.unit == "tokens" and blocks > 0
    return RepeatedPrefix(
        share=repetition.share,
        unit=repetition.unit,
        block_tokens=BLOCK_TOKENS,
        block_share=repetition.repeated / BLOCK_TOKENS / blocks if in_blocks else None,
        most_share=most_repeated_share(requests) if len(requests) <= _MOST_COMPARED_PROMPTS else None,
        whole_prompts=repetition.repeated_prompts,
    )
