"""What ``bench why`` finds of a known time that was put into one phase of the requests of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from bench_records.run_folder import RunFolder
from benchmarks.injection.stopped import STOPPED_S, Stops, send_each
from benchmarks.injection.what_if import Latencies, WhatIf, what_if
from benchmarks.injection.windows import cycle_of, until_stop_s, with_delay, without_delay
from reports.metrics.catalogue import E2E
from reports.metrics.configuration import configured_load
from reports.metrics.metric import MeasuredRun
from reports.metrics.phase_shares import LatencyParts, latency_parts
from reports.metrics.request_phases import ClientClock, Phase, PhaseTimes, monotonic_start_ns, phase_times
from reports.metrics.requests import Requests
from reports.run_report import RunReport, read_run
from reports.why.step_log import with_step_log

QUANTILES = (0.5, 0.99)
BENCH = str(Path(sys.executable).parent / "bench")
_MEASURED = (0, 1, 3)  # a client that is stopped sends late, and a busy machine, too: such a run is not valid
_MOST_FAILED = 0.02  # a proxy that closes connections may do so just as the client sends over one


@dataclass(frozen=True)
class MeasuredPhases:
    """A run, and the phases of the E2E latency of its requests. ``start_ns`` is its start on the monotonic clock."""

    report: RunReport
    times: PhaseTimes
    start_ns: int

    @property
    def requests(self) -> Requests:
        return self.report.requests

    @property
    def due_ns(self) -> NDArray[np.float64]:
        """When the requests were due on the monotonic clock, shape [n]."""
        return self.requests.scheduled_ns + self.start_ns

    @property
    def delayed(self) -> NDArray[np.bool_]:
        """Which requests succeeded that were due in windows with delays, shape [n]."""
        return self.requests.done & with_delay(self.due_ns)

    @property
    def others(self) -> NDArray[np.bool_]:
        """Which were due in the other windows, shape [n]."""
        return self.requests.done & without_delay(self.due_ns)

    def spans_ms(self, phase: Phase, which: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The phase of the requests that ``which``, shape [n], chooses; 0 where the run has no source of it."""
        spans_ns = self.times.by_phase.get(phase, np.zeros(which.size))
        return spans_ns[which] / 1e6

    def more_ms(self) -> dict[Phase, float]:
        """By phase, how much more the median delayed request has than the median other one."""
        return {
            phase: float(np.median(self.spans_ms(phase, self.delayed)) - np.median(self.spans_ms(phase, self.others)))
            for phase in Phase
        }

    def without(self, phase: Phase, delayed: NDArray[np.bool_]) -> Latencies:
        """The latencies without the phase, of these requests and of the others; with it, where the run has no source of it."""
        which = (delayed | self.others) & ~np.isnan(self.times.latency_ns)
        without_ms = self.times.latency_ns[which] / 1e6 - self.spans_ms(phase, which)
        return Latencies(without_ms, delayed[which], cycle_of(self.due_ns[which]))

    def parts(self, which: NDArray[np.bool_]) -> LatencyParts:
        """What ``bench why`` says of E2E latency, had the run these requests alone."""
        run = MeasuredRun(self.requests.only(which), self.report.metrics.streamed, configured_load(self.report.manifest), None)
        parts = latency_parts(run, E2E, ClientClock(self.start_ns), QUANTILES)
        assert parts is not None
        return parts


@dataclass(frozen=True)
class Found:
    """What the ``delayed`` requests of a run have more than the median of its ``others``. Shares are medians over the delayed
    ones: other work on the machine may delay some by seconds.

    ``found`` is the share of the injected time in the right phase; ``elsewhere`` is how much more any other phase has at most,
    as a share of the injected time. ``unattributed`` is a share of the latency of the delayed ones, and ``contradicted`` counts
    them. ``what_if`` is, by quantile, how far the percentile of the delayed ones without the phase lies from that of the others
    without it, as a share of the latter; ``latencies`` are those without the phase.
    """

    delayed: int
    others: int
    injected_ms: float
    found: float
    elsewhere: float
    elsewhere_phase: Phase
    unattributed: float
    contradicted: int
    what_if: dict[float, WhatIf]
    latencies: Latencies


def measure(folder: Path, arguments: Sequence[str], environment: dict[str, str] | None = None) -> MeasuredPhases:
    """``bench`` with these arguments in a process of its own."""
    with _started(folder, arguments, environment) as process:
        _end(process)
    return _read(folder)


def measure_stopped(folder: Path, arguments: Sequence[str]) -> tuple[MeasuredPhases, Stops]:
    """The same, where all processes of the client are stopped twice in each window with delays."""
    stops = Stops()
    with _started(folder, arguments, None) as process:
        while _still_runs(process, until_stop_s(time.monotonic())):
            tree = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
            from_ns = time.monotonic_ns()
            send_each(tree, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            send_each(tree, signal.SIGCONT)
            stops.append((from_ns, time.monotonic_ns()))
        _end(process)
    return _read(folder), stops


def found(run: MeasuredPhases, phase: Phase, injected_ns: NDArray[np.float64]) -> Found:
    """``injected_ns``, shape [n], was put into the ``phase`` of each request that is delayed."""
    delayed, others = run.delayed & (injected_ns > 0), run.others
    injected_ms = float(np.median(injected_ns[delayed])) / 1e6
    each_ms = injected_ns[delayed] / 1e6
    more = {
        any_phase: float(np.median((run.spans_ms(any_phase, delayed) - np.median(run.spans_ms(any_phase, others))) / each_ms))
        for any_phase in Phase
    }
    elsewhere = max((other for other in Phase if other is not phase), key=lambda other: abs(more[other]))
    times, latencies = run.times, run.without(phase, delayed)
    return Found(
        delayed=int(np.count_nonzero(delayed)),
        others=int(np.count_nonzero(others)),
        injected_ms=injected_ms,
        found=more[phase],
        elsewhere=more[elsewhere],
        elsewhere_phase=elsewhere,
        unattributed=float(times.by_phase[Phase.UNATTRIBUTED][delayed].sum() / times.latency_ns[delayed].sum()),
        contradicted=int(np.count_nonzero(times.contradiction_ns[delayed] < 0)),
        what_if={q: what_if(latencies, q) for q in QUANTILES},
        latencies=latencies,
    )


def _started(folder: Path, arguments: Sequence[str], environment: dict[str, str] | None) -> subprocess.Popen[str]:
    command = [BENCH, *arguments, "--run_dir", str(folder)]
    return subprocess.Popen(
        command, env=os.environ | (environment or {}), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _still_runs(process: subprocess.Popen[str], for_s: float) -> bool:
    try:
        process.wait(for_s)
    except subprocess.TimeoutExpired:
        return True
    return False


def _end(process: subprocess.Popen[str]) -> None:
    _, problem = process.communicate()
    assert process.returncode in _MEASURED, problem


def divided(run: MeasuredPhases, step_log: Path) -> MeasuredPhases:
    """The run with its decode divided by the step log of its engine."""
    report = with_step_log(run.report, step_log).report
    times = phase_times(report.requests, E2E, report.metrics.streamed, ClientClock(run.start_ns))
    return MeasuredPhases(report, times, run.start_ns)


def _read(folder: Path) -> MeasuredPhases:
    report = read_run(RunFolder(folder))
    assert report.requests.done.mean() >= 1.0 - _MOST_FAILED, f"requests of {folder} failed"
    start_ns = monotonic_start_ns(report.manifest)
    assert start_ns is not None
    return MeasuredPhases(report, phase_times(report.requests, E2E, report.metrics.streamed, ClientClock(start_ns)), start_ns)
