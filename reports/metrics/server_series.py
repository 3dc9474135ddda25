"""The server's metrics over a run (``server.parquet``) as series."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from reports.metrics.columns import floats, integers
from reports.statistics.arrays import FloatArray

OWN_PREFIXES = ("gpu_", "host_")  # of the series that bench itself read, from NVML and RAPL


@dataclass(frozen=True)
class Series:
    """One series: ``values`` [n] at ``times_ns`` [n], ascending, since the run's start; negative before it.

    ``server`` is the URL of the page of metrics that has it; "" where bench read it itself, or the page is not recorded.
    """

    name: str
    labels: Mapping[str, str]
    times_ns: FloatArray
    values: FloatArray
    server: str = ""

    def increase(self, page_since_ns: float = np.inf) -> float | None:
        """The increase of a counter since the run's start; None when it fell (the server restarted) or is not known.

        ``page_since_ns`` is when its page was first read: a counter that was not there then, and came after the run's start,
        began at 0. Servers export a counter with labels, such as a reason, from its first count on.
        """
        first = max(0, int(np.searchsorted(self.times_ns, 0.0, side="right")) - 1)
        values = self.values[first:]
        if self.times_ns[first] > max(0.0, page_since_ns):
            values = np.concatenate([[0.0], values])
        if values.size < 2 or not np.isfinite(values).all() or (np.diff(values) < 0).any():
            return None
        return float(values[-1] - values[0])

    def growth(self, start_ns: float, end_ns: float) -> float | None:
        """What a counter grew by between two times, interpolated; None where the readings do not cover them, one of them is
        unknown, or the counter fell.
        """
        first = int(np.searchsorted(self.times_ns, start_ns, side="right")) - 1
        last = int(np.searchsorted(self.times_ns, end_ns))
        if first < 0 or last >= self.times_ns.size:
            return None
        times_ns, values = self.times_ns[first : last + 1], self.values[first : last + 1]
        if not np.isfinite(values).all() or (np.diff(values) < 0).any():
            return None
        at_start, at_end = np.interp([start_ns, end_ns], times_ns, values)
        return float(at_end - at_start)


@dataclass(frozen=True)
class Level:
    """A gauge over the run: mean and maximum of its ``readings``."""

    mean: float
    max: float
    readings: int


@dataclass(frozen=True)
class Telemetry:
    """All series of a run, by name: those of several servers where it read several pages. What ``increase`` and ``level`` add
    up are the series of one server, which ``of_server`` has.
    """

    by_name: Mapping[str, tuple[Series, ...]]

    @property
    def servers(self) -> tuple[str, ...]:
        """The URLs of the pages that the server's own series come from, sorted."""
        served = () if self.served is None else self.served.by_name.values()
        return tuple(sorted({series.server for all_of_name in served for series in all_of_name}))

    def of_server(self, server: str) -> Telemetry:
        """The series of one page."""
        own = {name: tuple(s for s in series if s.server == server) for name, series in self.by_name.items()}
        return Telemetry({name: series for name, series in own.items() if series})

    @cached_property
    def _since_ns(self) -> Mapping[str, float]:
        """When each page was first read; infinite for the series that bench itself read, each at times of its own."""
        since: dict[str, float] = {}
        for name, all_of_name in self.by_name.items():
            for series in all_of_name:
                first_ns = np.inf if name.startswith(OWN_PREFIXES) else float(series.times_ns[0])
                since[series.server] = min(first_ns, since.get(series.server, np.inf))
        return since

    @property
    def served(self) -> Telemetry | None:
        """The series that the server itself exported; None where there are none."""
        served = {name: series for name, series in self.by_name.items() if not name.startswith(OWN_PREFIXES)}
        return Telemetry(served) if served else None

    def select(self, name: str, **labels: str) -> tuple[Series, ...]:
        """The series of that name that carry these labels."""
        return tuple(s for s in self.by_name.get(name, ()) if all(s.labels.get(key) == text for key, text in labels.items()))

    def increase(self, name: str, **labels: str) -> float | None:
        """The sum of the increases of the selected series; None where there is none, or one of them is unknown."""
        increases = [series.increase(self._since_ns[series.server]) for series in self.select(name, **labels)]
        known = [increase for increase in increases if increase is not None]
        return sum(known) if known and len(known) == len(increases) else None

    def level(self, until_ns: float, name: str, **labels: str) -> Level | None:
        """The sum of the selected gauges at each reading, from the run's start until ``until_ns``."""
        sums: dict[float, float] = {}
        for series in self.select(name, **labels):
            within = (series.times_ns >= 0) & (series.times_ns <= until_ns) & np.isfinite(series.values)
            for time_ns, value in zip(series.times_ns[within].tolist(), series.values[within].tolist(), strict=True):
                sums[time_ns] = sums.get(time_ns, 0.0) + value
        if not sums:
            return None
        values = list(sums.values())
        return Level(sum(values) / len(values), max(values), len(values))


def place_of(server: str) -> str:
    """Host and port of a page's URL, and its path where it is not the usual one."""
    return server.partition("://")[2].removesuffix("/metrics") or server


def telemetry_of(table: pa.Table | None) -> Telemetry | None:
    """The series of ``server.parquet`` (columns of MetricSample); None without the file or samples.

    Raises ValueError, or RecursionError, where labels are no JSON object of texts.
    """
    if table is None or not len(table):
        return None
    by_name: dict[str, tuple[Series, ...]] = {}
    for series in _series(table):
        by_name[series.name] = (*by_name.get(series.name, ()), series)
    return Telemetry(by_name)


def _series(table: pa.Table) -> Iterator[Series]:
    """The rows grouped by name, labels and server, by one sort."""
    names, labels, servers = (table[column].combine_chunks() for column in ("name", "labels", "server"))
    server_texts = ["", *servers.dictionary.to_pylist()]
    of_server = np.nan_to_num(floats(servers.indices), nan=-1.0).astype(np.int64) + 1
    codes = integers(names.indices) * len(labels.dictionary) + integers(labels.indices)
    codes = codes * len(server_texts) + of_server
    times_ns = floats(table["time_ns"])
    values = floats(table["value"])
    order = np.lexsort((times_ns, codes))
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    name_texts, label_texts = names.dictionary.to_pylist(), labels.dictionary.to_pylist()
    for rows in np.split(order, starts[1:]):
        series, server = divmod(int(codes[rows[0]]), len(server_texts))
        name, label = divmod(series, len(label_texts))
        yield Series(name_texts[name], _labels(label_texts[label]), times_ns[rows], values[rows], server_texts[server])


def _labels(text: str) -> Mapping[str, str]:
    labels = json.loads(text)
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise ValueError(f"labels: {text[:80]!r} is no JSON object of texts")
    return labels
