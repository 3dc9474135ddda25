"""Streams of events whose pieces are read outside the interpreter, by ``event_reader.pyx``, where that could be compiled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

try:
    from harness.clients.transport.event_reader import EventReader
except ImportError:  # installed where there is no C compiler
    is_compiled = False
else:
    is_compiled = True


class Followed(NamedTuple):
    """What was read of a stream while it was followed. Times are ns of ``now_ns``.

    First came events, ``times_ns`` says when each; then ``rest``, at ``rest_ns``: bytes that do not begin with a whole event
    in a whole chunk. ``is_over``: its end is known to have come, or an error, whose ``errno`` is not 0. Nothing that had
    arrived before ``emptied_ns`` is left to be read. ``unstamped_reads`` are those of which the kernel did not tell the time.
    """

    times_ns: Sequence[int]
    events: Sequence[bytes]
    rest: bytes
    rest_ns: int
    is_over: bool
    errno: int
    emptied_ns: int
    unstamped_reads: int


class Owner(Protocol):
    """Whose stream is followed."""

    def on_given_back(self) -> None:
        """Something else than events has come, or many events have: release it, if that has not been done."""
        ...


class EventStreams:
    """The streams of the running loop that are read elsewhere. Raises OSError or MemoryError where no thread can be had."""

    def __init__(self) -> None:
        self._reader = EventReader()
        self._owners: dict[int, Owner] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader.fileno(), self._give_back)

    def follow(self, descriptor: int, emptied_ns: int, owner: Owner) -> None:
        """Let a socket be read elsewhere while nothing but events comes; it must stay open until it is released.

        ``emptied_ns``: what comes is known to have arrived later. Raises OSError or MemoryError.
        """
        self._reader.follow(descriptor, emptied_ns)
        self._owners[descriptor] = owner

    def release(self, descriptor: int) -> Followed:
        """Have it read no more. Whoever owns it is not told of it any more."""
        del self._owners[descriptor]
        return Followed(*self._reader.release(descriptor))

    def close(self) -> None:
        """Read nothing more."""
        if self._reader.fileno() >= 0:  # else it has been closed
            self._loop.remove_reader(self._reader.fileno())
            self._reader.close()

    def _give_back(self) -> None:
        for descriptor in self._reader.given_back():
            owner = self._owners.get(descriptor)
            if owner is not None:  # else it has been released meanwhile
                self._loop.call_soon(owner.on_given_back)  # each by itself: a fault of one must not keep the others waiting
