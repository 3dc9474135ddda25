"""The server's metrics over a run (``server.parquet``) as series."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reports.metrics.columns import floats, integers
from reports.statistics.arrays import FloatArray

GPU_PREFIX = "gpu_"  # of the series that bench itself read from NVML


@dataclass(frozen=True)
class Series:
    """One series: ``values`` [n] at ``times_ns`` [n], ascending, since the run's start; negative before it."""

    name: str
    labels: Mapping[str, str]
    times_ns: FloatArray
    values: FloatArray

    def increase(self) -> float | None:
        """The increase of a counter since the run's start; None when it fell (the server restarted) or is not known."""
        first = max(0, int(np.searchsorted(self.times_ns, 0.0, side="right")) - 1)
        values = self.values[first:]
        if values.size < 2 or not np.isfinite(values).all() or (np.diff(values) < 0).any():
            return None
        return float(values[-1] - values[0])


@dataclass(frozen=True)
class Level:
    """A gauge over the run: mean and maximum of its ``readings``."""

    mean: float
    max: float
    readings: int


@dataclass(frozen=True)
class Telemetry:
    """All series of a run, by name."""

    by_name: Mapping[str, tuple[Series, ...]]

    @property
    def served(self) -> Telemetry | None:
        """The series that the server itself exported; None where there are none."""
        served = {name: series for name, series in self.by_name.items() if not name.startswith(GPU_PREFIX)}
        return Telemetry(served) if served else None

    def select(self, name: str, **labels: str) -> tuple[Series, ...]:
        """The series of that name that carry these labels."""
        return tuple(s for s in self.by_name.get(name, ()) if all(s.labels.get(key) == text for key, text in labels.items()))

    def increase(self, name: str, **labels: str) -> float | None:
        """The sum of the increases of the selected series; None where there is none, or one of them is unknown."""
        increases = [series.increase() for series in self.select(name, **labels)]
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
    """The rows grouped by name and labels, by one sort."""
    names, labels = (table[column].combine_chunks() for column in ("name", "labels"))
    codes = integers(names.indices) * len(labels.dictionary) + integers(labels.indices)
    times_ns = floats(table["time_ns"])
    values = floats(table["value"])
    order = np.lexsort((times_ns, codes))
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    name_texts, label_texts = names.dictionary.to_pylist(), labels.dictionary.to_pylist()
    for rows in np.split(order, starts[1:]):
        name, label = divmod(int(codes[rows[0]]), len(label_texts))
        yield Series(name_texts[name], _labels(label_texts[label]), times_ns[rows], values[rows])


def _labels(text: str) -> Mapping[str, str]:
    labels = json.loads(text)
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise ValueError(f"labels: {text[:80]!r} is no JSON object of texts")
    return labels
