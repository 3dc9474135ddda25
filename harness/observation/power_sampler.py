"""``gpu.bin``: readings of the target's GPUs and this host's CPU and DRAM during a run, ten a second, as frames in MessagePack.

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
from harness.journal.frames import append_whole, framed, read_frame
from harness.observation.nvml import Gpus, Reading
from harness.observation.rapl import Rapl

PERIOD_S = 0.1  # NVML renews power, energy and utilization at about this rate


class _Sample(msgspec.Struct, frozen=True, array_like=True):
    """When the readings began and ended, and what they were."""

    began_ns: int
    ended_ns: int
    readings: list[Reading]


class PowerSampler:
    """Reads ``gpus`` and ``rapl`` from its creation on; call ``begin`` with the run's start and ``stop`` at its end.

    ``target_pids`` are the roots of the target's processes. On a full disk the writing ends, not the run.
    """

    def __init__(self, gpus: Gpus | None, rapl: Rapl | None, target_pids: Collection[int]) -> None:
        self._gpus = gpus
        self._rapl = rapl
        used = () if gpus is None else gpus.used_by(tree_of(read_processes(), target_pids))
        self._of_target = bool(used)
        self._read = used or (() if gpus is None else gpus.all)
        self._idle = [self._sample()]
        self._file: Any = None
        self._start_ns = self._samples = self._whole_bytes = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._periodic: Periodic | None = None

    def begin(self, path: Path, start_ns: int) -> None:
        """Write to ``path`` from now on; times count from ``start_ns`` (of ``now_ns``). Raises OSError."""
        self._start_ns = start_ns
        self._file = path.open("wb", buffering=0)
        self._idle.append(self._sample())
        for sample in self._idle:
            self._write(sample)
        self._periodic = Periodic(PERIOD_S, self._take, "power-sampler")

    def stop(self) -> GpuTelemetry | None:
        """The GPUs that were read; None for none, and where the run did not start."""
        if self._periodic is not None and self._periodic.stop():
            self._take()
        if self._file is not None:
            self._file.close()
        if self._gpus is None:
            return None
        self._gpus.close()
        if not self._samples:
            return None
        names = [gpu.name for gpu in self._read]
        return GpuTelemetry(gpus=names, of_target=self._of_target, period_s=PERIOD_S, samples=self._samples)

    def _take(self) -> None:
        self._write(self._sample())

    def _sample(self) -> _Sample:
        began_ns = now_ns()
        readings = [] if self._rapl is None else self._rapl.read(began_ns)
        readings += [reading for gpu in self._read for reading in gpu.read()]
        return _Sample(began_ns, now_ns(), readings)

    def _write(self, sample: _Sample) -> None:
        since_start = _Sample(sample.began_ns - self._start_ns, sample.ended_ns - self._start_ns, sample.readings)
        try:
            self._whole_bytes = append_whole(self._file, framed(self._encode(since_start)), self._whole_bytes)
        except OSError:
            return
        self._samples += 1


def read_power_samples(path: Path) -> Iterator[MetricSample]:
    """The values of all samples that were written whole. Raises OSError, and JournalError for a frame that is no sample."""
    decode = msgspec.msgpack.Decoder(_Sample).decode
    with regular(path).open("rb") as file:
        while (payload := read_frame(file)) is not None:
            try:
                sample = decode(payload)
            except msgspec.DecodeError as error:
                raise JournalError(f"{path} holds no samples of power of this version: {error}") from error
            middle_ns = (sample.began_ns + sample.ended_ns) // 2
            for name, labels, value in sample.readings:
                yield MetricSample(middle_ns, sample.ended_ns - sample.began_ns, name, labels, value)
