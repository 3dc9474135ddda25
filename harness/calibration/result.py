"""What a calibration found: the values that are kept for each machine, and copied into each run's manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from harness.calibration.accuracy import Spread
from harness.calibration.ladder import Limit
from harness.host.cpus import available_cores

TRANSPORT_OF_PROTOCOL: Mapping[str, str] = {"grpc": "grpc", "http": "sse", "openai": "sse"}
"""Which transport's calibration a run's ``--protocol`` is measured by: both HTTP protocols are server-sent events."""


QUIET_CORES = 0.2


@dataclass(frozen=True, slots=True)
class Machine:
    """What a calibration is true of: another processor, kernel, Python or version of ours would be another client."""

    cpu: str | None
    cores: float
    kernel: str
    python: str
    bench_version: str
    event_reader: str = "interpreted"


def this_machine(environment: Mapping[str, Any]) -> Machine:
    """The machine that ``harness.run.environment.describe_environment`` describes, with the cores that this process may use."""
    known = {name: environment[name] for name in ("cpu", "kernel", "python", "event_reader")}
    return Machine(**known, cores=available_cores().available, bench_version=version("inflight-bench"))


@dataclass(frozen=True, slots=True)
class WorkersLimits:
    """How much ``workers`` client processes hold: requests/s of one token each, and streamed responses/s of long answers."""

    workers: int
    requests: Limit
    responses: Limit


@dataclass(frozen=True, slots=True)
class TransportCalibration:
    """The client over one transport: what it adds at a quiet rate, how much it holds, and what that costs it.

    The CPU time is of all the client's processes, at the highest rates that one worker held; None where it held none.
    """

    transport: str
    quiet_requests_per_s: float
    quiet_responses_per_s: float
    ttft: Spread
    icl: Spread
    e2e: Spread
    limits: tuple[WorkersLimits, ...]
    cpu_us_per_request: float | None
    cpu_us_per_response: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """One calibration of one machine. ``made_at`` is ISO 8601, UTC; ``quick`` ones tried less and shorter.

    ``busy_cores`` is what others used of the machine just before: above ``QUIET_CORES`` the calibration is of them, too.
    """

    machine: Machine
    made_at: str
    quick: bool
    duration_s: float
    busy_cores: float | None
    transports: tuple[TransportCalibration, ...]

    def transport(self, name: str) -> TransportCalibration | None:
        return next((found for found in self.transports if found.transport == name), None)
