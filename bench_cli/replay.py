"""``bench replay``: send a recorded run again."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.forwarded_options import FORWARDS_OPTIONS
from bench_cli.repeated_run import (
    RepeatedRun,
    left_out_options,
    options_argument,
    remedy_for_contradictions,
    repeated_run,
    run_argument,
)
from reports.render.counts import counted
from reports.render.plain_text import printable

if TYPE_CHECKING:
    from bench_records.run_folder import RunFolder

_DIGITS = 12  # of a digest, shown


@cloup.command(
    name="replay",
    context_settings=FORWARDS_OPTIONS,
    epilog="""\b
Examples:
  bench replay runs/<run>
  bench replay runs/<run> --url new:8001
  bench replay runs/<run> --header 'Authorization: $TOKEN'
  bench replay --without request_rate runs/<run> --concurrency 20""",
)
@run_argument
@options_argument
@left_out_options
@click.pass_context
def command(context: click.Context, run: Path, options: tuple[str, ...], without: tuple[str, ...]) -> int:
    """Send a recorded run again: its verb and options, and so the same requests at the same times. Options after RUN win over
    the recorded ones; 'bench config RUN' prints those.

    After the run it says whether the schedule was the same, by its digest, and which requests were not, and prints the command
    that compares both runs. --run_dir, --plots and --step_log are never repeated. Secrets were not recorded and must be given
    again; a --header takes the place of the recorded one of its name. The exit status is that of the run.
    """
    from bench_cli.measurement.run_folder import default_folder
    from bench_cli.private_files import private_files
    from bench_records.run_folder import RunFolder

    repeated = repeated_run(context, RunFolder(run), without, options)
    parameters = repeated.context.params
    click.echo(printable(_announcement(repeated)), err=True)
    given_dir = parameters["run_dir"]
    with private_files(parameters["shared_results"]):
        place = default_folder(repeated.verb) if given_dir is None else nullcontext(given_dir)
        with place as path:
            parameters["run_dir"] = path
            status = _measured(repeated)
            _conclude(repeated, RunFolder(path))
    return status


def _announcement(repeated: RepeatedRun) -> str:
    """What is repeated, what is changed, and what is left out, for stderr."""
    manifest, schedule = repeated.manifest, repeated.manifest.schedule
    parts = [repeated.verb]
    if manifest.workload.requests is not None:
        up_to = "up to " if manifest.load is not None and manifest.load.duration_s is not None else ""
        parts.append(f"{up_to}{counted(manifest.workload.requests, 'request')}")
    if schedule is not None:
        parts += [f"seed {schedule.seed}", f"digest {schedule.digest[:_DIGITS]}"]
    changed = f" Changed: {', '.join(repeated.changed)}." if repeated.changed else ""
    left_out = f" Not repeated: {', '.join(repeated.left_out)}." if repeated.left_out else ""
    return f"Replays {repeated.folder.path}: {', '.join(parts)}.{changed}{left_out}"


def _measured(repeated: RepeatedRun) -> int:
    """Carry out the measurement and return its exit status. Raises UsageError for options that contradict recorded ones, with
    the remedy."""
    with remedy_for_contradictions(repeated, "replay"), repeated.context as context:
        return int(context.command.invoke(context) or 0)


def _conclude(repeated: RepeatedRun, new: RunFolder) -> None:
    """Say on stdout whether the schedule was the same, and how to compare the runs; nothing where no run was recorded."""
    if not new.manifest.exists():
        return
    before, now = repeated.manifest.schedule, new.read_manifest().schedule
    if before is None or now is None:
        return
    if before.digest == now.digest:
        click.echo(printable(f"The schedule is the recorded one (digest {now.digest[:_DIGITS]})."))
    else:
        digests = f"digest {now.digest[:_DIGITS]} instead of {before.digest[:_DIGITS]}"
        click.echo(printable(f"The schedule is not the recorded one ({digests}). {_differences(repeated, new)}".rstrip()))
    command_line = shlex.join(["bench", "compare", str(repeated.folder.path), str(new.path)])
    click.echo(printable(f"Compare: {command_line}"))


def _differences(repeated: RepeatedRun, new: RunFolder) -> str:
    """The requests that are no longer the same; "" where one of the runs has no records."""
    from bench_records.manifest import LoadFacts
    from reports.compare.sent import sent_differences

    if not (repeated.folder.requests.exists() and new.requests.exists()):
        return ""
    loads = (repeated.manifest.load or LoadFacts(), new.read_manifest().load or LoadFacts())
    return str(sent_differences(repeated.folder, new, loads))
