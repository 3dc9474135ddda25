"""The workers of a run over several hosts, read from its manifest: their clocks, and whether they came to the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class WorkerHost:
    """Worker ``number`` on ``host``. ``lost`` is the reason why it did not come to the end, None where it did.

    Its clock was ``offset_ms`` ahead of the master's at the start, within ``uncertainty_ms``; since then it drifted by
    ``drift_ppm``, and jumped by ``jump_ms``. All are None where they are unknown, ``jump_ms`` also where it did not.
    """

    number: int
    host: str
    lost: str | None
    offset_ms: float | None
    uncertainty_ms: float | None
    drift_ppm: float | None
    jump_ms: float | None


@dataclass(frozen=True, slots=True)
class Distribution:
    """``turned_away`` are the hosts whose worker took no part, each with the reason. ``dropped`` are senders of messages that
    were dropped, each with the reason, of ``dropped_messages`` in all.
    """

    workers: tuple[WorkerHost, ...]
    turned_away: tuple[tuple[str, str], ...]
    dropped: tuple[tuple[str, str], ...]
    dropped_messages: int


def distribution_of(manifest: dict[str, Any]) -> Distribution | None:
    """The workers of a run; None where they were processes of the measuring host."""
    entry = manifest.get("distribution")
    if not isinstance(entry, dict):
        return None
    return Distribution(
        tuple(map(_worker_host, entry.get("workers") or ())),
        tuple((str(stranger.get("host")), str(stranger.get("reason"))) for stranger in entry.get("turned_away") or ()),
        tuple((str(message.get("from")), str(message.get("reason"))) for message in entry.get("dropped") or ()),
        int(entry.get("dropped_messages") or 0),
    )


def _worker_host(worker: dict[str, Any]) -> WorkerHost:
    clock = worker.get("clock") or {}
    start = clock.get("start") or {}
    return WorkerHost(
        number=int(worker["number"]),
        host=str(worker["host"]),
        lost=worker.get("lost"),
        offset_ms=_ms(start.get("offset_ns")),
        uncertainty_ms=_ms(start.get("uncertainty_ns")),
        drift_ppm=clock.get("drift_ppm"),
        jump_ms=_ms(clock.get("jump_ns")),
    )


def _ms(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / 1e6
