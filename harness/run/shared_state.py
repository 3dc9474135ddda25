"""Memory shared by a run's parent and its workers: the parent's command, requests sent, answered and in flight, use of
connections."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from multiprocessing.context import SpawnContext
from typing import Any

from harness.clients.protocol import ConnectionUsage

NEVER_NS = (1 << 63) - 1
"""The end of a run that no rule has ended."""

_USAGE_CELLS = 7  # a worker: whether the others are set, then the fields of ConnectionUsage


class Command(IntEnum):
    """The parent's command to its workers. It only ever grows."""

    RUN = 0
    DRAIN = 1  # send nothing more, wait for what is in flight
    ABORT = 2  # cancel what is in flight


class WorkerControl:
    """One worker's share of a Control: reads the command, writes the worker's own cells."""

    def __init__(
        self, number: int, command: Any, end_ns: Any, sent: Any, answered: Any, usage: Any, in_flight: SharedInFlight
    ) -> None:
        self._number = number
        self.in_flight = in_flight
        self._command = command
        self._end_ns = end_ns
        self._sent = sent
        self._answered = answered
        self._usage = usage

    @property
    def command(self) -> Command:
        return Command(self._command.value)

    @property
    def end_ns(self) -> int:
        """The time of the run from which on nothing is due, or NEVER_NS."""
        return int(self._end_ns.value)

    @property
    def sent(self) -> int:
        return int(self._sent[self._number])

    def count_sent(self) -> None:
        self._sent[self._number] += 1

    def count_answered(self) -> None:
        """Count a request whose first response has come."""
        self._answered[self._number] += 1

    def set_usage(self, usage: ConnectionUsage) -> None:
        """Publish the use of the worker's connections, once, when the last exchange has ended."""
        longest_ns = -1 if usage.longest_wait_ns is None else usage.longest_wait_ns
        cells = (usage.per_worker, usage.opened, usage.limit_reached, usage.total_wait_ns, longest_ns, usage.unstamped_reads)
        start = self._number * _USAGE_CELLS
        self._usage[start + 1 : start + _USAGE_CELLS] = cells
        self._usage[start] = 1


class SharedInFlight:
    """The requests in flight at each of ``targets``, of all workers: a row of cells for each worker, which alone writes it."""

    def __init__(self, cells: Any, worker: int, targets: int) -> None:
        self._cells = cells
        self._start = worker * targets
        self._targets = targets

    def at_targets(self) -> Sequence[int]:
        """Shape [targets], summed over the workers."""
        return [sum(self._cells[target :: self._targets]) for target in range(self._targets)]

    def change(self, target: int, by: int) -> None:
        """Count ``by`` more of this worker's requests at a target."""
        self._cells[self._start + target] += by


class Control:
    """One writer for each cell: the parent writes the command, each worker its own cells. Reads may lag, never tear."""

    def __init__(self, context: SpawnContext, workers: int, targets: int = 1) -> None:
        self._targets = targets
        self._command: Any = context.RawValue("i", Command.RUN)
        self._end_ns: Any = context.RawValue("q", NEVER_NS)
        self._sent: Any = context.RawArray("q", workers)
        self._answered: Any = context.RawArray("q", workers)
        self._usage: Any = context.RawArray("q", workers * _USAGE_CELLS)
        self._in_flight: Any = context.RawArray("q", workers * targets)

    def of_worker(self, number: int) -> WorkerControl:
        in_flight = SharedInFlight(self._in_flight, number, self._targets)
        return WorkerControl(number, self._command, self._end_ns, self._sent, self._answered, self._usage, in_flight)

    @property
    def command(self) -> Command:
        return Command(self._command.value)

    def advance(self, command: Command) -> None:
        """Set the command, unless a later one is set."""
        self._command.value = max(command, self._command.value)

    def end_at(self, end_ns: int) -> None:
        """Set the time of the run from which on nothing is due."""
        self._end_ns.value = end_ns

    @property
    def sent(self) -> int:
        """Requests sent by all workers."""
        return sum(self._sent)

    @property
    def answered(self) -> int:
        """Requests whose first response has come, of all workers."""
        return sum(self._answered)

    def sent_by(self, worker: int) -> int:
        return int(self._sent[worker])

    def usage_of(self, worker: int) -> ConnectionUsage | None:
        """The use of a worker's connections; None where the worker ended without publishing it."""
        start = worker * _USAGE_CELLS
        is_set, per_worker, opened, limit_reached, total_wait_ns, longest_ns, unstamped = self._usage[
            start : start + _USAGE_CELLS
        ]
        if not is_set:
            return None
        longest_wait_ns = None if longest_ns < 0 else longest_ns
        return ConnectionUsage(per_worker, opened, limit_reached, total_wait_ns, longest_wait_ns, unstamped)
