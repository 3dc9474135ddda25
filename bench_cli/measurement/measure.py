"""One measurement, the same for every measuring verb: find the target, draw the schedule, run, record, report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from bench_cli.measurement.client_options import ClientOptions, check_client_options, check_time_outs
from bench_cli.measurement.client_size import load_demand, size_client
from bench_cli.measurement.distribution import distributed_workers, live_page, open_pool
from bench_cli.measurement.distribution_options import check_distribution_options
from bench_cli.measurement.early_end import check_early_end, check_early_end_of, early_end, end_rules
from bench_cli.measurement.embedded_options import check_embedded_options
from bench_cli.measurement.manifest import after_run, make_manifest
from bench_cli.measurement.mixture import mix
from bench_cli.measurement.mixture_options import check_mixture_options
from bench_cli.measurement.observe import observe, tabulate
from bench_cli.measurement.options import MeasureOptions
from bench_cli.measurement.output_options import (
    CriteriaOptions,
    OutputOptions,
    announce_too_few,
    check_criteria,
    check_given,
    check_objectives,
    gates_passed,
)
from bench_cli.measurement.prepare import PreparedRun, PrepareRequests, make_schedule
from bench_cli.measurement.run_folder import open_run_folder
from bench_cli.measurement.secrets import hidden_in_errors
from bench_cli.measurement.show import ANSWER, FULL, show_run
from bench_cli.measurement.target import Target, open_target, try_target
from bench_cli.measurement.target_options import check_sessions, check_target_options
from bench_cli.measurement.times import Milestones, record_whole_times, times_until_recorded
from bench_cli.signals import signals_as_interrupt
from bench_cli.tokenizers import text_codec, token_counter
from bench_errors import ExitStatus
from bench_records.folder_lock import shared_lock
from bench_records.manifest import LoadFacts, Manifest
from bench_records.record import FAILED_BY_TARGET, FAILURES, Outcome
from bench_records.run_folder import RunFolder
from harness.errors import WarmUpError
from harness.host.moment import Moment
from harness.host.signals import signals_blocked
from harness.observation.observation import Observation, hidden_in
from harness.recording.recorder import Recorder
from harness.recording.run_lifecycle import finish_run, open_run
from harness.recording.run_result import RunResult
from harness.recording.schedule_file import RecordingBasis
from harness.recording.schedule_summary import summarise_schedule
from harness.run.coordinator import Run, RunPlan
from harness.run.progress_line import ProgressLine
from harness.run.warm_up import warm_up_requests
from reports.criteria import parse_fail_if
from reports.findings.completeness import BoundReached
from reports.metrics.catalogue import FAILED_SHARE
from reports.metrics.configuration import configured_load
from reports.render.counts import counted
from reports.run.op_stats import append_op_stats, check_op_stats_file, check_perf, read_reference
from reports.run.perfetto import write_perfetto
from reports.run_report import RunReport
from workloads.schedule.load import Load

if TYPE_CHECKING:
    from harness.distribution.remote_pool import RemotePool


@dataclass(frozen=True)
class Instead:
    """The object of a context whose measuring verbs do something else than to measure."""

    carry_out: Callable[[str, MeasureOptions, Load, PrepareRequests], int]


def measure(verb: str, options: MeasureOptions, load: Load, prepare_requests: PrepareRequests) -> int:
    """Carry out one measurement under ``load``, or that of the prepared requests, and return the exit status.

    Within a context that has an ``Instead``, that is carried out.
    """
    context = click.get_current_context(silent=True)
    instead = None if context is None else context.find_object(Instead)
    if instead is not None:
        return instead.carry_out(verb, options, load, prepare_requests)
    _check(options)
    reference = reference_of(options)
    with open_run_folder(verb, options.output.run_dir, options.output.shared_results) as folder, signals_as_interrupt():
        try:
            with (
                hidden_in_errors(options.target.hidden),
                open_pool(options.distribution) as pool,
                open_target(options.target, options.client, options.embedded, folder.server_log) as opened,
            ):
                check_criteria(options.criteria.slo, options.criteria.fail_if, opened.streaming)
                check_early_end_of(options.load, opened.streaming)
                check_time_outs(options.client, opened.streaming)
                target = try_target(opened, options.client)
                prepared = _prepare(options, load, target, prepare_requests)
                manifest = make_manifest(verb, options, prepared)
                remedy = "--num_requests {}" if options.load.duration is None else "a longer --duration"
                announce_too_few(options.criteria.slo, options.criteria.fail_if, prepared.load_requests, remedy)
                observation = observe(options.telemetry, target, folder, distributed=pool is not None)
                result = _run(prepared, options, observation, folder, manifest, pool)
                recorded = Moment.now()
            closed = Moment.now()
            report, passed = concluded(folder, options, reference)
            click.echo(record_whole_times(folder, Milestones(options.call.started, recorded, closed)), err=True)
        except KeyboardInterrupt:
            if folder.requests.exists():
                click.echo(f"The run is recorded; 'bench report {folder.path}' makes its report.", err=True)
            raise
        click.echo(f"Report: {folder.html}")
        return status_of(report, result, passed, options.criteria.fail_if)


def reference_of(options: MeasureOptions) -> dict[str, float] | None:
    """The numbers of --check_perf_json, None without it. Raises UsageError where files of the options cannot be used."""
    if options.output.op_stats_csv is not None:
        check_op_stats_file(options.output.op_stats_csv)
    return _read_reference(options.criteria)


def concluded(folder: RunFolder, options: MeasureOptions, reference: dict[str, float] | None) -> tuple[RunReport, bool]:
    """Write and print the reports of a recorded run, and whether it meets the criteria of the options."""
    report = show_run(folder, options.output.plots, FULL if options.output.full else ANSWER)
    _announce_bound(report)
    _write_extras(report, options.output)
    is_fast_enough = _check_performance(report, options.criteria, reference)
    passed = gates_passed(report, options.criteria.fail_if, options.criteria.undecided)
    return report, is_fast_enough and passed


def _check(options: MeasureOptions) -> None:
    """Raises UsageError for options that contradict each other, or have no effect; before anything is deployed."""
    check_client_options(options.client, options.load, options.target.serving)
    check_time_outs(options.client, options.target.streaming)
    check_distribution_options(options.distribution, options.client, options.load, options.target.url)
    check_target_options(options.target)
    check_embedded_options(options.embedded, options.target.url)
    check_mixture_options(options.mixture, options.load, options.client, options.target)
    check_objectives(options.criteria.slo, options.criteria.fail_if)
    check_early_end(options.load)
    check_given(options.criteria)
    options.telemetry.check()


def _prepare(options: MeasureOptions, load: Load, target: Target, prepare_requests: PrepareRequests) -> PreparedRun:
    workload = prepare_requests(options.traffic, load, target)
    own_load = workload.load or load
    schedule = make_schedule(workload, own_load, options.traffic, target)
    check_sessions(options.target, schedule)
    demand = load_demand(own_load, schedule, options.load.request_rate, target.streaming)
    workers = distributed_workers(options.distribution) or size_client(
        options.client, demand, [server.origin.host for server in target.servers]
    )
    mixed = mix(schedule, options.mixture, options.traffic, target, workload.vocab_size)
    return PreparedRun(target, workload, own_load, mixed, workers)


def _run(
    prepared: PreparedRun,
    options: MeasureOptions,
    observation: Observation,
    folder: RunFolder,
    manifest: Manifest,
    pool: RemotePool | None,
) -> RunResult:
    """Carry out the run and record it while the target is still up: nothing may come between a run and its records."""
    schedule, target = prepared.schedule, prepared.target
    basis = RecordingBasis(
        run_id=manifest.run_id or "",
        schedule=summarise_schedule(schedule, _decoder(target)),
        client=target.client,
        workers=prepared.workers.count,
        tokenizer_dir=_resolved(target.tokenizer_dir),
        further=tuple(other.client.expects_finish_reason for other in target.others),
    )
    page = live_page(pool, target.streaming)
    rules = end_rules(options.load, prepared, configured_load(manifest))
    announce = partial(_announce, prepared, manifest.load or LoadFacts())
    plan = replace(
        _plan(prepared, options.client, basis, observation, folder),
        on_start=None if pool is None else announce,  # workers on other hosts may not come, or may not reach the target
        on_record=None if page is None else page.add,
        end_rule=rules,
    )
    with shared_lock(folder.path), open_run(folder, manifest, basis):
        if pool is None:
            announce()
        with (
            ProgressLine() as progress,
            _text_advised(target),
            signals_blocked(),
        ):  # execute takes signals itself; the records are made without any
            result = Run(plan, pool).execute(progress if page is None else page.beside(progress))
            ended = msgspec.structs.replace(
                after_run(manifest, prepared, result, observation.statistics),
                **msgspec.structs.asdict(hidden_in(observation.observed, target.client.hidden)),
                times=times_until_recorded(options.call.started, result),
                distribution=None if pool is None else pool.distribution(),
                early_end=early_end(options.load, rules, prepared, result),
            )
            finish_run(folder, ended, result)
            tabulate(folder)
    if result.interrupted:
        click.echo(_stopped(result, None if prepared.load.ends_by_the_clock else len(schedule)), err=True)
    if ended.early_end is not None:
        click.echo(f"Ended by {ended.early_end.rule}: {ended.early_end.reason}.", err=True)
    if result.problem is not None:
        click.echo(f"Sending stopped, because the client could not write its journal: {result.problem}.", err=True)
    return result


def _announce(prepared: PreparedRun, load: LoadFacts) -> None:
    """Say on stderr what is sent, and where it is too little for --duration."""
    click.echo(prepared.announcement(), err=True)
    if load.ran_out:
        click.echo(
            f"Only {counted(prepared.load_requests, 'request')} can be sent, too few for --duration {load.duration_s:g}: "
            "the run will end early.",
            err=True,
        )


@contextmanager
def _text_advised(target: Target) -> Iterator[None]:
    """Where no warm-up request of token ids succeeds, say how the server gets text: many servers of completions take no ids."""
    try:
        yield
    except WarmUpError as error:
        if not (target.protocol.takes_ids_or_text and target.model.takes_token_ids):
            raise
        problem = str(error).rstrip(".")
        raise WarmUpError(f"{problem}. A server that takes no token ids as a prompt needs --prompt_as text") from error


def _announce_bound(report: RunReport) -> None:
    """Say on stderr that a run with --until is less precise than requested."""
    for finding in report.findings:
        if isinstance(finding, BoundReached):
            click.echo(finding.sentence, err=True)


def _stopped(result: RunResult, planned: int | None) -> str:
    """What was sent of the ``planned`` requests, None where the clock decides how many there are."""
    sent = sum(record.sent_ns is not None for record in result.records)
    failed = sum(record.sent_ns is not None and record.outcome in FAILURES for record in result.records)
    not_sent = "" if planned is None else f", {planned - sent:,} not sent"
    return f"Stopped: {sent:,} sent, {failed:,} failed{not_sent}."


def _plan(
    prepared: PreparedRun, options: ClientOptions, basis: RecordingBasis, observation: Observation, folder: RunFolder
) -> RunPlan:
    target, schedule = prepared.target, prepared.schedule
    count_tokens = None if target.tokenizer is None else token_counter(target.tokenizer)
    return RunPlan(
        schedule=schedule,
        client=target.client,
        recorder=Recorder(basis.schedule, target.client, count_tokens, basis.further),
        folder=folder,
        workers=basis.workers,
        warm_up=warm_up_requests(schedule, options.warmup_requests),
        timeout_s=options.request_timeout,
        worker_cores=prepared.workers.pinned_cores,
        watch=observation,
        after_warm_up=target.prefix_cache_reset,
        run_id=basis.run_id,
        further=tuple(other.client for other in target.others),
        balance=target.balance,
        token_limits=options.token_limits,
    )


def _decoder(target: Target) -> Callable[[Sequence[int]], str] | None:
    """The text of token ids, where prompts are ids and answers are text; None elsewhere, and where the tokenizer is unknown."""
    compares = target.model.takes_token_ids and target.model.returns_text and target.tokenizer is not None
    return text_codec(target.tokenizer).decode if compares else None


def _resolved(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())


def _write_extras(report: RunReport, options: OutputOptions) -> None:
    """The files beside the reports."""
    if options.op_stats_csv is not None:
        append_op_stats(report.metrics, options.op_stats_csv)
    if options.dump_perfetto_trace:
        write_perfetto(report, report.folder.perfetto)
        click.echo(f"\nTrace: {report.folder.perfetto} (open it at ui.perfetto.dev)")


def _read_reference(options: CriteriaOptions) -> dict[str, float] | None:
    if options.check_perf_json is None:
        return None
    return read_reference(options.check_perf_json, options.check_perf_key)


def _check_performance(report: RunReport, options: CriteriaOptions, reference: dict[str, float] | None) -> bool:
    """Print the run's metrics against ``reference``, and return whether all of them pass."""
    if reference is None:
        return True
    checks = check_perf(report.metrics, reference, options.check_perf_rtol, options.check_perf_atol)
    click.echo("\n" + "\n".join(map(str, checks)))
    return all(check.passed for check in checks)


def status_of(report: RunReport, result: RunResult, meets_criteria: bool, fail_if: Sequence[str]) -> int:
    """The exit status of a run with the gates ``fail_if``. Without one on ``failed_share``, a failed request fails it."""
    if result.interrupted:
        return ExitStatus.INTERRUPTED
    limits_failures = any(parse_fail_if(gate).metric is FAILED_SHARE for gate in fail_if)
    accepted = (Outcome.DONE, Outcome.WITHDRAWN, *(FAILED_BY_TARGET if limits_failures else ()))
    if not all(record.outcome in accepted for record in result.records) or result.problem is not None or not meets_criteria:
        return ExitStatus.FAILED
    return ExitStatus.VALID if report.valid else ExitStatus.INVALID
