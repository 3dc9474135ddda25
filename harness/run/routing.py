"""The target of each request: decided here when the request is sent, and nowhere else.

The schedule has assigned one to each request (``workloads/schedule/balance.py``). It goes there, or where fewer are in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from harness.clients.protocol import Client, Connection
from workloads.elements.request import Balance, Request


class Payload(NamedTuple):
    """A request as bytes for the target that it is ``assigned`` to or, where any may take it, for each target.

    Bytes that are equal for all targets are kept once.
    """

    assigned: int
    encoded: tuple[bytes, ...]

    def for_target(self, target: int) -> bytes:
        return self.encoded[target if len(self.encoded) > 1 else 0]


class InFlight(Protocol):
    """The requests in flight at each target, of all workers that share this count."""

    def at_targets(self) -> Sequence[int]: ...

    def change(self, target: int, by: int) -> None:
        """Count ``by`` more at a target."""
        ...


class Router:
    """The connections of a worker, one for each target. ``in_flight`` None: each request goes to its assigned target."""

    def __init__(self, connections: Sequence[Connection], in_flight: InFlight | None = None) -> None:
        self._connections = connections
        self._in_flight = in_flight

    def choose(self, payload: Payload) -> int:
        """The target of a request that is sent now: of those with the fewest in flight, the first from its assigned one on.

        ``has_ended`` follows when it has ended.
        """
        if self._in_flight is None:
            return payload.assigned
        counts = self._in_flight.at_targets()
        count = len(counts)
        target = min(((payload.assigned + step) % count for step in range(count)), key=counts.__getitem__)
        self._in_flight.change(target, 1)
        return target

    def has_ended(self, target: int) -> None:
        """A request that ``choose`` sent to ``target`` has ended."""
        if self._in_flight is not None:
            self._in_flight.change(target, -1)

    def connection(self, target: int) -> Connection:
        return self._connections[target]


Encode = Callable[[int, Request, int], Payload]
"""Encodes the request of an index, which is assigned to a target. Raises ValueError, TypeError and OverflowError."""


def encoder(clients: Sequence[Client], balance: Balance) -> Encode:
    """How to encode requests for the targets of ``clients``."""

    def for_assigned(index: int, request: Request, target: int) -> Payload:
        return Payload(target, (clients[target].encode(index, request),))

    def for_each(index: int, request: Request, target: int) -> Payload:
        encoded = tuple(client.encode(index, request) for client in clients)
        return Payload(target, encoded[:1] if all(other == encoded[0] for other in encoded) else encoded)

    return for_each if balance is Balance.LEAST_IN_FLIGHT else for_assigned
