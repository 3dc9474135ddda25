"""``gpu.bin``: readings of the target's GPUs during a run, ten a second, as frames in MessagePack.

The GPUs are those of this machine on which the target's processes compute, or all where that is not known. Readings before the
run's start show the idle power.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench_records.manifest import GpuTelemetry
from bench_records.regular_file import regular
from bench_records.server_table import MetricSample
from harness.errors import JournalError
from harness.host.clock import now_ns
from harness.host.periodic import Periodic
from harness.host.processes import read_processes, tree_of
from harness.journal.frames import framed, read_frame
from harness.observation.nvml import Gpu, Gpus, Reading

PERIOD_S = 0.1  # NVML renews power, energy and utilization at about this rate


class _Sample(msgspec.Struct, frozen=True, array_like=True):
    """When the readings of all GPUs began and ended, and what they were."""

    began_ns: int
    ended_ns: int
    readings: list[Reading]


class GpuSampler:
    """Reads ``gpus`` from its creation on; call ``begin`` with the run's start and ``stop`` at its end.

    ``target_pids`` are the roots of the target's processes. On a full disk the writing ends, not the run.
    """

    def __init__(self, gpus: Gpus, target_pids: Collection[int]) -> None:
        self._gpus = gpus
        used = gpus.used_by(tree_of(read_processes(), target_pids))
        self._of_target = bool(used)
        self._read = used or gpus.all
        self._idle = [_sample(self._read)]
        self._file: Any = None
        self._start_ns = self._samples = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._periodic: Periodic | None = None

    def begin(self, path: Path, start_ns: int) -> None:
        """Write to ``path`` from now on; times count from ``start_ns`` (of ``now_ns``). Raises OSError."""
        self._start_ns = start_ns
        self._file = path.open("wb", buffering=0)
        self._idle.append(_sample(self._read))
        for sample in self._idle:
            self._write(sample)
        self._periodic = Periodic(PERIOD_S, self._take, "gpu-sampler")

    def stop(self) -> GpuTelemetry | None:
        """What was read; None where the run did not start."""
        if self._periodic is not None and self._periodic.stop():
            self._take()
        if self._file is not None:
            self._file.close()
        self._gpus.close()
        if not self._samples:
            return None
        names = [gpu.name for gpu in self._read]
        return GpuTelemetry(gpus=names, of_target=self._of_target, period_s=PERIOD_S, samples=self._samples)

    def _take(self) -> None:
        self._write(_sample(self._read))

    def _write(self, sample: _Sample) -> None:
        since_start = _Sample(sample.began_ns - self._start_ns, sample.ended_ns - self._start_ns, sample.readings)
        data = framed(self._encode(since_start))
        try:
            self._samples += self._file.write(data) == len(data)
        except OSError:
            return


def _sample(gpus: tuple[Gpu, ...]) -> _Sample:
    began_ns = now_ns()
    readings = [reading for gpu in gpus for reading in gpu.read()]
    return _Sample(began_ns, now_ns(), readings)


def read_gpu_samples(path: Path) -> Iterator[MetricSample]:
    """The values of all samples that were written whole. Raises OSError, and JournalError for a frame that is no sample."""
    decode = msgspec.msgpack.Decoder(_Sample).decode
    with regular(path).open("rb") as file:
        while (payload := read_frame(file)) is not None:
            try:
                sample = decode(payload)
            except msgspec.DecodeError as error:
                raise JournalError(f"{path} holds no samples of GPUs of this version: {error}") from error
            middle_ns = (sample.began_ns + sample.ended_ns) // 2
            for name, labels, value in sample.readings:
                yield MetricSample(middle_ns, sample.ended_ns - sample.began_ns, name, labels, value)
