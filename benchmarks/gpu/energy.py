"""A GPU's energy over one window by three witnesses: our readings of NVML's counter, AIPerf's, nvidia-smi's instant power."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from pathlib import Path

import numpy as np

from bench_records.run_folder import RunFolder
from reports.run_report import read_run
from reports.statistics.arrays import FloatArray

NVIDIA_SMI = ("--query-gpu=timestamp,power.draw.instant", "--format=csv,noheader,nounits", "--loop-ms=100")
_LEAST_S = 60.0
Readings = tuple[FloatArray, FloatArray]  # seconds since the epoch, ascending; joules since the first, or watts


def compare(folder: Path, smi: Path, aiperf: Path) -> dict[str, object]:
    """Joules a token of the run in ``folder`` by each witness, over what all of them saw of the steady window.

    A witness that saw less than 60 s of it is left out.

    ``smi`` is what nvidia-smi printed with ``NVIDIA_SMI``, of one GPU; ``aiperf`` the folder of AIPerf's artifacts, which may
    be missing. The tokens are those that arrived in the window.
    """
    report = read_run(RunFolder(folder))
    window, telemetry, started_at = report.gpus, report.telemetry, report.manifest.started_at
    assert window is not None
    assert telemetry is not None
    assert started_at is not None
    started_s = datetime.fromisoformat(started_at).timestamp()
    (counter,) = telemetry.select("gpu_energy_joules_total")
    witnesses = {
        "bench": (counter.times_ns / 1e9 + started_s, counter.values),
        "power.draw.instant": _integral(_smi(smi)),
        **({"aiperf": readings} if (readings := _aiperf(aiperf, counter.labels["uuid"])) is not None else {}),
    }
    begin_s, end_s = window.start_s + started_s, window.end_s + started_s
    witnesses = {
        name: given for name, given in witnesses.items() if min(given[0][-1], end_s) - max(given[0][0], begin_s) >= _LEAST_S
    }
    start_s = max(begin_s, *(times[0] for times, _ in witnesses.values()))
    end_s = min(end_s, *(times[-1] for times, _ in witnesses.values()))
    tokens = 0
    for row in RunFolder(folder).read_requests(("token_times_ns", "token_counts")).to_pylist():
        times_s = np.array(row["token_times_ns"] or [], float) / 1e9 + started_s
        inside = (times_s >= start_s) & (times_s < end_s)
        tokens += int(np.array(row["token_counts"] or [], int)[inside].sum())
    joules = {name: float(np.diff(np.interp((start_s, end_s), *readings))[0]) for name, readings in witnesses.items()}
    return {
        "seconds": end_s - start_s,
        "output_tokens": tokens,
        "joules": joules,
        "joules_per_token": {name: value / tokens if tokens else None for name, value in joules.items()},
    }


def _smi(path: Path) -> Readings:
    times, watts = [], []
    for row in csv.reader(path.read_text(encoding="utf-8").splitlines()):
        if len(row) == 2 and row[1].strip().replace(".", "").isdigit():
            times.append(datetime.strptime(row[0].strip(), "%Y/%m/%d %H:%M:%S.%f").timestamp())
            watts.append(float(row[1]))
    return np.array(times), np.array(watts)


def _integral(readings: Readings) -> Readings:
    times, watts = readings
    return times, np.concatenate(([0.0], np.cumsum(np.diff(times) * (watts[1:] + watts[:-1]) / 2)))


def _aiperf(folder: Path, uuid: str) -> Readings | None:
    """The energy counter of GPU ``uuid`` as AIPerf read it; None without readings."""
    readings = []
    for path in sorted(folder.rglob("*gpu_telemetry*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            reading = json.loads(line)
            energy = reading.get("telemetry_data", {}).get("nvidia_energy_consumption")
            if energy is not None and reading["gpu_uuid"] == uuid:
                readings.append((reading["timestamp_ns"] / 1e9, energy * 1e6))
    if not readings:
        return None
    times, joules = zip(*sorted(readings), strict=True)
    return np.array(times), np.array(joules)
