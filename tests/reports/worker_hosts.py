"""The manifest's entry of a run over several hosts, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def worker_host(
    number: int,
    lost: str | None = None,
    jump_ms: float | None = None,
    uncertainty_ms: float = 0.2,
    offset_ms: float = 3.0,
    stopped: str | None = None,
) -> dict[str, Any]:
    start = {"offset_ns": round(offset_ms * 1e6), "uncertainty_ns": round(uncertainty_ms * 1e6), "at_ns": 0}
    jump_ns = None if jump_ms is None else round(jump_ms * 1e6)
    clock = {"start": start, "end": start, "drift_ppm": 1.5, "drift_uncertainty_ppm": 2.0, "jump_ns": jump_ns, "exchanges": 60}
    return {"number": number, "host": f"host-{number}", "cores": 4.0, "lost": lost, "stopped": stopped, "clock": clock}


def worker_hosts(
    *workers: dict[str, Any], turned_away: Sequence[Mapping[str, str]] = (), dropped: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    entry = {"workers": list(workers), "turned_away": list(turned_away)}
    count = sum(message["count"] for message in dropped)
    return {"distribution": {**entry, "dropped_messages": count, "dropped": list(dropped)} if dropped else entry}
