"""The client's own calibration, as the run's manifest holds it, and how the run compares with what was calibrated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.percentiles import nearest_rank

_BIN_NS = 1e9
_LONGEST_NS = 1e16  # four months; no run is longer, and a damaged time must not fill the memory
_QUIET_CORES = 0.2
_AT_ONCE = 1_000_000  # events; a run may have tens of millions


@dataclass(frozen=True, slots=True)
class Added:
    """What the client adds to a duration: mean and standard deviation of its errors, in ms."""

    mean_ms: float
    stdev_ms: float

    def __str__(self) -> str:
        mean_ms = 0.0 if abs(self.mean_ms) < 0.005 else self.mean_ms  # no minus before a zero
        return f"{mean_ms:.2f} ± {self.stdev_ms:.2f} ms"


@dataclass(frozen=True, slots=True)
class ClientCalibration:
    """What `bench calibrate` found for a client like the run's. ``made_on`` is a date, ISO 8601.

    The limits are the highest rates that were seen to be held with ``workers`` processes, the most that were calibrated and
    that the run had; 0 where none was held, None where there was no time to try. ``busy_cores`` is what others used of the
    machine meanwhile.
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
        """Whether others used the machine when it was calibrated."""
        return self.busy_cores > _QUIET_CORES


def client_calibration(manifest: Mapping[str, Any]) -> ClientCalibration | None:
    """The calibration that the run took along; None where it had none, or one of a form that is not known here."""
    found = manifest.get("calibration")
    if not isinstance(found, Mapping):
        return None
    try:
        workers = run_workers(manifest)
        limits = max(
            (limits for limits in found["limits"] if limits["workers"] <= workers), key=lambda limits: int(limits["workers"])
        )
        return ClientCalibration(
            made_on=str(found["made_at"])[:10],
            ttft=_added(found["ttft"]),
            icl=_added(found["icl"]),
            workers=int(limits["workers"]),
            requests_per_s=_rate(limits["requests"]),
            responses_per_s=_rate(limits["responses"]),
            busy_cores=float(found.get("busy_cores") or 0.0),
        )
    except (KeyError, TypeError, ValueError):
        return None


def run_workers(manifest: Mapping[str, Any]) -> int:
    """How many client processes the run had."""
    chosen = manifest.get("workers") or {}
    return int(chosen.get("count") or manifest.get("options", {}).get("workers") or 1)


def _added(found: Mapping[str, Any]) -> Added:
    return Added(float(found["mean_ms"]), float(found["stdev_ms"]))


def _rate(limit: Mapping[str, Any]) -> float | None:
    if limit["held_per_s"] is not None:
        return float(limit["held_per_s"])
    return None if limit["failed_per_s"] is None else 0.0


@dataclass(frozen=True, slots=True)
class PeakRates:
    """The busiest seconds of a run: p99 over its seconds of what was sent, and of the responses that came, in each."""

    requests_per_s: float
    responses_per_s: float


def peak_rates(requests: Requests) -> PeakRates:
    """The rates of the run's busiest seconds; 0 where nothing was sent."""
    return PeakRates(_busiest(requests.sent_ns), _busiest(requests.token_times_ns))


def _busiest(events_ns: FloatArray) -> float:
    counts = np.zeros(0, dtype=np.int64)
    for start in range(0, events_ns.size, _AT_ONCE):
        part = events_ns[start : start + _AT_ONCE]
        seconds = part[(part >= 0) & (part < _LONGEST_NS)] // _BIN_NS
        counted = np.bincount(seconds.astype(np.int64), minlength=counts.size)
        counted[: counts.size] += counts
        counts = counted
    active = counts[: int(np.flatnonzero(counts).max(initial=-1)) + 1]
    return nearest_rank(np.sort(active).astype(np.float64), 0.99) if active.size else 0.0
