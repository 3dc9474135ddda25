"""Power, energy, utilization and clocks of the target's GPUs over the steady window, or the whole run without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT
from reports.metrics.server_series import Series, Telemetry
from reports.metrics.windows import Window
from reports.statistics.arrays import FloatArray


@dataclass(frozen=True)
class _Source:
    """Names and scales of a source's series, to W, J, a share, bytes and Hz; ``gpu`` is the label that identifies a GPU."""

    key: str
    gpu: str
    power: tuple[str, float]
    energy: tuple[str, float]
    busy: tuple[str, float]
    memory: tuple[str, float]
    clock: tuple[str, float] | None


# The first that has a GPU counts: ours is read ten times a second, Triton's page renews its values every 2 s.
_SOURCES = (
    _Source(
        "nvml",
        "uuid",
        ("gpu_power_watts", 1.0),
        ("gpu_energy_joules_total", 1.0),
        ("gpu_utilization_ratio", 1.0),
        ("gpu_memory_used_bytes", 1.0),
        ("gpu_sm_clock_hertz", 1.0),
    ),
    _Source(
        "triton",
        "gpu_uuid",
        ("nv_gpu_power_usage", 1.0),
        ("nv_energy_consumption", 1.0),
        ("nv_gpu_utilization", 1.0),
        ("nv_gpu_memory_used_bytes", 1.0),
        None,
    ),
    _Source(
        "dcgm",
        "UUID",
        ("DCGM_FI_DEV_POWER_USAGE", 1.0),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e-3),
        ("DCGM_FI_DEV_GPU_UTIL", 1e-2),
        ("DCGM_FI_DEV_FB_USED", 2.0**20),
        ("DCGM_FI_DEV_SM_CLOCK", 1e6),
    ),
)
_LIMITED = "gpu_clocks_limited"


@dataclass(frozen=True)
class ClockLimit:
    """``reason`` held the clocks down for ``seconds`` of the run's readings; ``lowest_mhz`` is the lowest SM clock then."""

    reason: str
    seconds: float
    lowest_mhz: float | None


@dataclass(frozen=True)
class Gpu:
    """One GPU in the window. ``idle_power_w`` is from before the run's start; None is not exported, or was not read."""

    gpu: str
    power_w: float | None
    idle_power_w: float | None
    energy_j: float | None
    busy_share: float | None
    memory_used_bytes: float | None
    sm_clock_mhz: float | None
    limits: tuple[ClockLimit, ...]


@dataclass(frozen=True)
class GpuUse:
    """All GPUs in the window from ``start_s`` to ``end_s``; ``period_s`` is the median time between readings, or
    between two values of the energy counters where that is longer: an exporter renews its page less often than it is read.

    ``energy_j`` is the sum of the energy counters, interpolated at the window's ends, idle power included; where a GPU has no
    counter, of its power over time. Each end may be off by what is used in half a period: ``energy_error_j`` is both together.
    """

    source: str
    start_s: float
    end_s: float
    period_s: float
    gpus: tuple[Gpu, ...]
    energy_j: float | None
    energy_error_j: float | None
    output_tokens: float | None

    @property
    def power_w(self) -> float | None:
        return None if self.energy_j is None else self.energy_j / (self.end_s - self.start_s)

    @property
    def idle_power_w(self) -> float | None:
        known = [gpu.idle_power_w for gpu in self.gpus if gpu.idle_power_w is not None]
        return sum(known) if len(known) == len(self.gpus) else None

    @property
    def busy_share(self) -> float | None:
        """The mean over the GPUs."""
        known = [gpu.busy_share for gpu in self.gpus if gpu.busy_share is not None]
        return sum(known) / len(known) if len(known) == len(self.gpus) else None

    @property
    def joules_per_token(self) -> float | None:
        return self.energy_j / self.output_tokens if self.energy_j is not None and self.output_tokens else None

    @property
    def joules_per_token_error(self) -> float | None:
        """As ``energy_error_j``: of the energy's reading alone."""
        return self.energy_error_j / self.output_tokens if self.energy_error_j is not None and self.output_tokens else None


def gpu_use(telemetry: Telemetry, window: Window | None) -> GpuUse | None:
    """What the GPUs used in ``window``; None where no source has a reading in it."""
    if window is None or window.length_s <= 0:
        return None
    return next((use for source in _SOURCES if (use := _use(telemetry, source, window)) is not None), None)


