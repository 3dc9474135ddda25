"""A stand-in for ``pynvml`` on machines without a GPU: two GPUs, with what each supports and who computes on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """What NVML raises for a GPU that does not support a reading."""


@dataclass
class Device:
    """``unsupported`` are the names of functions that raise NVMLError; energy grows by ``step_mj`` with each reading of it."""

    index: int
    pids: tuple[int, ...] = ()
    unsupported: frozenset[str] = frozenset()
    power_mw: int = 300_000
    energy_mj: int = 5_000
    step_mj: int = 30_000
    throttle: int = 0
    reads: int = field(default=0)


def fake_nvml(*devices: Device, init_error: str = "") -> Any:
    """The module. Raises NVMLError as NVML does."""

    def init() -> None:
        if init_error:
            raise NVMLError(init_error)

    def supported(function: str) -> Any:
        def wrap(get: Any) -> Any:
            def call(device: Device, *rest: Any) -> Any:
                if function in device.unsupported:
                    raise NVMLError("Not Supported")
                return get(device)

            return call

        return wrap

    def energy(device: Device) -> int:
        device.reads += 1
        return device.energy_mj + device.step_mj * device.reads

    functions = {
        "nvmlDeviceGetPowerUsage": lambda device: device.power_mw,
        "nvmlDeviceGetTotalEnergyConsumption": energy,
        "nvmlDeviceGetUtilizationRates": lambda device: SimpleNamespace(gpu=67, memory=10),
        "nvmlDeviceGetMemoryInfo": lambda device: SimpleNamespace(used=12_000_000_000, total=80_000_000_000),
        "nvmlDeviceGetClockInfo": lambda device: 1980,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda device: device.throttle,
        "nvmlDeviceGetComputeRunningProcesses": lambda device: [SimpleNamespace(pid=pid) for pid in device.pids],
        "nvmlDeviceGetName": lambda device: "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetUUID": lambda device: f"GPU-{device.index}",
    }
    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        nvmlInit=init,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(devices),
        nvmlDeviceGetHandleByIndex=lambda index: devices[index],
        **{name: supported(name)(get) for name, get in functions.items()},
    )
