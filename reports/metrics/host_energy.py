"""Energy and power of this machine's CPU packages and DRAM over the steady window, or the whole run without one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT
from reports.metrics.server_series import Series, Telemetry
from reports.metrics.windows import Window

_CPU, _DRAM = "host_cpu_energy_joules_total", "host_dram_energy_joules_total"


@dataclass(frozen=True)
class Zone:
    """One package, or its DRAM; ``energy_j`` is None where a reading of the window is unknown, or is missing at its ends."""

    zone: str
    energy_j: float | None
    power_w: float | None


@dataclass(frozen=True)
class Drawn:
    """All ``zones`` together; None where that of one of them is unknown.

    Each end of the window may be off by what is used in half a period: ``energy_error_j`` is both together.
    """

    zones: tuple[Zone, ...]
    energy_j: float | None
    energy_error_j: float | None
    power_w: float | None
    joules_per_token: float | None
    joules_per_token_error: float | None


@dataclass(frozen=True)
class HostEnergy:
    """The window from ``start_s`` to ``end_s``; ``period_s`` is the median time between readings. None has no known counter.

    All processes of the machine are in it, the client's as well as the target's.
    """

    start_s: float
    end_s: float
    period_s: float
    output_tokens: float | None
    cpu: Drawn | None
    dram: Drawn | None


def host_energy(telemetry: Telemetry, window: Window | None) -> HostEnergy | None:
    """What CPU and DRAM used in ``window``; None where no counter is known there."""
    if window is None or window.length_s <= 0:
        return None
    series = telemetry.select(_CPU) + telemetry.select(_DRAM)
    rate = window.throughputs[OUTPUT_TOKEN_THROUGHPUT].value
    tokens = None if rate is None else rate * window.length_s
    gaps_ns = [gap_ns for each in series for gap_ns in np.diff(each.times_ns).tolist()]
    if not gaps_ns:
        return None
    period_s = float(np.median(gaps_ns)) / 1e9
    cpu, dram = (_drawn(telemetry.select(name), window, period_s, tokens) for name in (_CPU, _DRAM))
    if cpu is None and dram is None:
        return None
    return HostEnergy(window.start_s, window.end_s, period_s, tokens, cpu, dram)


def _drawn(series: tuple[Series, ...], window: Window, period_s: float, tokens: float | None) -> Drawn | None:
    zones = tuple(_zone(each, window) for each in series)
    known = [zone.energy_j for zone in zones if zone.energy_j is not None]
    if not known:
        return None
    if len(known) < len(zones):
        return Drawn(zones, None, None, None, None, None)
    energy_j = sum(known)
    error_j = energy_j * period_s / window.length_s
    return Drawn(
        zones=zones,
        energy_j=energy_j,
        energy_error_j=error_j,
        power_w=energy_j / window.length_s,
        joules_per_token=energy_j / tokens if tokens else None,
        joules_per_token_error=error_j / tokens if tokens else None,
    )


def _zone(series: Series, window: Window) -> Zone:
    energy_j = series.growth(window.start_s * 1e9, window.end_s * 1e9)
    return Zone(series.labels.get("zone", ""), energy_j, None if energy_j is None else energy_j / window.length_s)
