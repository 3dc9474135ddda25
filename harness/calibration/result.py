"""The result of a calibration, which is stored for each machine and copied into each run's manifest."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from bench_records.manifest import Environment
from harness.calibration.accuracy import Spread
from harness.calibration.ladder import Limit
from harness.host.cpus import available_cores

QUIET_CORES = 0.2


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and software for which a calibration is valid."""

    cpu: str | None
    cores: float
    kernel: str
    python: str
    bench_version: str
    event_reader: str = "interpreted"


def this_machine(environment: Environment) -> Machine:
    """The machine that ``harness.run.environment.describe_environment`` describes, with the cores that this process may use."""
    return Machine(
        cpu=environment.cpu,
        kernel=environment.kernel,
        python=environment.python,
        event_reader=environment.event_reader,
        cores=available_cores().available,
        bench_version=version("inflight-bench"),
    )


@dataclass(frozen=True, slots=True)
class WorkersLimits:
    """The limits of ``workers`` client processes: requests/s of one token each, and streamed responses/s of long answers."""

    workers: int
    requests: Limit
    responses: Limit


@dataclass(frozen=True, slots=True)
class TransportCalibration:
    """The client over one transport: its errors at a quiet rate, its limits, and its CPU time.

    The CPU time is that of all the client's processes, at the highest rates that one worker held; None where it held none.
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
    """One calibration of one machine. ``made_at`` is ISO 8601, UTC; ``quick`` ones have fewer and shorter trials.

    ``busy_cores`` is the other processes' use of the machine just before: above ``QUIET_CORES`` it affects the calibration.
    """

    machine: Machine
    made_at: str
    quick: bool
    duration_s: float
    busy_cores: float | None
    transports: tuple[TransportCalibration, ...]

    def transport(self, name: str) -> TransportCalibration | None:
        return next((transport for transport in self.transports if transport.transport == name), None)
