"""The manifest of a run (run.json): everything needed to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import click

from harness.calibration.result import this_machine
from harness.calibration.store import CalibrationFileError, default_path, find_calibration, for_manifest
from harness.cli.measurement.options import MeasureOptions
from harness.cli.measurement.target import Target
from harness.cli.measurement.workload import Workload
from harness.clients.protocol import ConnectionUsage
from harness.recording.run_result import RunResult
from harness.records.run_folder import MANIFEST_SCHEMA
from harness.run.environment import describe_environment
from workloads.load import Load
from workloads.prefixes import BLOCK_TOKENS, prefix_repetition
from workloads.schedule import AnySchedule


def calibration_for_run(protocol: str, environment: Mapping[str, Any]) -> dict[str, Any] | None:
    """A copy for the manifest of what `bench calibrate` found for ``protocol``; None where it has not run here.

    ``environment`` is ``describe_environment``'s. A file that cannot be read is a warning: the run is none the worse for it.
    """
    try:
        return for_manifest(find_calibration(default_path(), this_machine(environment)), protocol)
    except CalibrationFileError as error:
        click.echo(f"Warning: {error}", err=True)
        return None


def described_connections(usages: Sequence[ConnectionUsage | None]) -> dict[str, Any] | None:
    """The connections of all workers for the manifest; None where no worker came to tell.

    ``limit_reached`` counts the requests that waited because the server takes no more at once; the counts of a worker that
    died are missing from it, ``workers_told`` says of how many it is.
    """
    told = [usage for usage in usages if usage is not None]
    if not told:
        return None
    longest_ns = max((usage.longest_wait_ns for usage in told if usage.longest_wait_ns is not None), default=None)
    return {
        "per_worker": told[0].per_worker,
        "opened": sum(usage.opened for usage in told),
        "limit_reached": sum(usage.limit_reached for usage in told),
        "longest_wait_ms": None if longest_ns is None else longest_ns / 1e6,
        "total_wait_ms": sum(usage.total_wait_ns for usage in told) / 1e6,
        "unstamped_reads": sum(usage.unstamped_reads for usage in told),
        "workers_told": len(told),
    }


def make_manifest(
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


def repeated_prefix(schedule: AnySchedule, result: RunResult) -> dict[str, Any]:
    sent = sorted((record.sent_ns, record.index) for record in result.records if record.sent_ns is not None)
    found = prefix_repetition([schedule.requests[index] for _, index in sent])
    return {"share": found.share, "unit": found.unit, "block_tokens": BLOCK_TOKENS, "whole_prompts": found.repeated_prompts}
