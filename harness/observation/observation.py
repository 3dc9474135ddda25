"""Observation of a run beside its exchanges: clocks, the client's machine, the server's statistics and metrics."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import TypeVar

import msgspec

from bench_records.client_table import write_client_table
from bench_records.manifest import ClockReadings, GpuTelemetry, MachineUse, PolledTimes, ServerStatistics, Telemetry
from bench_records.run_folder import RunFolder
from bench_records.server_table import write_server_table
from harness.clients.secret_values import Spellings, hide_in_text
from harness.clients.transport.http_get import GetError, Headers
from harness.clients.transport.url import HttpUrl
from harness.clients.triton.statistics import ByModel, ReadStatistics, StatisticsError, settled, sum_of
from harness.host.clock import read_clock_offsets
from harness.host.processes import began_at
from harness.observation.machine_sampler import MachineSampler
from harness.observation.machine_use import FindTarget, MachineMeter
from harness.observation.metrics_file import read_metrics
from harness.observation.metrics_pages import MetricsPages, MetricsSource
from harness.observation.nvml import Gpus, NoGpusError
from harness.observation.power_sampler import PowerSampler, read_power_samples
from harness.observation.rapl import POWERCAP, Rapl
from harness.observation.sample_file import read_samples
from harness.observation.times_poller import TimesPoller, join_polls

_Readings = TypeVar("_Readings", Telemetry, PolledTimes)


@dataclass(frozen=True, slots=True)
class TimesSource:
    """Where a server returns its times of the requests that have ended since the last time that it was asked."""

    url: HttpUrl
    headers: Headers = ()


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What was observed, for the manifest; a part is None where it is unknown."""

    clock: ClockReadings | None
    server_statistics: ServerStatistics | None
    telemetry: Telemetry | None
    polled_times: PolledTimes | None = None
    gpu_telemetry: GpuTelemetry | None = None
    machine_use: MachineUse | None
    server_began_at: float | None = None


OneServer = ServerStatistics | None
"""The statistics of one target; None where it has none."""


def hidden_in(observed: Observed, secrets: Spellings) -> Observed:
    """``observed`` with HIDDEN in place of each secret that a server repeats in the text of an error."""
    return msgspec.structs.replace(
        observed,
        telemetry=None if observed.telemetry is None else _hidden_in_telemetry(observed.telemetry, secrets),
        polled_times=None if observed.polled_times is None else _hidden(observed.polled_times, secrets),
    )


def _hidden_in_telemetry(telemetry: Telemetry, secrets: Spellings) -> Telemetry:
    pages = None if telemetry.pages is None else tuple(_hidden(page, secrets) for page in telemetry.pages)
    return msgspec.structs.replace(_hidden(telemetry, secrets), pages=pages)


def _hidden(readings: _Readings, secrets: Spellings) -> _Readings:
    texts = {name: getattr(readings, name) for name in ("url", "first_failure")}
    shown = {name: None if text is None else hide_in_text(text, secrets) for name, text in texts.items()}
    return msgspec.structs.replace(readings, **shown)


