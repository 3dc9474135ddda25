"""All that is watched beside the exchanges of a run: the clocks, the client's machine, and the server's own numbers."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from types import TracebackType
from typing import Any

from harness.clients.transport.http_get import GetError, Headers
from harness.clients.transport.url import HttpUrl
from harness.observation.clock_offsets import read_clock_offsets
from harness.observation.machine_probe import MachineProbe
from harness.observation.metrics_file import read_metrics
from harness.observation.metrics_sampler import MetricsSampler
from harness.observation.model_statistics import ReadStatistics, StatisticsError, settled
from harness.observation.sample_file import read_samples
from harness.records.client_table import write_client_table
from harness.records.run_folder import RunFolder
from harness.records.server_table import write_server_table


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """Where a server tells its metrics. ``model`` is one that they must name, where the URL is only guessed.

    ``headers`` are for the server that the run measures, and go to no other.
    """

    url: HttpUrl
    period_s: float
    model: str | None = None
    headers: Headers = ()


class Observation:
    """Entered when the warm-up is over, told the run's start, left when every request has ended.

    Nothing that is watched can fail a run: what cannot be had is None in ``facts``, and ``note`` is told why.
    """

    def __init__(
        self,
        folder: RunFolder,
        read_statistics: ReadStatistics | None,
        metrics: MetricsSource | None,
        note: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._read_statistics = read_statistics
        self._metrics = metrics
        self._note = note
        self._cores = os.sched_getaffinity(0)  # before workers take some of them for themselves
        self._sampler: MetricsSampler | None = None
        self._machine: MachineProbe | None = None
        self._facts: dict[str, Any] = {"clock": None, "server_statistics": None, "telemetry": None}

    def __enter__(self) -> Callable[[int], None]:
        """What is returned must be called with the run's start, in ns of ``now_ns``."""
        statistics = self._statistics()
        if statistics is not None:
            self._facts["server_statistics"] = {"before": statistics, "after": None}
        self._sampler = None if self._metrics is None else self._open(self._metrics)
        self._facts["clock"] = {"before": read_clock_offsets().as_dict(), "after": None}
        return self._begin

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._facts["clock"]["after"] = read_clock_offsets().as_dict()
        if self._machine is not None:
            self._machine.close()
        if self._facts["server_statistics"] is not None:
            self._facts["server_statistics"]["after"] = self._statistics()
        if self._sampler is not None and self._metrics is not None:
            sampled = self._sampler.stop()
            self._facts["telemetry"] = {
                "url": str(self._metrics.url),
                "period_s": self._metrics.period_s,
                **asdict(sampled),
            }

    @property
    def facts(self) -> dict[str, Any]:
        """Keys of the manifest: ``clock``, ``server_statistics``, ``telemetry``."""
        return self._facts

    def _begin(self, start_ns: int) -> None:
        with suppress(OSError):
            self._machine = MachineProbe(self._folder.machine_probe, start_ns, self._cores)
        try:
            if self._sampler is not None:
                self._sampler.begin(start_ns)
        except OSError as error:
            self._sampler = None
            self._note(f"The server's metrics cannot be kept, so it is not watched: {error}")

    def _statistics(self) -> dict[str, Any] | None:
        if self._read_statistics is None:
            return None
        try:
            return settled(self._read_statistics)
        except StatisticsError as error:
            self._note(f"The server gives no statistics of its models, so its counts are not compared: {error}")
            return None

    def _open(self, metrics: MetricsSource) -> MetricsSampler | None:
        sampler = MetricsSampler(metrics.url, self._folder.scrapes, metrics.period_s, metrics.headers)
        try:
            values = sampler.settle()
        except (GetError, ValueError) as error:
            self._note(
                f"No metrics at {metrics.url} ({error}), so the server is not watched; --metrics_url names another place."
            )
            return None
        if metrics.model is not None and not any(f'"{metrics.model}"' in labels for _, labels in values):
            self._note(f"{metrics.url} knows no model {metrics.model}: it is not watched; --metrics_url names another place.")
            return None
        return sampler


def tabulate_observations(folder: RunFolder) -> None:
    """Make the tables of what the probes and the sampler left in ``folder``, and give up their files. Raises OSError."""
    probes = folder.probes()
    if probes:
        write_client_table(chain.from_iterable(map(read_samples, probes)), folder.client)
    if folder.scrapes.exists():
        write_server_table(read_metrics(folder.scrapes), folder.server)
    for path in (*probes, folder.scrapes):
        path.unlink(missing_ok=True)
