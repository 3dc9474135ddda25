"""The options that may end a run early: their checks, their rules, and what the manifest says about such an end."""

from __future__ import annotations

import click

from bench_cli.measurement.load_options import LoadOptions
from bench_cli.measurement.prepare import PreparedRun
from bench_cli.measurement.stop_rules import StopIf
from bench_records.manifest import EarlyEnd
from harness.recording.run_result import RunResult
from harness.run.end_rule import EndRule
from reports.criteria import parse_stop_if
from workloads.schedule.schedule import Schedule


def check_early_end(options: LoadOptions) -> None:
    """Raises UsageError for a rule that needs the number of requests, where the clock decides it."""
    if options.stop_if is not None and options.concurrency is not None and options.duration is not None:
        raise click.UsageError(
            "--stop_if counts of how many planned requests; with --concurrency give --num_requests instead of --duration"
        )


def check_early_end_of(options: LoadOptions, streaming: bool) -> None:
    """Raises UsageError for a rule that needs token times in an unstreamed run."""
    if options.stop_if is not None and not streaming and parse_stop_if(options.stop_if).metric.streamed_only:
        raise click.UsageError(f"--stop_if {options.stop_if} needs streamed answers (--streaming); use e2e")


def end_rule(options: LoadOptions, prepared: PreparedRun) -> EndRule | None:
    """The rule that the options give; None where there is none."""
    if options.stop_if is None:
        return None
    schedule, planned = prepared.schedule, prepared.load_requests
    due_ns = schedule.offsets_ns[:planned] if isinstance(schedule, Schedule) else ()
    return StopIf(parse_stop_if(options.stop_if), planned, due_ns)


def early_end(options: LoadOptions, prepared: PreparedRun, result: RunResult) -> EarlyEnd | None:
    """For the manifest: the end by a rule; None where the run came to its planned end, or was stopped."""
    if result.rule_end is None or options.stop_if is None:
        return None
    return EarlyEnd(
        rule=f"--stop_if {options.stop_if}",
        reason=result.rule_end.reason,
        gave_up=True,
        at_s=result.rule_end.end_ns / 1e9,
        requests=sum(record.sent_ns is not None and record.index < prepared.load_requests for record in result.records),
        planned=None if prepared.load.ends_by_the_clock else prepared.load_requests,
    )
