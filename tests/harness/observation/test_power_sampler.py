"""Readings of this machine's GPUs through NVML, by a stand-in: the test machines have no GPU."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench_records.run_folder import RunFolder
from harness.clients.transport.url import HttpUrl
from harness.errors import JournalError
from harness.host.clock import now_ns
from harness.observation.metrics_pages import MetricsSource
from harness.observation.nvml import Gpus, NoGpusError
from harness.observation.observation import Observation, tabulate_observations
from harness.observation.power_sampler import PowerSampler, read_power_samples
from tests.harness.metrics_server import metrics_server
from tests.harness.observation.fake_nvml import Device, fake_nvml


def _use(monkeypatch: pytest.MonkeyPatch, *devices: Device, **errors: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(*devices, **errors))


def _sampled(path: Path, for_s: float = 0.35) -> tuple[Any, list[Any]]:
    sampler = PowerSampler(Gpus(), None, [os.getpid()])
    sampler.begin(path, now_ns())
    time.sleep(for_s)
    return sampler.stop(), list(read_power_samples(path))


def test_the_gpus_of_the_target_s_processes_are_read_from_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(monkeypatch, Device(0), Device(1, pids=(os.getpid(),), throttle=0x04))
    facts, samples = _sampled(tmp_path / "gpu.bin")
    assert (facts.gpus, facts.of_target) == (["NVIDIA H100 80GB HBM3"], True)
    assert {json.loads(sample.labels)["uuid"] for sample in samples} == {"GPU-1"}
    first = {sample.name: sample.value for sample in samples[:5]}
    assert first == {
        "gpu_power_watts": 300.0,
        "gpu_energy_joules_total": 35.0,
        "gpu_utilization_ratio": 0.67,
        "gpu_memory_used_bytes": 12e9,
        "gpu_sm_clock_hertz": 1.98e9,
    }
    limits = {json.loads(sample.labels)["reason"]: sample.value for sample in samples[5:9]}
    assert limits == {"power cap": 1.0, "hardware slowdown": 0.0, "heat": 0.0, "power brake": 0.0}
    times_ns = sorted({sample.time_ns for sample in samples})
    assert times_ns[0] < 0
    assert len(times_ns) == facts.samples >= 4  # two before the start, and every 0.1 s


def test_all_gpus_are_read_where_the_target_s_are_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, Device(0), Device(1, pids=(1,)))
    facts, _ = _sampled(tmp_path / "gpu.bin", 0.0)
    assert (len(facts.gpus), facts.of_target) == (2, False)


def test_what_a_gpu_does_not_support_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("TotalEnergyConsumption", "CurrentClocksThrottleReasons", "ComputeRunningProcesses")
    _use(monkeypatch, Device(0, unsupported=frozenset(f"nvmlDeviceGet{name}" for name in names)))
    _, samples = _sampled(tmp_path / "gpu.bin", 0.0)
    assert {sample.name for sample in samples} == {
        "gpu_power_watts", "gpu_utilization_ratio", "gpu_memory_used_bytes", "gpu_sm_clock_hertz"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("devices", "init_error", "problem"),
    [((), "", "no GPU"), ((Device(0),), "Driver Not Loaded", "Driver Not Loaded")],
    ids=["no GPU", "no driver"],
)
def test_a_machine_without_gpus_is_no_error(
    monkeypatch: pytest.MonkeyPatch, devices: tuple[Device, ...], init_error: str, problem: str
) -> None:
    _use(monkeypatch, *devices, init_error=init_error)
    with pytest.raises(NoGpusError, match=problem):
        Gpus()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoGpusError, match="nvidia-ml-py"):
        Gpus()


@pytest.mark.parametrize("gpu_only", [True, False])
def test_gpus_are_in_the_table_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu_only: bool) -> None:
    _use(monkeypatch, Device(0, pids=(os.getpid(),)))
    with metrics_server(lambda number: (404, b"") if gpu_only else (200, b"nv_requests 5\n")) as server:
        source = MetricsSource(HttpUrl("http", "127.0.0.1", server.port, "/metrics"), 0.05)
        find = lambda: frozenset([os.getpid()])  # noqa: E731
        observation = Observation(RunFolder(tmp_path), (), (source,), lambda note: None, find)
        with observation as begin:
            begin(now_ns())
            time.sleep(0.15)
    tabulate_observations(RunFolder(tmp_path))
    table = RunFolder(tmp_path).read_server()
    assert table is not None
    assert ("nv_requests" in table["name"].to_pylist()) is not gpu_only
    assert "gpu_power_watts" in table["name"].to_pylist()
    assert observation.observed.gpu_telemetry is not None
    assert not RunFolder(tmp_path).gpu_samples.exists()


def test_no_gpu_is_read_without_telemetry_or_where_the_target_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(monkeypatch, Device(0, pids=(os.getpid(),)))
    source = MetricsSource(HttpUrl("http", "127.0.0.1", 9, "/metrics"), 0.05)
    for metrics, find in ((None, lambda: frozenset([os.getpid()])), (source, lambda: None), (source, None)):
        observation = Observation(RunFolder(tmp_path), (), () if metrics is None else (metrics,), lambda note: None, find)
        with observation as begin:
            begin(now_ns())
        assert observation.observed.gpu_telemetry is None


def test_a_damaged_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.journal.frames import framed

    path = tmp_path / "gpu.bin"
    path.write_bytes(framed(b"\x93\x01\x02\x03"))
    with pytest.raises(JournalError, match="samples of power"):
        list(read_power_samples(path))
