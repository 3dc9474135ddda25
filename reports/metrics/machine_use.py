"""Use of the machine that client and target share, from the manifest."""

from __future__ import annotations

from dataclasses import dataclass

from bench_records.manifest import Manifest

_LEAST_SECONDS = 1.0  # the kernel counts in ticks of 10 ms
_COUNTED = 0.8  # of what client and target used must be in the sum over all processes, which is counted apart


@dataclass(frozen=True, slots=True)
class MachineUse:
    """CPU time of a run in cores, of ``cores``; ``others_cores`` used neither the client nor the target."""

    cores: int
    client_cores: float
    target_cores: float
    others_cores: float

    @property
    def others_share(self) -> float:
        """The others' share of the whole machine."""
        return self.others_cores / self.cores


def machine_use(manifest: Manifest) -> MachineUse | None:
    """None where it was not measured: the target was on another machine or its processes unknown, or the run was too short."""
    use = manifest.machine_use
    if use is None or use.seconds < _LEAST_SECONDS:
        return None
    known = use.client_cores + use.target_cores
    if use.busy_cores < _COUNTED * known:  # a system that does not count, as in some sandboxes
        return None
    others = max(0.0, use.busy_cores - known)
    return MachineUse(use.cores, use.client_cores, use.target_cores, others)
