"""What load was asked for, as the manifest says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AskedLoad:
    """An open loop (requests come by the clock), or with ``closed`` a closed one (users who wait for their answers).

    ``max_concurrency`` is a ceiling on requests in flight; None is none, as None is no end by the clock. ``prepared`` is
    how many requests there were to send, ``ran_out`` whether they were too few for the duration; None is unknown.
    """

    closed: bool = False
    max_concurrency: int | None = None
    concurrency: int | None = None
    duration_s: float | None = None
    ramp_up_s: float = 0.0
    prepared: int | None = None
    ran_out: bool | None = None


def load_of(manifest: dict[str, Any]) -> AskedLoad:
    """The load of a run; one of before there were modes is an open loop."""
    load = manifest.get("load")
    if not isinstance(load, dict):
        return AskedLoad()
    return AskedLoad(
        closed=load.get("mode") == "closed",
        max_concurrency=load.get("max_concurrency"),
        concurrency=load.get("concurrency"),
        duration_s=load.get("duration_s"),
        ramp_up_s=float(load.get("ramp_up_s") or 0.0),
        prepared=load.get("prepared"),
        ran_out=load.get("ran_out"),
    )
