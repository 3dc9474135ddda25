"""Periodic scrapes of a server's metrics through a run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from harness.clients.transport.http_get import GetError, Headers, HttpGetter
from harness.clients.transport.url import HttpUrl
from harness.host.clock import now_ns
from harness.host.periodic import Periodic
from harness.observation.metrics_file import Scrape, ScrapeWriter
from harness.observation.prometheus_text import ExpositionReader, process_began_at

_SETTLING_S = 0.25  # engines update their metrics every 100 ms or so
_EQUAL_SCRAPES = 3  # two could both be stale, where a busy machine delayed the update
_SETTLING_SCRAPES = 9
# Metrics that change while the server is idle.
_VOLATILE = (
    "DCGM_",
    "nv_cpu_",
    "nv_gpu_",
    "nv_energy_",
    "nv_pinned_",
    "nv_trt_llm_general_metrics",
    "nv_trt_llm_runtime_memory",
)


@dataclass(frozen=True, slots=True)
class Sampled:
    """The scrapes of a run, how many of them failed, and the reason of the first failure."""

    scrapes: int
    failed: int
    first_failure: str | None


class MetricsSampler:
    """Scrapes ``url`` into ``path``. Call ``settle``, then ``begin`` at the run's start, and ``stop`` at its end.

    ``shown`` is the URL without its secrets, which the file has; None where it has none.
    """

    def __init__(self, url: HttpUrl, path: Path, period_s: float, headers: Headers = (), shown: str | None = None) -> None:
        self._getter = HttpGetter(url, headers)
        self._shown = str(url) if shown is None else shown
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
        """Scrape until the counters are stable; the last scrape becomes the baseline. Returns its values.

        Raises GetError, ValueError.
        """
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

    @property
    def server_began_at(self) -> float | None:
        """When the process of the last page of ``settle`` began, as Unix time in s; None where it does not say so."""
        return None if self._baseline is None else process_began_at(self._baseline.text.decode(errors="replace"))

    def begin(self, start_ns: int) -> None:
        """Start sampling. Times in the file count from ``start_ns`` (of ``now_ns``)."""
        self._start_ns = start_ns
        self._writer = ScrapeWriter(self._path, self._shown)
        if self._baseline is not None:
            self._write(self._baseline)
        self._periodic = Periodic(self._period_s, self._sample, "metrics-sampler")

    def stop(self) -> Sampled:
        """Stop sampling, and scrape once more when the counters are stable."""
        if self._periodic is not None and self._periodic.stop():
            try:
                self.settle()
                if self._baseline is not None:
                    self._write(self._baseline)
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
            self._write(scrape)
        except (GetError, ValueError, OSError) as error:
            self._note_failure(error)

    def _scrape(self) -> Scrape:
        sent_ns = now_ns()
        text = self._getter.get()
        return Scrape(sent_ns, now_ns(), text)

    def _write(self, scrape: Scrape) -> None:
        assert self._writer is not None
        self._writer.append(Scrape(scrape.sent_ns - self._start_ns, scrape.received_ns - self._start_ns, scrape.text))
        self._scrapes += 1

    def _note_failure(self, error: Exception) -> None:
        self._scrapes += 1
        self._failed += 1
        self._first_failure = self._first_failure or str(error)


def _counters(values: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    return {series: value for series, value in values.items() if not series[0].startswith(_VOLATILE)}
