"""``bench calibrate``: the error that this client adds to its measurements, and its capacity, on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import Concern, option, takes
from bench_errors import ExitStatus

if TYPE_CHECKING:
    from harness.calibration.ladder import Limit
    from harness.calibration.result import Calibration, Machine, TransportCalibration

_TITLES = {"grpc": "gRPC", "sse": "server-sent events"}
_READERS = {
    "compiled": "by a compiled thread",
    "interpreted": "by the event loop, at twice the CPU; reinstall bench with a C compiler to get the compiled thread",
}
_UNKNOWN = "–"
_IDLE_CHECK_S = 1.0


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench calibrate``."""

    quick: bool = option(False, help="15 seconds instead of more than a minute: fewer and shorter measurements.")
    show: bool = option(False, help="Measure nothing; show the last calibration of this machine.")
    output: Path | None = option(
        None,
        type=click.Path(path_type=Path, dir_okay=False),
        help="File to write, or with --show to read. Default: calibration.json in the user's data folder, which runs read.",
    )


@cloup.command(
    name="calibrate",
    epilog="Example: bench calibrate",
)
@takes(Options)
@cloup.constraint(cloup.constraints.mutually_exclusive, ["quick", "show"])
def command(options: Options) -> int:
    """Measure this client against a server that stamps what it sends, on the clock that the client uses.

    First at a low rate: the error of TTFT and inter-chunk latency. Then at rising rates, over gRPC and over server-sent
    events, until the schedule slips by more than 1 ms (p99) or the errors exceed 2 ms (p99). Every later report contains the
    result, and a run beyond these limits gets a finding. Run it while the machine is idle.
    """
    from harness.calibration.store import default_path, find_calibration, keep_calibration, write_calibrations

    path = options.output or default_path()
    if options.show:
        saved = find_calibration(path, _this_machine())
        if saved is None:
            raise click.ClickException("this machine, with this version of bench, is not calibrated: run `bench calibrate`")
        click.echo(_rendered(saved))
        return ExitStatus.VALID
    calibration = _calibrate(options.quick)
    if options.output is None:
        keep_calibration(path, calibration)
    else:
        write_calibrations(path, (calibration,))
    click.echo(_rendered(calibration))
    click.echo(f"\nSaved: {path}")
    return ExitStatus.VALID


def _calibrate(quick: bool) -> Calibration:
    import time
    from datetime import UTC, datetime

    from bench_cli.signals import signals_as_interrupt
    from harness.calibration.calibrate import FULL, PACE, QUICK, busy_cores, calibrate, subjects_of, worker_counts
    from harness.calibration.null_server.server import NullServerOptions, null_server
    from harness.calibration.result import QUIET_CORES, Calibration

    machine = _this_machine()
    effort = QUICK if quick else FULL
    click.echo(f"Calibrating for about {effort.budget_s:.0f} s; Ctrl-C stops, and saves nothing.", err=True)
    started_s = time.monotonic()
    with signals_as_interrupt():
        busy = busy_cores(_IDLE_CHECK_S)
        if busy is not None and busy > QUIET_CORES:
            click.echo(
                f"Warning: other processes keep {busy:.1f} of {machine.cores:g} cores busy, and disturb the calibration. "
                "Calibrate while the machine is idle.",
                err=True,
            )
        with null_server(NullServerOptions(PACE)) as addresses:
            transports = calibrate(
                subjects_of(addresses), worker_counts(machine.cores), effort, lambda line: click.echo(f"  {line}", err=True)
            )
    return Calibration(
        machine=machine,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        quick=quick,
        duration_s=time.monotonic() - started_s,
        busy_cores=busy,
        transports=transports,
    )


def _this_machine() -> Machine:
    from harness.calibration.result import this_machine
    from harness.run.environment import describe_environment

    return this_machine(describe_environment())


def _rendered(calibration: Calibration) -> str:
    """The result as a table: one column for each transport."""
    from tabulate import tabulate

    machine = calibration.machine
    columns = [_column(transport) for transport in calibration.transports]
    rows = [(name, *(column.get(name, _UNKNOWN) for column in columns)) for name in columns[0]] if columns else []
    headers = ("", *(_TITLES.get(transport.transport, transport.transport) for transport in calibration.transports))
    busy = "" if calibration.busy_cores is None else f", other processes kept {calibration.busy_cores:.1f} cores busy"
    return "\n".join(
        [
            f"{machine.cpu or 'unknown processor'}, {machine.cores:g} cores, kernel {machine.kernel}, Python {machine.python}, "
            f"bench {machine.bench_version}",
            f"Streamed answers are read {_READERS[machine.event_reader]}.",
            f"{calibration.made_at}{', quick' if calibration.quick else ''}{busy}",
            "",
            tabulate(rows, headers=headers, disable_numparse=True),
            "",
            *_stop_reasons(calibration),
        ]
    )


def _column(transport: TransportCalibration) -> dict[str, str]:
    rows: dict[str, str] = {}
    for name, spread in (("TTFT", transport.ttft), ("Inter-chunk latency", transport.icl), ("E2E latency", transport.e2e)):
        rows[f"{name}: client adds, mean ± deviation, ms"] = f"{spread.mean_ms:.2f} ± {spread.stdev_ms:.2f}"
        rows[f"{name}: size of the error, p50 / p99, ms"] = f"{spread.size_p50_ms:.2f} / {spread.size_p99_ms:.2f}"
    for limits in transport.limits:
        rows[f"Requests/s held, {_workers(limits.workers)}"] = _limit(limits.requests)
        rows[f"Streamed responses/s held, {_workers(limits.workers)}"] = _limit(limits.responses)
    for name, cost_us in (("request", transport.cpu_us_per_request), ("streamed response", transport.cpu_us_per_response)):
        rows[f"CPU of the client per {name}, µs"] = _UNKNOWN if cost_us is None else f"{cost_us:.0f}"
    return rows


def _limit(limit: Limit) -> str:
    if limit.held_per_s is None and limit.failed_per_s is None:
        return _UNKNOWN
    held = "none" if limit.held_per_s is None else f"{limit.held_per_s:,.0f}"
    return held if limit.failed_per_s is None else f"{held} (not {limit.failed_per_s:,.0f})"


def _stop_reasons(calibration: Calibration) -> list[str]:
    """The reason why each search for a limit stopped."""
    return [
        f"{_TITLES.get(transport.transport, transport.transport)}, {what}/s, {_workers(limits.workers)}: {limit.why}"
        for transport in calibration.transports
        for limits in transport.limits
        for what, limit in (("requests", limits.requests), ("responses", limits.responses))
    ]


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
