"""The workload of a measurement: requests, and their description for the manifest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.cli.measurement.target import Target
from workloads.load import Load
from workloads.request import Request


@dataclass(frozen=True)
class Workload:
    """Requests, and what the manifest says of where they come from."""

    requests: tuple[Request, ...]
    description: str
    parameters: dict[str, Any]
    dropped_too_long: int


MakeWorkload = Callable[[Target, Load], Workload]
