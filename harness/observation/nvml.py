"""This machine's NVIDIA GPUs, read through NVML with ``nvidia-ml-py`` (the extra ``[gpu]``).

NVML documents the power as the mean of the last second on most GPUs since Ampere, and the energy as a counter since the
driver was loaded, in mJ, which the GPU itself updates. What a GPU does not support has no value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

# Why the clocks are below those that were requested, by the bits of NVML's clocks event reasons; the rest is no limit.
_LIMITS = {
    "power cap": 0x04,
    "hardware slowdown": 0x08,
    "heat": 0x20 | 0x40,
    "power brake": 0x80,
}


class NoGpusError(Exception):
    """There is no GPU, no driver, or no ``nvidia-ml-py``; the text says which."""


Reading = tuple[str, str, float]
"""Name, labels and value of a series of ``server.parquet``: the labels are a JSON object of texts with sorted keys."""


class Gpu:
    """One GPU; ``pids`` are the processes that compute on it, as far as this process may see them."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.name = _text(nvml.nvmlDeviceGetName(self._handle))
        self._labels = {"gpu": str(index), "name": self.name, "uuid": _text(nvml.nvmlDeviceGetUUID(self._handle))}
        self._plain = json.dumps(self._labels, sort_keys=True)
        self._limits = [
            (json.dumps({**self._labels, "reason": reason}, sort_keys=True), bits) for reason, bits in _LIMITS.items()
        ]

    def pids(self) -> frozenset[int]:
        with suppress(self._nvml.NVMLError):
            return frozenset(process.pid for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        return frozenset()

    def read(self) -> list[Reading]:
        nvml, handle = self._nvml, self._handle
        values: tuple[tuple[str, Callable[[], float]], ...] = (
            ("gpu_power_watts", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
            ("gpu_energy_joules_total", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3),
            ("gpu_utilization_ratio", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            ("gpu_memory_used_bytes", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
            ("gpu_sm_clock_hertz", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
        )
        readings: list[Reading] = []
        for name, get in values:
            with suppress(nvml.NVMLError):
                readings.append((name, self._plain, float(get())))
        with suppress(nvml.NVMLError):
            reasons = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
            readings += [("gpu_clocks_limited", labels, float(bool(reasons & bits))) for labels, bits in self._limits]
        return readings


class Gpus:
    """All GPUs of this machine that this process may see. Call ``close`` at the end."""

    def __init__(self) -> None:
        """Raises NoGpusError."""
        try:
            import pynvml
        except ImportError as error:
            raise NoGpusError("nvidia-ml-py is not installed (the extra [gpu])") from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            self.all = tuple(Gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
        except pynvml.NVMLError as error:
            raise NoGpusError(f"NVML: {error}") from error
        if not self.all:
            self.close()
            raise NoGpusError("the driver shows no GPU")

    def used_by(self, pids: Collection[int]) -> tuple[Gpu, ...]:
        """The GPUs on which one of ``pids`` is known to compute. In a container NVML may show no process, or not their ids."""
        return tuple(gpu for gpu in self.all if gpu.pids() & set(pids))

    def close(self) -> None:
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
