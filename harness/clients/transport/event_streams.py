"""Streams of events and of gRPC's messages that are read outside the interpreter, by ``event_reader.pyx``, where that is
compiled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

try:
    from harness.clients.transport.event_reader import EventReader
except ImportError:  # installed without a C compiler
    is_compiled = False
else:
    is_compiled = hasattr(EventReader, "open_streams")  # else from an older source, until `make setup` compiles it again


class Followed(NamedTuple):
    """The bytes that were read while a stream was followed. Times are ns of ``now_ns``.

    First ``events``, which arrived at ``times_ns``; then ``rest``, which arrived at ``rest_ns``: bytes that do not begin with
    a whole event in a whole chunk. ``is_over``: the stream has ended, or failed where ``errno`` is not 0. All bytes that
    arrived before ``emptied_ns`` are read. ``unstamped_reads`` are reads without an arrival time from the kernel.
    """

    times_ns: Sequence[int]
    events: Sequence[bytes]
    rest: bytes
    rest_ns: int
    is_over: bool
    errno: int
    emptied_ns: int
    unstamped_reads: int


class FollowedMessages(NamedTuple):
    """The bytes that were read while a connection of HTTP/2 was followed; else as ``Followed``.

    In each of ``parts`` first messages, arrival times and gRPC messages by the id of their stream, of one stream in order; then
    other bytes, and before them their arrival time: headers, or what was read after bytes that are neither. The last part may
    have none.
    """

    parts: Sequence[tuple[Mapping[int, tuple[Sequence[int], Sequence[bytes]]], int, bytes]]
    is_over: bool
    errno: int
    emptied_ns: int
    unstamped_reads: int


class Owner(Protocol):
    """The owner of a socket that is followed."""

    def on_given_back(self) -> None:
        """The socket has other bytes than events or messages, or many of them: release it, unless that has been done."""
        ...


class EventStreams:
    """The sockets of the running loop that the thread reads. Raises OSError or MemoryError where no thread can be started."""

    def __init__(self) -> None:
        self._reader = EventReader()
        self._owners: dict[int, Owner] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader.fileno(), self._give_back)

    def follow(self, descriptor: int, emptied_ns: int, owner: Owner) -> None:
        """Let the thread read a socket while it receives events alone; it must stay open until it is released.

        ``emptied_ns``: bytes that are still to be read arrived later. Raises OSError or MemoryError.
        """
        self._reader.follow(descriptor, emptied_ns)
        self._owners[descriptor] = owner

    def follow_messages(self, descriptor: int, emptied_ns: int, next_id: int, owner: Owner) -> None:
        """As ``follow``, while it receives frames of HTTP/2 with whole gRPC messages, on streams below ``next_id``, or headers.

        Raises OSError or MemoryError.
        """
        self._reader.follow_messages(descriptor, emptied_ns, next_id)
        self._owners[descriptor] = owner

    def open_streams(self, descriptor: int, next_id: int) -> None:
        """Allow messages on streams below ``next_id``."""
        self._reader.open_streams(descriptor, next_id)

    def release(self, descriptor: int) -> Followed:
        """Stop following a socket; its owner receives no further calls."""
        del self._owners[descriptor]
        return Followed(*self._reader.release(descriptor))

    def release_messages(self, descriptor: int) -> FollowedMessages:
        """As ``release``, after ``follow_messages``."""
        del self._owners[descriptor]
        return FollowedMessages(*self._reader.release_messages(descriptor))

    def close(self) -> None:
        """Stop the thread."""
        if self._reader.fileno() >= 0:  # else it has been closed
            self._loop.remove_reader(self._reader.fileno())
            self._reader.close()

    def _give_back(self) -> None:
        for descriptor in self._reader.given_back():
            owner = self._owners.get(descriptor)
            if owner is not None:  # else it has been released meanwhile
                self._loop.call_soon(owner.on_given_back)  # each in a call of its own: an error of one must not stop the others
