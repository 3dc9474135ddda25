"""Findings about the workers of a run over several hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.distribution import WorkerHost, distribution_of, stopped_workers
from reports.render.counts import counted

_LARGEST_JUMP_MS = 1.0
_LARGEST_UNCERTAINTY_MS = 10.0


def _named(workers: Iterable[WorkerHost]) -> str:
    """Each worker with its host."""
    return ", ".join(f"{worker.number} ({worker.host})" for worker in workers)


@dataclass(frozen=True)
class WorkersLost(Finding):
    """``workers`` are the lost ones, each with its host; whether ``requests`` were sent is unknown."""

    workers: str
    requests: int

    code = "workers_lost"
    severities = (Severity.INVALID,)
    when = (
        "a worker on another host was lost before it had passed on all that it recorded, or its process that sends was killed"
    )
    advices = (
        "From then on the load was lower than requested. Look at that host and its network, then measure again. Its journal "
        "may be in the folder of its 'bench worker'.",
    )
    briefs = ("Workers were lost: look at their hosts, then measure again",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        found = distribution_of(facts.manifest)
        lost = [] if found is None else [worker for worker in found.workers if worker.lost is not None]
        if not lost:
            return None
        unrecorded = int(np.count_nonzero(facts.requests.lost))
        return cls(_named(lost), unrecorded)

    def _sentence(self) -> str:
        return (
            f"Lost: worker {self.workers}. It is unknown whether {counted(self.requests, 'request was', 'requests were')} sent."
        )


@dataclass(frozen=True)
class WorkersStopped(Finding):
    """``workers`` are those that stopped by themselves, each with its host, and ``reason`` that of the first. ``not_sent`` are
    the requests of the schedule that were not sent; in a closed loop the others that users would have sent are not known.
    """

    workers: str
    reason: str
    not_sent: int

    code = "workers_stopped"
    severities = (Severity.INVALID,)
    when = (
        "a worker on another host stopped sending before the end of the run, and not at the master's command: a signal stopped "
        "it on its host, or it heard nothing of the master for 10 s. Not if the master was stopped, too, within 2 s"
    )
    advices = (
        "From then on the load was lower than requested. Let the workers run until the master dismisses them, and measure "
        "again.",
    )
    briefs = ("Workers stopped before the end: the load was lower, measure again",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        stopped = stopped_workers(facts.manifest)
        if not stopped:
            return None
        return cls(_named(stopped), stopped[0].stopped or "", facts.metrics.not_sent)

    def _sentence(self) -> str:
        unsent = "" if not self.not_sent else f" {counted(self.not_sent, 'request was', 'requests were')} not sent."
        return f"Stopped before the end of the run: worker {self.workers}; {self.reason}.{unsent}"


@dataclass(frozen=True)
class WorkerClockJumped(Finding):
    """``jump_ms`` is the least that the clock moved: up to a round trip more cannot be distinguished from the network."""

    worker: int
    host: str
    jump_ms: float

    code = "worker_clock_jumped"
    severities = (Severity.INVALID,)
    when = (
        f"the monotonic clock of a worker's host moved against the master's by over {_LARGEST_JUMP_MS:g} ms, beyond drift and "
        "the time of an exchange of time stamps"
    )
    advices = ("That host was suspended, or its clock is not sound: latencies measured meanwhile are wrong. Use another host.",)
    briefs = ("A worker's clock jumped: use another host",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        found = distribution_of(facts.manifest)
        jumps = [] if found is None else [(worker.jump_ms, worker) for worker in found.workers if worker.jump_ms is not None]
        if not jumps:
            return None
        jump_ms, worker = max(jumps, key=lambda jump: jump[0])
        return cls(worker.number, worker.host, jump_ms) if jump_ms > _LARGEST_JUMP_MS else None

    def _sentence(self) -> str:
        return (
            f"The clock of worker {self.worker} ({self.host}) jumped by at least {self.jump_ms:,.1f} ms against the master's."
        )


@dataclass(frozen=True)
class WorkerClockUncertain(Finding):
    worker: int
    host: str
    uncertainty_ms: float

    code = "worker_clock_uncertain"
    severities = (Severity.NOTE,)
    when = f"the clock of a worker's host is not known to within {_LARGEST_UNCERTAINTY_MS:g} ms"
    advices = (
        "The workers' starts may differ by so much, and with them the merged arrivals; latencies do not depend on it. Use a "
        "network with a shorter round trip between master and workers.",
    )
    briefs = ("Workers' starts are uncertain: put the master nearer to them",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        found = distribution_of(facts.manifest)
        known = [] if found is None else [(w.uncertainty_ms, w) for w in found.workers if w.uncertainty_ms is not None]
        if not known:
            return None
        uncertainty_ms, worker = max(known, key=lambda jump: jump[0])
        return cls(worker.number, worker.host, uncertainty_ms) if uncertainty_ms > _LARGEST_UNCERTAINTY_MS else None

    def _sentence(self) -> str:
        return f"The start of worker {self.worker} ({self.host}) is known to ±{self.uncertainty_ms:,.1f} ms."


@dataclass(frozen=True)
class WorkersTurnedAway(Finding):
    hosts: str
    reason: str

    code = "workers_turned_away"
    severities = (Severity.NOTE,)
    when = "a worker came too late, was one too many, or has another version of bench"
    advices = ("They sent nothing. Start all workers before the run, with the version of the master.",)
    briefs = ("Workers took no part: start all of them before the run",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        found = distribution_of(facts.manifest)
        if found is None or not found.turned_away:
            return None
        return cls(", ".join(host for host, _ in found.turned_away), found.turned_away[0][1])

    def _sentence(self) -> str:
        return f"Workers took no part: {self.hosts} ({self.reason})."


@dataclass(frozen=True)
class MessagesDropped(Finding):
    """``messages`` in all; the most frequent ones came from ``sender``."""

    messages: int
    sender: str
    reason: str

    code = "messages_dropped"
    severities = (Severity.NOTE,)
    when = (
        "the master's port received data that is not a message of one of its workers: garbled, impossible, or without the "
        "run's token"
    )
    advices = (
        "They had no effect. If the sender is a worker, install the same version of bench on both sides and give it the "
        "master's token; if not, look for the program that sends to this port, and close the network.",
    )
    briefs = ("Messages to the master were dropped: see who else sends to its port",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        found = distribution_of(facts.manifest)
        if found is None or not found.dropped_messages:
            return None
        sender, reason = found.dropped[0] if found.dropped else ("?", "?")
        return cls(found.dropped_messages, sender, reason)

    def _sentence(self) -> str:
        return f"The master dropped {counted(self.messages, 'message')}, for example from {self.sender} ({self.reason})."