def _use(telemetry: Telemetry, source: _Source, window: Window) -> GpuUse | None:
    power = _by_gpu(telemetry, source, source.power)
    if not power:
        return None
    start_ns, end_ns = window.start_s * 1e9, window.end_s * 1e9
    series = {part: _by_gpu(telemetry, source, getattr(source, part)) for part in ("energy", "busy", "memory", "clock")}
    renewals_s = [renewal for counter in series["energy"].values() if (renewal := _renewal_s(counter)) is not None]
    period_s = max(float(np.median([_period_s(watts) for watts in power.values()])), *renewals_s, 0.0)
    energies = [_energy(series["energy"].get(gpu), watts, start_ns, end_ns) for gpu, watts in power.items()]
    gpus = tuple(
        Gpu(
            gpu=_title(watts, gpu),
            power_w=_mean(watts, start_ns, end_ns),
            idle_power_w=_before(watts),
            energy_j=energy,
            busy_share=_mean(series["busy"].get(gpu), start_ns, end_ns),
            memory_used_bytes=_largest(series["memory"].get(gpu), start_ns, end_ns),
            sm_clock_mhz=_scaled(_mean(series["clock"].get(gpu), start_ns, end_ns), 1e-6),
            limits=_limits(telemetry, source.gpu, gpu, series["clock"].get(gpu)),
        )
        for (gpu, watts), energy in zip(power.items(), energies, strict=True)
    )
    if all(gpu.power_w is None and gpu.energy_j is None for gpu in gpus):
        return None
    known = [energy for energy in energies if energy is not None]
    energy_j = sum(known) if len(known) == len(gpus) else None
    rate = window.throughputs[OUTPUT_TOKEN_THROUGHPUT].value
    return GpuUse(
        source=source.key,
        start_s=window.start_s,
        end_s=window.end_s,
        period_s=period_s,
        gpus=gpus,
        energy_j=energy_j,
        energy_error_j=None if energy_j is None else energy_j * period_s / window.length_s,
        output_tokens=None if rate is None else rate * window.length_s,
    )


def _by_gpu(telemetry: Telemetry, source: _Source, named: tuple[str, float] | None) -> Mapping[str, Series]:
    """The finite values of each GPU, in the units of ``GpuUse``."""
    if named is None:
        return {}
    name, scale = named
    found: dict[str, Series] = {}
    for series in telemetry.select(name):
        known = np.isfinite(series.values)
        if known.any():
            gpu = series.labels.get(source.gpu, "")
            found[gpu] = replace(series, times_ns=series.times_ns[known], values=series.values[known] * scale)
    return found


def _title(series: Series, gpu: str) -> str:
    """Index and model, where the source has them (ours and DCGM's); else what identifies it."""
    model = series.labels.get("name") or series.labels.get("modelName")
    index = series.labels.get("gpu")
    return gpu if model is None or index is None else f"{index}: {model}"


def _period_s(series: Series) -> float:
    return float(np.median(np.diff(series.times_ns))) / 1e9 if series.times_ns.size > 1 else 0.0


def _renewal_s(counter: Series) -> float | None:
    """The median time between two changes of a counter of energy, which a GPU always uses; None for fewer than two changes."""
    changed_ns = counter.times_ns[1:][np.diff(counter.values) != 0.0]
    return float(np.median(np.diff(changed_ns))) / 1e9 if changed_ns.size > 1 else None


def _within(series: Series | None, start_ns: float, end_ns: float) -> FloatArray:
    if series is None:
        return np.empty(0)
    values: FloatArray = series.values[(series.times_ns >= start_ns) & (series.times_ns <= end_ns)]
    return values


def _mean(series: Series | None, start_ns: float, end_ns: float) -> float | None:
    values = _within(series, start_ns, end_ns)
    return float(values.mean()) if values.size else None


def _largest(series: Series | None, start_ns: float, end_ns: float) -> float | None:
    values = _within(series, start_ns, end_ns)
    return float(values.max()) if values.size else None


def _before(series: Series) -> float | None:
    """The lowest reading before the run's start: power is a mean of the last second, which may hold the end of the warm-up."""
    values = series.values[series.times_ns <= 0]
    return float(values.min()) if values.size else None


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _energy(counter: Series | None, power: Series, start_ns: float, end_ns: float) -> float | None:
    """J in the window; None where the readings do not cover it, or the counter fell in it or was hardly renewed."""
    if counter is not None:
        return None if _renewal_s(counter) is None else counter.growth(start_ns, end_ns)
    if power.times_ns.size < 2 or power.times_ns[0] > start_ns or power.times_ns[-1] < end_ns:
        return None
    inner = (power.times_ns > start_ns) & (power.times_ns < end_ns)
    times_ns = np.concatenate([[start_ns], power.times_ns[inner], [end_ns]])
    watts = np.interp(times_ns, power.times_ns, power.values)
    return float((np.diff(times_ns) * (watts[1:] + watts[:-1]) / 2).sum() / 1e9)


def _limits(telemetry: Telemetry, label: str, gpu: str, clock: Series | None) -> tuple[ClockLimit, ...]:
    """Each reason that held the clocks down at a reading after the run's start; a reading counts until the next one."""
    found: list[ClockLimit] = []
    for series in telemetry.select(_LIMITED, **{label: gpu}):
        during = series.times_ns >= 0
        limited = during & (series.values > 0)
        if not limited.any():
            continue
        lengths_ns = np.append(np.diff(series.times_ns), 0.0)
        lowest = None
        if clock is not None:
            at_readings = np.interp(series.times_ns[limited], clock.times_ns, clock.values)
            lowest = float(at_readings.min()) / 1e6
        found.append(ClockLimit(series.labels.get("reason", ""), float(lengths_ns[limited].sum()) / 1e9, lowest))
    return tuple(found)