class Observation:
    """A context that is entered after the warm-up, receives the run's start, and is left when every request has ended.

    ``find_target`` finds the target's processes, where those of the client are all of this machine; None otherwise. The GPUs on
    which they compute are read where there is a driver, and the energy of this machine's CPU and DRAM where it is readable,
    unless there are no ``metrics``. ``read_statistics`` has an entry for each target; None for one without statistics.
    ``times`` are polled once a second.
    An observation that fails does not fail the run: its part of ``observed`` is None, and ``note`` is called with the reason.
    """

    def __init__(
        self,
        folder: RunFolder,
        read_statistics: Sequence[ReadStatistics | None],
        metrics: Sequence[MetricsSource],
        note: Callable[[str], None],
        find_target: FindTarget | None = None,
        times: TimesSource | None = None,
    ) -> None:
        self._folder = folder
        self._read_statistics = read_statistics
        self._has_metrics = bool(metrics)
        self._pages = MetricsPages(folder, metrics, note)
        self._note = note
        self._cores = os.sched_getaffinity(0)  # before workers take some of them for themselves
        self._machine: MachineSampler | None = None
        self._find_target = find_target
        self._target: frozenset[int] | None = None
        self._meter: MachineMeter | None = None
        self._machine_use: MachineUse | None = None
        self._server_began_at: float | None = None
        self._clock: ClockReadings | None = None
        self._statistics: tuple[OneServer, ...] = ()
        self._telemetry: Telemetry | None = None
        self._power: PowerSampler | None = None
        self._gpu_telemetry: GpuTelemetry | None = None
        self._times = times
        self._poller: TimesPoller | None = None
        self._polled: PolledTimes | None = None

    def __enter__(self) -> Callable[[int], None]:
        """Returns a function to call with the run's start, in ns of ``now_ns``."""
        self._statistics = tuple(
            None if before is None else ServerStatistics(before=before)
            for before in self._settled_statistics(self._read_statistics)
        )
        self._pages.open()
        self._target = None if self._find_target is None else self._find_target()  # once: it reads all processes and sockets
        self._power = self._power_sampler()
        self._server_began_at = self._began_at()
        self._poller = None if self._times is None else self._drained(self._times)
        self._clock = ClockReadings(before=read_clock_offsets())
        return self._begin

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._clock is not None:
            self._clock = msgspec.structs.replace(self._clock, after=read_clock_offsets())
        if self._machine is not None:
            self._machine.close()
        if self._power is not None:
            self._gpu_telemetry = self._power.stop()
        if self._meter is not None:
            self._machine_use = self._meter.read()
        if any(self._statistics):
            known = zip(self._read_statistics, self._statistics, strict=True)
            later = self._settled_statistics([None if before is None else read for read, before in known])
            self._statistics = tuple(
                None if before is None else msgspec.structs.replace(before, after=after)
                for before, after in zip(self._statistics, later, strict=True)
            )
        self._telemetry = self._pages.stop()
        if self._poller is not None:
            self._polled = self._poller.stop()

    @property
    def observed(self) -> Observed:
        return Observed(
            clock=self._clock,
            server_statistics=_sum_of_targets(self._statistics),
            telemetry=self._telemetry,
            polled_times=self._polled,
            gpu_telemetry=self._gpu_telemetry,
            machine_use=self._machine_use,
            server_began_at=self._server_began_at,
        )

    @property
    def statistics(self) -> tuple[OneServer, ...]:
        """The statistics of each target; empty before the run."""
        return self._statistics

    def _begin(self, start_ns: int) -> None:
        with suppress(OSError):
            self._machine = MachineSampler(self._folder.machine_samples, start_ns, self._cores)
        if self._find_target is not None:
            self._meter = MachineMeter(self._target, self._find_target)
        if self._power is not None:
            with suppress(OSError):
                self._power.begin(self._folder.gpu_samples, start_ns)
        self._pages.begin(start_ns)
        try:
            if self._poller is not None:
                self._poller.begin()
        except OSError as error:
            self._poller = None
            self._note(f"The server's times of requests cannot be written to disk, so they are not recorded: {error}")

    def _power_sampler(self) -> PowerSampler | None:
        if self._target is None or not self._has_metrics:
            return None
        gpus, rapl = None, Rapl(POWERCAP)
        with suppress(NoGpusError):
            gpus = Gpus()
        if gpus is None and not rapl.readable:
            return None
        return PowerSampler(gpus, rapl if rapl.readable else None, self._target)

    def _began_at(self) -> float | None:
        """When the server began, by its processes on this machine, or else by its own metrics; None of several servers."""
        if len(self._read_statistics) > 1:
            return None
        return self._pages.server_began_at if self._target is None else began_at(self._target)

    def _drained(self, times: TimesSource) -> TimesPoller | None:
        poller = TimesPoller(times.url, self._folder.times_polls, times.headers)
        try:
            poller.drain()
        except GetError as error:
            self._note(f"No times of requests at {times.url} ({error}), so they are not recorded.")
            return None
        return poller

    def _settled_statistics(self, reads: Sequence[ReadStatistics | None]) -> list[ByModel | None]:
        """The statistics of each target."""
        with ThreadPoolExecutor(max(1, len(reads))) as pool:
            return list(pool.map(self._settled, reads))

    def _settled(self, read: ReadStatistics | None) -> ByModel | None:
        if read is None:
            return None
        try:
            return settled(read)
        except StatisticsError as error:
            self._note(f"The server returned no model statistics, so its counts are not compared: {error}")
            return None


def _sum_of_targets(statistics: Sequence[OneServer]) -> OneServer:
    """The statistics of all targets together; None where one of them has none."""
    known = [of_target for of_target in statistics if of_target is not None]
    if not known or len(known) < len(statistics):
        return None
    before, after = ([getattr(of_target, side) for of_target in known] for side in ("before", "after"))
    return ServerStatistics(before=sum_of(before), after=None if None in after else sum_of(after))


def tabulate_observations(folder: RunFolder) -> None:
    """Convert the files of samplers and poller in ``folder`` to those that are kept, and delete them. Raises OSError."""
    samples = folder.client_samples()
    if samples:
        write_client_table(chain.from_iterable(map(read_samples, samples)), folder.client)
    pages = folder.all_scrapes()
    power = read_power_samples(folder.gpu_samples) if folder.gpu_samples.exists() else ()
    if pages or power:
        write_server_table(chain(*map(read_metrics, pages), power), folder.server)
    if folder.times_polls.exists():
        join_polls(folder.times_polls, folder.perf_metrics)
    for path in (*samples, *pages, folder.gpu_samples, folder.times_polls):
        path.unlink(missing_ok=True)
