"""The options that may end a run early: their checks, their rules, and what the manifest says about such an end."""

from __future__ import annotations

from dataclasses import dataclass

import click

from bench_cli.measurement.load_options import LoadOptions
from bench_cli.measurement.precision_rule import Until
from bench_cli.measurement.prepare import PreparedRun
from bench_cli.measurement.stop_rules import StopIf
from bench_records.manifest import EarlyEnd
from bench_records.record import Record
from harness.recording.run_result import RunResult
from harness.run.end_rule import RunMoment
from reports.criteria import parse_stop_if, parse_until
from reports.metrics.configuration import ConfiguredLoad
from workloads.schedule.schedule import Schedule


def check_early_end(options: LoadOptions) -> None:
    """Raises UsageError for a rule that needs the number of requests, where the clock decides it."""
    if options.stop_if is not None and options.concurrency is not None and options.duration is not None:
        raise click.UsageError(
            "--stop_if counts of how many planned requests; with --concurrency give --num_requests instead of --duration"
        )


def check_early_end_of(options: LoadOptions, streaming: bool) -> None:
    """Raises UsageError for a rule that needs token times in an unstreamed run."""
    if streaming:
        return
    if options.stop_if is not None and parse_stop_if(options.stop_if).metric.streamed_only:
        raise click.UsageError(f"--stop_if {options.stop_if} needs streamed answers (--streaming); use e2e")
    if options.until is not None and parse_until(options.until).metric.streamed_only:
        raise click.UsageError(f"--until {options.until} needs streamed answers (--streaming); use e2e")


@dataclass
class EndRules:
    """The rules of --stop_if and --until, as one: the first that ends the run is the one that ``ended`` it."""

    stop_if: StopIf | None
    until: Until | None
    ended: StopIf | Until | None = None

    def add(self, record: Record) -> None:
        for rule in (self.stop_if, self.until):
            if rule is not None:
                rule.add(record)

    def reason(self, moment: RunMoment) -> str | None:
        for rule in (self.stop_if, self.until):
            if rule is not None and (reason := rule.reason(moment)) is not None:
                self.ended = rule
                return reason
        return None


def end_rules(options: LoadOptions, prepared: PreparedRun, load: ConfiguredLoad) -> EndRules | None:
    """The rules that the options give; None where there are none."""
    if options.stop_if is None and options.until is None:
        return None
    schedule, planned = prepared.schedule, prepared.load_requests
    is_open = isinstance(schedule, Schedule)
    due_ns = schedule.offsets_ns[:planned] if isinstance(schedule, Schedule) else ()
    stop_if = None if options.stop_if is None else StopIf(parse_stop_if(options.stop_if), planned, due_ns)
    until = None
    if options.until is not None:
        goal = parse_until(options.until)
        until = Until(goal, planned, load, streaming=prepared.target.streaming, in_order=is_open)
    return EndRules(stop_if, until)


def early_end(options: LoadOptions, rules: EndRules | None, prepared: PreparedRun, result: RunResult) -> EarlyEnd | None:
    """For the manifest: the end by a rule; None where the run came to its planned end, or was stopped."""
    if result.rule_end is None or rules is None or rules.ended is None:
        return None
    gave_up = rules.ended is rules.stop_if
    return EarlyEnd(
        rule=f"--stop_if {options.stop_if}" if gave_up else f"--until {options.until}",
        reason=result.rule_end.reason,
        gave_up=gave_up,
        at_s=result.rule_end.end_ns / 1e9,
        requests=sum(record.sent_ns is not None and record.index < prepared.load_requests for record in result.records),
        planned=None if prepared.load.ends_by_the_clock else prepared.load_requests,
    )
