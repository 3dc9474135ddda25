"""Observation of a run beside its exchanges: clocks, the client's machine, the server's statistics and metrics."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from types import TracebackType
from typing import TypeVar

import msgspec

from bench_records.client_table import write_client_table
from bench_records.manifest import ClockReadings, GpuTelemetry, MachineUse, PolledTimes, ServerStatistics, Telemetry
from bench_records.run_folder import RunFolder
from bench_records.server_table import write_server_table
from harness.clients.secret_values import Spellings, hide_in_text
from harness.clients.transport.http_get import GetError, Headers, HttpStatusError
from harness.clients.transport.url import HttpUrl
from harness.clients.triton.statistics import ByModel, ReadStatistics, StatisticsError, settled
from harness.host.clock import read_clock_offsets
from harness.host.processes import began_at
from harness.observation.gpu_sampler import GpuSampler, read_gpu_samples
from harness.observation.machine_probe import MachineProbe
from harness.observation.machine_use import FindTarget, MachineMeter
from harness.observation.metrics_file import read_metrics
from harness.observation.metrics_sampler import MetricsSampler, Sampled
from harness.observation.nvml import Gpus, NoGpusError
from harness.observation.sample_file import read_samples
from harness.observation.times_poller import TimesPoller, join_polls

_Readings = TypeVar("_Readings", Telemetry, PolledTimes)


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """Where a server exposes its metrics. ``model`` is a model that they must name, where the URL is only guessed.

    ``headers`` are for the server that the run measures, and are sent to no other. ``shown`` is the URL without its secrets.
    ``otherwise`` is the place to look at where this one has no metrics, as of another kind of server. ``of_target``: the page
    is at the address of the requests, so that what it says of its process is about the measured server.
    """

    url: HttpUrl
    period_s: float
    model: str | None = None
    headers: Headers = ()
    shown: str | None = None
    otherwise: MetricsSource | None = None
    of_target: bool = False

    def __str__(self) -> str:
        return str(self.url) if self.shown is None else self.shown


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


def hidden_in(observed: Observed, secrets: Spellings) -> Observed:
    """``observed`` with HIDDEN in place of each secret that a server repeats in the text of an error."""
    return msgspec.structs.replace(
        observed,
        telemetry=None if observed.telemetry is None else _hidden(observed.telemetry, secrets),
        polled_times=None if observed.polled_times is None else _hidden(observed.polled_times, secrets),
    )


def _hidden(readings: _Readings, secrets: Spellings) -> _Readings:
    texts = {name: getattr(readings, name) for name in ("url", "first_failure")}
    shown = {name: None if text is None else hide_in_text(text, secrets) for name, text in texts.items()}
    return msgspec.structs.replace(readings, **shown)


class Observation:
    """A context that is entered after the warm-up, receives the run's start, and is left when every request has ended.

    ``find_target`` finds the target's processes, where those of the client are all of this machine; None otherwise. The GPUs on
    which they compute are read where there is a driver, unless ``metrics`` is None. ``times`` are polled once a second.
    An observation that fails does not fail the run: its part of ``observed`` is None, and ``note`` is called with the reason.
    """

    def __init__(
        self,
        folder: RunFolder,
        read_statistics: ReadStatistics | None,
        metrics: MetricsSource | None,
        note: Callable[[str], None],
        find_target: FindTarget | None = None,
        times: TimesSource | None = None,
    ) -> None:
        self._folder = folder
        self._read_statistics = read_statistics
        self._metrics = metrics
        self._note = note
        self._cores = os.sched_getaffinity(0)  # before workers take some of them for themselves
        self._sampler: MetricsSampler | None = None
        self._machine: MachineProbe | None = None
        self._find_target = find_target
        self._meter: MachineMeter | None = None
        self._machine_use: MachineUse | None = None
        self._server_began_at: float | None = None
        self._clock: ClockReadings | None = None
        self._statistics: ServerStatistics | None = None
        self._sampled: Sampled | None = None
        self._gpus: GpuSampler | None = None
        self._gpu_telemetry: GpuTelemetry | None = None
        self._times = times
        self._poller: TimesPoller | None = None
        self._polled: PolledTimes | None = None

    def __enter__(self) -> Callable[[int], None]:
        """Returns a function to call with the run's start, in ns of ``now_ns``."""
        statistics = self._settled_statistics()
        if statistics is not None:
            self._statistics = ServerStatistics(before=statistics)
        self._sampler = None if self._metrics is None else self._open(self._metrics)
        self._gpus = self._gpu_sampler()
        self._server_began_at = self._began_at()
        self._poller = None if self._times is None else self._drained(self._times)
        self._clock = ClockReadings(before=read_clock_offsets())
        return self._begin

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._clock is not None:
            self._clock = msgspec.structs.replace(self._clock, after=read_clock_offsets())
        if self._machine is not None:
            self._machine.close()
        if self._gpus is not None:
            self._gpu_telemetry = self._gpus.stop()
        if self._meter is not None:
            self._machine_use = self._meter.read()
        if self._statistics is not None:
            self._statistics = msgspec.structs.replace(self._statistics, after=self._settled_statistics())
        if self._sampler is not None:
            self._sampled = self._sampler.stop()
        if self._poller is not None:
            self._polled = self._poller.stop()

    @property
    def observed(self) -> Observed:
        telemetry = None
        if self._metrics is not None and self._sampled is not None:
            telemetry = Telemetry(url=str(self._metrics), period_s=self._metrics.period_s, **asdict(self._sampled))
        return Observed(
            clock=self._clock,
            server_statistics=self._statistics,
            telemetry=telemetry,
            polled_times=self._polled,
            gpu_telemetry=self._gpu_telemetry,
            machine_use=self._machine_use,
            server_began_at=self._server_began_at,
        )

    def _begin(self, start_ns: int) -> None:
        with suppress(OSError):
            self._machine = MachineProbe(self._folder.machine_probe, start_ns, self._cores)
        if self._find_target is not None:
            self._meter = MachineMeter(self._find_target)
        if self._gpus is not None:
            with suppress(OSError):
                self._gpus.begin(self._folder.gpu_samples, start_ns)
        try:
            if self._sampler is not None:
                self._sampler.begin(start_ns)
        except OSError as error:
            self._sampler = None
            self._note(f"The server's metrics cannot be written to disk, so they are not recorded: {error}")
        try:
            if self._poller is not None:
                self._poller.begin()
        except OSError as error:
            self._poller = None
            self._note(f"The server's times of requests cannot be written to disk, so they are not recorded: {error}")

    def _gpu_sampler(self) -> GpuSampler | None:
        if self._find_target is None or self._metrics is None:
            return None
        try:
            gpus = Gpus()
        except NoGpusError:
            return None
        target = self._find_target()  # which reads every process of the machine
        if target is None:
            gpus.close()
            return None
        return GpuSampler(gpus, target)

    def _began_at(self) -> float | None:
        """When the server began, by its processes on this machine, or else by its own metrics."""
        found = None if self._find_target is None else self._find_target()
        if found is not None:
            return began_at(found)
        is_own = self._metrics is not None and self._metrics.of_target
        return self._sampler.server_began_at if self._sampler is not None and is_own else None

    def _drained(self, times: TimesSource) -> TimesPoller | None:
        poller = TimesPoller(times.url, self._folder.times_polls, times.headers)
        try:
            poller.drain()
        except GetError as error:
            self._note(f"No times of requests at {times.url} ({error}), so they are not recorded.")
            return None
        return poller

    def _settled_statistics(self) -> ByModel | None:
        if self._read_statistics is None:
            return None
        try:
            return settled(self._read_statistics)
        except StatisticsError as error:
            self._note(f"The server returned no model statistics, so its counts are not compared: {error}")
            return None

    def _open(self, metrics: MetricsSource, before: str = "") -> MetricsSampler | None:
        """The sampler of the first place with metrics, which becomes the source; ``before`` names those that had none."""
        sampler = MetricsSampler(metrics.url, self._folder.scrapes, metrics.period_s, metrics.headers)
        try:
            values = sampler.settle()
        except (GetError, ValueError) as error:
            tried = f"{before}{metrics} ({error})"
            answered = isinstance(error, HttpStatusError | ValueError)
            if metrics.otherwise is not None and answered:
                sampler.stop()
                return self._open(metrics.otherwise, f"{tried} or ")
            self._note(f"No metrics at {tried}, so they are not recorded; name another place with --metrics_url.")
            return None
        self._metrics = metrics
        if metrics.model is not None and not any(f'"{metrics.model}"' in labels for _, labels in values):
            self._note(
                f"{metrics} has no model {metrics.model}, so its metrics are not recorded; name another with --metrics_url."
            )
            return None
        return sampler


def tabulate_observations(folder: RunFolder) -> None:
    """Convert the files of probes, sampler and poller in ``folder`` to those that are kept, and delete them. Raises OSError."""
    probes = folder.probes()
    if probes:
        write_client_table(chain.from_iterable(map(read_samples, probes)), folder.client)
    scrapes = read_metrics(folder.scrapes) if folder.scrapes.exists() else ()
    gpus = read_gpu_samples(folder.gpu_samples) if folder.gpu_samples.exists() else ()
    if scrapes or gpus:
        write_server_table(chain(scrapes, gpus), folder.server)
    if folder.times_polls.exists():
        join_polls(folder.times_polls, folder.perf_metrics)
    for path in (*probes, folder.scrapes, folder.gpu_samples, folder.times_polls):
        path.unlink(missing_ok=True)
