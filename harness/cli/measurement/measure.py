"""What every measuring verb does: find the target, draw the schedule, run, record, report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from bench_errors import ExitStatus
from harness.cli.engine_options import ENGINE_OPTION_NAMES, given
from harness.cli.measurement.client_size import check_size, size_client
from harness.cli.measurement.connect import check_protocol_options
from harness.cli.measurement.load import asked_load, described_load, opening_line
from harness.cli.measurement.manifest import described_connections, make_manifest, repeated_prefix
from harness.cli.measurement.observe import check_metrics_url, observe, tabulate
from harness.cli.measurement.options import MeasureOptions, refuse_unstreamed_objectives
from harness.cli.measurement.report_run import show_run
from harness.cli.measurement.run_folder import open_run_folder
from harness.cli.measurement.target import Target, open_target, token_counter
from harness.cli.measurement.workload import MakeWorkload, Workload
from harness.cli.signals import signals_as_interrupt
from harness.host.signals import signals_blocked
from harness.recording.recorder import Recorder
from harness.recording.run_lifecycle import finish_run, open_run
from harness.recording.run_result import RunResult
from harness.recording.schedule_file import RecordingBasis
from harness.recording.schedule_summary import summarise_schedule
from harness.records.folder_lock import shared_lock
from harness.records.record import Outcome
from harness.records.run_folder import RunFolder
from harness.run.coordinator import Run, RunPlan
from harness.run.progress_line import ProgressLine
from harness.run.warm_up import warm_up_requests
from harness.run.worker_count import Workers
from reports.run.op_stats import append_op_stats, check_op_stats_file, check_perf, read_reference
from reports.run.perfetto import write_perfetto
from reports.run_report import RunReport
from workloads.errors import WorkloadError
from workloads.load import Load
from workloads.schedule import AnySchedule


def measure(verb: str, options: MeasureOptions, make_workload: MakeWorkload) -> int:
    """Carry out one measurement and return the exit status."""
    load = asked_load(options)
    check_size(options)
    _refuse_what_would_be_ignored(options)
    check_metrics_url(options)
    reference = None
    if options.check_perf_json is not None:
        reference = read_reference(options.check_perf_json, options.check_perf_key)
    if options.op_stats_csv is not None:
        check_op_stats_file(options.op_stats_csv)
    with open_run_folder(verb, options.run_dir) as folder, signals_as_interrupt():
        try:
            with open_target(options, folder) as target:
                refuse_unstreamed_objectives(options.slo, target.streaming)
                result = _run(verb, options, load, folder, target, make_workload(target, load))
            report = show_run(folder, options.plots)
            checks_pass = _extras(report, options, reference)
        except KeyboardInterrupt:
            if folder.requests.exists():
                click.echo(f"The run is recorded; 'bench report {folder.path}' makes its report.", err=True)
            raise
        click.echo(f"\nReport: {folder.html}")
        return _status(report, result, checks_pass)


def _refuse_what_would_be_ignored(options: MeasureOptions) -> None:
    check_protocol_options(options)
    if options.url is not None:
        if options.engine_dir is not None:
            raise click.UsageError("--engine_dir is of the embedded pipeline; it goes without --url")
        for name in ENGINE_OPTION_NAMES:
            if given(name):
                raise click.UsageError(f"--{name} is of the embedded pipeline; it goes without --url")
        if not options.decoupled_mode:
            raise click.UsageError("--no_decoupled_mode is of the embedded pipeline; it goes without --url")
    if options.check_perf_key is not None and options.check_perf_json is None:
        raise click.UsageError("--check_perf_key needs --check_perf_json, the file that has the entry")


def _run(verb: str, options: MeasureOptions, load: Load, folder: RunFolder, target: Target, workload: Workload) -> RunResult:
    """Carry out the run and make it durable, before the server is stopped: nothing may come between a run and its records."""
    if workload.dropped_too_long:
        click.echo(f"Dropped {workload.dropped_too_long} prompts that are too long.", err=True)
    if options.num_requests is not None and len(workload.requests) < options.num_requests:
        there = len(workload.requests)
        click.echo(f"--num_requests {options.num_requests}: there are only {there} prompts, so {there} are sent.", err=True)
    schedule = load.schedule(workload.requests, options.seed)
    workers = size_client(options, load, schedule, target.streaming, target.address)
    _check_prompts(target, schedule)
    basis = RecordingBasis(summarise_schedule(schedule), target.client, workers.count, _resolved(target.tokenizer_dir))
    plan = _plan(options, target, schedule, basis, folder, workers)
    manifest = make_manifest(verb, options, target, workload, load, schedule)
    manifest["load"] = described_load(options, load, schedule)
    manifest["workers"] = {"count": workers.count, "why": workers.reason, "pinned_cores": list(workers.pinned_cores)}
    with shared_lock(folder.path), open_run(folder, manifest, basis):
        click.echo(opening_line(load, schedule, workers), err=True)
        if manifest["load"]["ran_out"]:
            click.echo(
                f"There are {len(schedule)} requests, too few for --duration {options.duration:g}: the run will end early.",
                err=True,
            )
        observation = observe(options, target, folder)
        with ProgressLine() as progress, signals_blocked():  # but for those that execute takes: Ctrl-C waits for the records
            result = Run(replace(plan, watch=observation)).execute(progress)
            manifest["workload"]["repeated_prefix"] = repeated_prefix(schedule, result)
            connections = described_connections(result.connections)
            finish_run(folder, manifest | observation.facts | {"connections": connections}, result)
            tabulate(folder)
    if result.problem is not None:
        click.echo(f"Sending stopped, for the client could not write its journal: {result.problem}.", err=True)
    return result


def _resolved(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())


def _check_prompts(target: Target, schedule: AnySchedule) -> None:
    if target.model.takes_token_ids and any(request.input_ids is None for request in schedule.requests):
        raise WorkloadError(
            f"--tokenizer_dir: the model {target.model.name} takes token ids, so prompts must be tokenised here"
        )


def _plan(
    options: MeasureOptions,
    target: Target,
    schedule: AnySchedule,
    basis: RecordingBasis,
    folder: RunFolder,
    workers: Workers,
) -> RunPlan:
    count_tokens = None if target.tokenizer is None else token_counter(target.tokenizer)
    return RunPlan(
        schedule=schedule,
        client=target.client,
        recorder=Recorder(basis.schedule, target.client, count_tokens),
        folder=folder,
        workers=basis.workers,
        warm_up=warm_up_requests(schedule, options.warmup_requests),
        timeout_s=options.request_timeout,
        worker_cores=workers.pinned_cores,
    )


def _extras(report: RunReport, options: MeasureOptions, reference: dict[str, float] | None) -> bool:
    """What else the options ask for; returns whether --check_perf_json passed."""
    if options.op_stats_csv is not None:
        append_op_stats(report.metrics, options.op_stats_csv)
    if options.dump_perfetto_trace:
        write_perfetto(report, report.folder.perfetto)
        click.echo(f"\nTrace: {report.folder.perfetto} (open it at ui.perfetto.dev)")
    if reference is None:
        return True
    checks = check_perf(report.metrics, reference, options.check_perf_rtol, options.check_perf_atol)
    click.echo("\n" + "\n".join(map(str, checks)))
    return all(check.passed for check in checks)


def _status(report: RunReport, result: RunResult, checks_pass: bool) -> int:
    if result.interrupted:
        return ExitStatus.INTERRUPTED
    if any(record.outcome is not Outcome.DONE for record in result.records) or result.problem is not None or not checks_pass:
        return ExitStatus.FAILED
    return ExitStatus.VALID if report.valid else ExitStatus.INVALID
