"""A benchmark's own times, from the start of the command on: set-up, run, records and report."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from bench_records.manifest import Times
from bench_records.run_folder import RunFolder
from harness.host.moment import Moment
from harness.recording.run_result import RunResult

_WORTH_SAYING_S = 0.05  # what a line shows as 0.1 s


def times_until_recorded(start: Moment, result: RunResult) -> Times:
    """What is known when the run has ended. CPU is that of bench and its workers on this host, whose processes have ended."""
    assert result.started_at is not None
    return Times(
        command_started_at=start.at.isoformat(),
        set_up_s=(result.started_at - start.at).total_seconds(),
        run_s=result.duration_s,
        set_up_and_run_cpu_s=Moment.now().cpu_s - start.cpu_s,
    )


@dataclass(frozen=True, slots=True)
class Milestones:
    """The start of the command, when the run was recorded, and when the target was closed after it.

    Between the last two an embedded server is stopped, whose CPU is then counted as that of an ended child.
    """

    start: Moment
    recorded: Moment
    closed: Moment


def record_whole_times(folder: RunFolder, at: Milestones) -> str:
    """Complete ``times`` in the manifest at the end of the command, and return them as a line. Raises OSError.

    CPU is without an embedded server's.
    """
    manifest, end = folder.read_manifest(), Moment.now()
    known, total_s = manifest.times or Times(), end.monotonic_s - at.start.monotonic_s
    close_s = at.closed.monotonic_s - at.recorded.monotonic_s
    cpu_s = at.recorded.cpu_s - at.start.cpu_s + end.cpu_s - at.closed.cpu_s
    set_up_s, run_s = known.set_up_s or 0.0, known.run_s or 0.0
    report_s = total_s - set_up_s - run_s - close_s
    times = replace(
        known,
        close_target_s=close_s,
        report_s=report_s,
        report_cpu_s=cpu_s - (known.set_up_and_run_cpu_s or 0.0),
        total_s=total_s,
        cpu_s=cpu_s,
        command_ended_at=end.at.isoformat(),
    )
    folder.write_manifest(replace(manifest, times=times))
    return times_text(times)


def times_text(times: Times) -> str:
    """The parts of the command's time, which add up, in one line. The end of the target is named where it took some time."""
    close_s = times.close_target_s or 0.0
    end = f"end of the target {close_s:.1f} s, " if close_s >= _WORTH_SAYING_S else ""
    return (
        f"Set-up {times.set_up_s or 0.0:.1f} s, run {times.run_s or 0.0:.1f} s, {end}report {times.report_s or 0.0:.1f} s; "
        f"in all {times.total_s or 0.0:.1f} s, and {times.cpu_s or 0.0:.1f} s of CPU."
    )
