"""Asking a server for its metrics through a run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from harness.clients.transport.http_get import GetError, Getter, Headers
from harness.clients.transport.url import HttpUrl
from harness.host.clock import now_ns
from harness.host.periodic import Periodic
from harness.observation.metrics_file import Scrape, ScrapeWriter
from harness.observation.prometheus_text import ExpositionReader

_SETTLING_S = 0.25  # engines tell their numbers every 100 ms or so
_EQUAL_SCRAPES = 3  # two could both be old, where a busy machine kept an engine from telling
_SETTLING_SCRAPES = 9
# What goes on changing where nobody asks for anything.
_RESTLESS = ("nv_cpu_", "nv_gpu_", "nv_energy_", "nv_pinned_", "nv_trt_llm_general_metrics", "nv_trt_llm_runtime_memory")


@dataclass(frozen=True, slots=True)
class Sampled:
    """How the sampling went: ``failed`` of ``scrapes`` brought nothing, for the reason in ``first_failure``."""

    scrapes: int
    failed: int
    first_failure: str | None


class MetricsSampler:
    """Scrapes ``url`` into ``path``. First ``settle``, then ``begin`` with the run's start, at its end ``stop``."""

    def __init__(self, url: HttpUrl, path: Path, period_s: float, headers: Headers = ()) -> None:
        self._getter = Getter(url, headers)
        self._path = path
        self._period_s = period_s
        self._reader = ExpositionReader()
        self._baseline: Scrape | None = None
        self._periodic: Periodic | None = None
        self._writer: ScrapeWriter | None = None
        self._start_ns = 0
        self._scrapes = self._failed = 0
        self._first_failure: str | None = None

    def settle(self) -> dict[tuple[str, str], float]:
        """Scrape until the counters stand still, and keep the last; returns its values. Raises GetError, ValueError."""
        values: dict[tuple[str, str], float] = {}
        equal = 0
        for _ in range(_SETTLING_SCRAPES):
            before = values
            self._baseline = self._scrape()
            values = dict(self._reader.read(self._baseline.text.decode()))
            equal = equal + 1 if _counters(values) == _counters(before) else 1
            if equal == _EQUAL_SCRAPES:
                break
            time.sleep(_SETTLING_S)
        return values

    def begin(self, start_ns: int) -> None:
        """The run starts at ``start_ns`` of ``now_ns``, from which all times in the file count."""
        self._start_ns = start_ns
        self._writer = ScrapeWriter(self._path)
        if self._baseline is not None:
            self._keep(self._baseline)
        self._periodic = Periodic(self._period_s, self._sample, "metrics-sampler")

    def stop(self) -> Sampled:
        """Scrape once more, when the counters stand still, and end."""
        if self._periodic is not None and self._periodic.stop():
            try:
                self.settle()
                if self._baseline is not None:
                    self._keep(self._baseline)
            except (GetError, ValueError, OSError) as error:
                self._note_failure(error)
        if self._writer is not None:
            self._writer.close()
        self._getter.close()
        return Sampled(self._scrapes, self._failed, self._first_failure)

    def _sample(self) -> None:
        try:
            scrape = self._scrape()
            for _ in self._reader.read(scrape.text.decode()):
                pass
            self._keep(scrape)
        except (GetError, ValueError, OSError) as error:
            self._note_failure(error)

    def _scrape(self) -> Scrape:
        asked_ns = now_ns()
        text = self._getter.get()
        return Scrape(asked_ns, now_ns(), text)

    def _keep(self, scrape: Scrape) -> None:
        assert self._writer is not None
        self._writer.append(Scrape(scrape.asked_ns - self._start_ns, scrape.answered_ns - self._start_ns, scrape.text))
        self._scrapes += 1

    def _note_failure(self, error: Exception) -> None:
        self._scrapes += 1
        self._failed += 1
        self._first_failure = self._first_failure or str(error)


def _counters(values: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    return {series: value for series, value in values.items() if not series[0].startswith(_RESTLESS)}
