"""The workers of a run over several hosts, read from its manifest: their clocks, and whether they came to the end."""

from __future__ import annotations

from dataclasses import dataclass

from bench_records.manifest import DistributedWorker, Manifest, WorkerClock


@dataclass(frozen=True, slots=True)
class WorkerHost:
    """Worker ``number`` on ``host``. ``lost`` is the reason why it did not come to the end, None where it did; ``stopped`` is
    why it stopped sending before the end of the run by itself, None where it did not.

    Its clock was ``offset_ms`` ahead of the master's at the start, within ``uncertainty_ms``; since then it drifted by
    ``drift_ppm``, and jumped by ``jump_ms`` or more. All are None where they are unknown, ``jump_ms`` also where it did not.
    """

    number: int
    host: str
    lost: str | None
    stopped: str | None
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


def distribution_of(manifest: Manifest) -> Distribution | None:
    """The workers of a run; None where they were processes of the measuring host."""
    entry = manifest.distribution
    if entry is None:
        return None
    return Distribution(
        tuple(map(_worker_host, entry.workers or ())),
        tuple((str(worker.host), str(worker.reason)) for worker in entry.turned_away or ()),
        tuple((str(messages.sender), str(messages.reason)) for messages in entry.dropped or ()),
        entry.dropped_messages or 0,
    )


def stopped_workers(manifest: Manifest) -> tuple[WorkerHost, ...]:
    """The workers that stopped sending before the end of the run by themselves."""
    found = distribution_of(manifest)
    return () if found is None else tuple(worker for worker in found.workers if worker.stopped is not None)


def workers_elsewhere(manifest: Manifest) -> bool:
    """Whether some worker is no process of the measuring machine, which started ``--locust_processes`` of them itself."""
    entry = manifest.distribution
    return entry is not None and manifest.options.get("locust_processes") != len(entry.workers or ())


def _worker_host(worker: DistributedWorker) -> WorkerHost:
    clock = worker.clock or WorkerClock()
    start = clock.start
    return WorkerHost(
        number=worker.number,
        host=worker.host,
        lost=worker.lost,
        stopped=worker.stopped,
        offset_ms=_ms(None if start is None else start.offset_ns),
        uncertainty_ms=_ms(None if start is None else start.uncertainty_ns),
        drift_ppm=clock.drift_ppm,
        jump_ms=_ms(clock.jump_ns),
    )


def _ms(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / 1e6
