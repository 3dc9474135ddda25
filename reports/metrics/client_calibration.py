"""Calibration of the client from the run's manifest, and the run's peak rates to hold against it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench_records.manifest import HeldRate, Manifest
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.percentiles import nearest_rank

_BIN_NS = 1e9
_LONGEST_NS = 1e16  # four months; no run is longer, and a damaged time must not exhaust the memory
_QUIET_CORES = 0.2
_CHUNK = 1_000_000  # events; a run may have tens of millions


@dataclass(frozen=True, slots=True)
class Added:
    """Error that the client adds to a duration: mean and standard deviation, in ms."""

    mean_ms: float
    stdev_ms: float

    def __str__(self) -> str:
        mean_ms = 0.0 if abs(self.mean_ms) < 0.005 else self.mean_ms  # no minus before a zero
        return f"{mean_ms:.2f} ± {self.stdev_ms:.2f} ms"


@dataclass(frozen=True, slots=True)
class ClientCalibration:
    """Results of `bench calibrate` for a client like the run's. ``made_on`` is a date, ISO 8601.

    The limits are the highest rates sustained with ``workers`` processes, the largest calibrated number that the run also
    had; 0 where none was sustained, None where there was no time to measure. ``busy_cores`` is the CPU use of other processes
    meanwhile.
    """

    made_on: str
    ttft: Added
    icl: Added
    workers: int
    requests_per_s: float | None
    responses_per_s: float | None
    busy_cores: float

    @property
    def was_disturbed(self) -> bool:
        """Whether other processes used the machine during the calibration."""
        return self.busy_cores > _QUIET_CORES


def client_calibration(manifest: Manifest) -> ClientCalibration | None:
    """The calibration in the run's manifest; None where there is none for at most as many workers."""
    calibration = manifest.calibration
    if calibration is None:
        return None
    workers = run_workers(manifest)
    fitting = [limits for limits in calibration.limits if limits.workers <= workers]
    if not fitting:
        return None
    limits = max(fitting, key=lambda limits: limits.workers)
    return ClientCalibration(
        made_on=calibration.made_at[:10],
        ttft=Added(calibration.ttft.mean_ms, calibration.ttft.stdev_ms),
        icl=Added(calibration.icl.mean_ms, calibration.icl.stdev_ms),
        workers=limits.workers,
        requests_per_s=_rate(limits.requests),
        responses_per_s=_rate(limits.responses),
        busy_cores=calibration.busy_cores or 0.0,
    )


def run_workers(manifest: Manifest) -> int:
    """The number of the run's client processes."""
    return (None if manifest.workers is None else manifest.workers.count) or 1


def _rate(limit: HeldRate) -> float | None:
    if limit.held_per_s is not None:
        return limit.held_per_s
    return None if limit.failed_per_s is None else 0.0


@dataclass(frozen=True, slots=True)
class PeakRates:
    """Peak rates of a run: p99 over its seconds of the requests sent, and of the responses received, in each."""

    requests_per_s: float
    responses_per_s: float


def peak_rates(requests: Requests) -> PeakRates:
    """The peak rates of a run; 0 where nothing was sent."""
    return PeakRates(_busiest(requests.sent_ns), _busiest(requests.token_times_ns))


def _busiest(events_ns: FloatArray) -> float:
    counts = np.zeros(0, dtype=np.int64)
    for start in range(0, events_ns.size, _CHUNK):
        part = events_ns[start : start + _CHUNK]
        seconds = part[(part >= 0) & (part < _LONGEST_NS)] // _BIN_NS
        counted = np.bincount(seconds.astype(np.int64), minlength=counts.size)
        counted[: counts.size] += counts
        counts = counted
    return nearest_rank(np.sort(counts).astype(np.float64), 0.99) if counts.size else 0.0
