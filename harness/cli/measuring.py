"""What every measuring verb does: find the target, draw the schedule, run, record, report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from harness.asked import asked_schedule
from harness.cli.calibrated import calibration_for_run
from harness.cli.client_size import check_size, size_client
from harness.cli.connections import described_connections
from harness.cli.engine_options import ENGINE_OPTION_NAMES, given
from harness.cli.exit_status import ExitStatus
from harness.cli.load_options import asked_load, described_load, opening_line
from harness.cli.observing import check_metrics_url, observe, tabulate
from harness.cli.options import MeasureOptions, refuse_unstreamed_objectives
from harness.cli.reaching import check_protocol_options
from harness.cli.reporting import show_run
from harness.cli.signals import signals_as_interrupt
from harness.cli.target import Target, open_target, token_counter
from harness.environment import describe_environment
from harness.progress import ProgressLine
from harness.recording import Recorder
from harness.recording_basis import RecordingBasis
from harness.records.folder_lock import held_with_others
from harness.records.record import Outcome
from harness.records.run_folder import MANIFEST_SCHEMA, RunFolder
from harness.run import RunPlan, RunResult, execute, signals_blocked
from harness.run_files import begun, finish
from harness.warm_up import warm_up_requests
from harness.workers import Workers
from reports.op_stats import append_op_stats, check_op_stats_file, check_perf, read_reference
from reports.perfetto import write_perfetto
from reports.run_report import RunReport
from workloads.errors import WorkloadError
from workloads.load import Load
from workloads.prefixes import BLOCK_TOKENS, prefix_repetition
from workloads.request import Request
from workloads.schedule import AnySchedule


@dataclass(frozen=True)
class Workload:
    """Requests, and what the manifest says of where they come from."""

    requests: tuple[Request, ...]
    description: str
    parameters: dict[str, Any]
    dropped_too_long: int


MakeWorkload = Callable[[Target, Load], Workload]


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
    with _run_folder(verb, options.run_dir) as folder, signals_as_interrupt():
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
    basis = RecordingBasis(asked_schedule(schedule), target.client, workers.count, _resolved(target.tokenizer_dir))
    plan = _plan(options, target, schedule, basis, folder, workers)
    manifest = _manifest(verb, options, target, workload, load, schedule)
    manifest["load"] = described_load(options, load, schedule)
    manifest["workers"] = {"count": workers.count, "why": workers.why, "pinned_cores": list(workers.pinned_cores)}
    with held_with_others(folder.path), begun(folder, manifest, basis):
        click.echo(opening_line(load, schedule, workers), err=True)
        if manifest["load"]["ran_out"]:
            click.echo(
                f"There are {len(schedule)} requests, too few for --duration {options.duration:g}: the run will end early.",
                err=True,
            )
        observation = observe(options, target, folder)
        with ProgressLine() as progress, signals_blocked():  # but for those that execute takes: Ctrl-C waits for the records
            result = execute(replace(plan, watch=observation), progress)
            manifest["workload"]["repeated_prefix"] = _repeated_prefix(schedule, result)
            connections = described_connections(result.connections)
            finish(folder, manifest | observation.facts | {"connections": connections}, result)
            tabulate(folder)
    if result.problem is not None:
        click.echo(f"Sending stopped, for the client could not write its journal: {result.problem}.", err=True)
    return result


def _resolved(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())


@contextmanager
def _run_folder(verb: str, run_dir: Path | None) -> Iterator[RunFolder]:
    """A new folder for the run; one that stays empty, because nothing could be started, is taken away again."""
    path = _new_default_folder(verb) if run_dir is None else run_dir
    if path.exists() and any(path.iterdir()):
        raise click.BadParameter(f"{path} is not empty; name a new folder", param_hint="--run_dir")
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield RunFolder(path)
    finally:
        if not any(path.iterdir()):
            path.rmdir()


def _new_default_folder(verb: str) -> Path:
    """``runs/<time>-<verb>``, numbered where another run began in the same second."""
    stem = f"{datetime.now():%Y-%m-%d-%H%M%S}-{verb}"
    for name in (stem, *(f"{stem}-{number}" for number in range(2, 1000))):
        try:
            (Path("runs") / name).mkdir(parents=True)
        except FileExistsError:
            continue
        return Path("runs") / name
    raise click.BadParameter("too many runs began in this second; name a folder", param_hint="--run_dir")


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


def _manifest(
    verb: str, options: MeasureOptions, target: Target, workload: Workload, load: Load, schedule: AnySchedule
) -> dict[str, Any]:
    environment = describe_environment()
    return {
        "schema": MANIFEST_SCHEMA,
        "bench_version": version("inflight-bench"),
        "verb": verb,
        "workload": {
            "description": workload.description,
            **workload.parameters,
            "requests": len(schedule),
            "dropped_too_long": workload.dropped_too_long,
        },
        "arrivals": str(load),
        "schedule": {"digest": schedule.digest, "seed": schedule.seed},
        "target": {
            "address": target.address,
            "protocol": options.protocol,
            "model": target.model.name,
            "decoupled": target.model.decoupled,
            "streaming": target.streaming,
            "embedded": target.server is not None,
            "tokenizer_dir": None if target.tokenizer_dir is None else str(target.tokenizer_dir),
            "model_parameters": dict(target.model.parameters),
        },
        "server": None if target.server is None else {"engine": options.written_down()["engine_settings"]},
        "options": options.written_down(),
        "warm_up": {"requests": options.warmup_requests},
        "environment": environment,
        "calibration": calibration_for_run(options.protocol, environment),
    }


def _repeated_prefix(schedule: AnySchedule, result: RunResult) -> dict[str, Any]:
    sent = sorted((record.sent_ns, record.index) for record in result.records if record.sent_ns is not None)
    found = prefix_repetition([schedule.requests[index] for _, index in sent])
    return {"share": found.share, "unit": found.unit, "block_tokens": BLOCK_TOKENS, "whole_prompts": found.repeated_prompts}


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
