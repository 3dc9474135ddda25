"""The schedule: which request is sent when. Drawn once, before the run, from one seed; never changed after.

An open loop's schedule says when each request is due. A closed loop's says when each user comes: a user's first request
is due then, and each later one when the one before it has ended.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from workloads.arrivals import Arrivals
from workloads.request import Request


@dataclass(frozen=True, slots=True)
class OpenPart:
    """What one worker sends of an open loop: ``indices`` of requests, sorted, each due at its offset in ns.

    ``max_concurrency`` is its part of the ceiling on requests in flight; None is no ceiling.
    """

    indices: tuple[int, ...]
    offsets_ns: tuple[int, ...]
    max_concurrency: int | None


@dataclass(frozen=True, slots=True)
class ClosedPart:
    """What one worker sends of a closed loop: its users come at ``user_starts_ns`` and take ``indices`` in their order.

    Nothing is due at ``end_ns`` or after; None is no such end.
    """

    indices: tuple[int, ...]
    user_starts_ns: tuple[int, ...]
    end_ns: int | None


@dataclass(frozen=True)
class Schedule:
    """Requests in the order of their arrival, each with its offset in ns from the run's start: an open loop.

    ``max_concurrency`` is a ceiling on requests in flight: arrivals beyond it wait, first come first served. It is dealt
    out among the workers.
    """

    requests: tuple[Request, ...]
    offsets_ns: tuple[int, ...]
    seed: int
    max_concurrency: int | None = None

    def __len__(self) -> int:
        return len(self.requests)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything that is sent and when: equal digests are equal runs."""
        digest = hashlib.sha256()
        for request, offset_ns in zip(self.requests, self.offsets_ns, strict=True):
            _add(digest, struct.pack("<q", offset_ns), request)
        if self.max_concurrency is not None:
            digest.update(struct.pack("<16sq", b"max_concurrency", self.max_concurrency))
        return digest.hexdigest()

    def shard(self, index: int, count: int) -> tuple[int, ...]:
        """The request indices that worker ``index`` of ``count`` sends: dealt out in turn, each to exactly one worker."""
        return tuple(range(index, len(self.requests), count))

    def part(self, index: int, count: int) -> OpenPart:
        """What worker ``index`` of ``count`` sends."""
        indices = self.shard(index, count)
        ceiling = None if self.max_concurrency is None else dealt_out(self.max_concurrency, index, count)
        return OpenPart(indices, tuple(self.offsets_ns[k] for k in indices), ceiling)


@dataclass(frozen=True)
class ClosedSchedule:
    """Requests in the order in which users take them; user u comes at ``user_starts_ns[u]`` ns: a closed loop.

    A request has no time of its own: it is due when a user is free to send it. At ``end_ns`` users stop, whatever is left.
    """

    requests: tuple[Request, ...]
    user_starts_ns: tuple[int, ...]
    seed: int
    end_ns: int | None = None

    def __len__(self) -> int:
        return len(self.requests)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything that decides what is sent and when."""
        digest = hashlib.sha256(b"closed loop")
        for request in self.requests:
            _add(digest, b"", request)
        users = len(self.user_starts_ns)
        digest.update(struct.pack(f"<q{users}qq", users, *self.user_starts_ns, -1 if self.end_ns is None else self.end_ns))
        return digest.hexdigest()

    def shard(self, index: int, count: int) -> tuple[int, ...]:
        """The request indices that worker ``index`` of ``count`` sends, as many for each user of any worker."""
        return self.part(index, count).indices

    def part(self, index: int, count: int) -> ClosedPart:
        """What worker ``index`` of ``count`` sends."""
        return closed_part(len(self.requests), self.user_starts_ns, self.end_ns, index, count)


AnySchedule = Schedule | ClosedSchedule


def closed_part(requests: int, user_starts_ns: tuple[int, ...], end_ns: int | None, index: int, count: int) -> ClosedPart:
    """What worker ``index`` of ``count`` sends of a closed loop of so many requests."""
    users = len(user_starts_ns)
    indices = tuple(k for k in range(requests) if k % users % count == index)
    return ClosedPart(indices, user_starts_ns[index::count], end_ns)


def dealt_out(total: int, index: int, count: int) -> int:
    """The share that ``index`` of ``count`` gets of ``total`` things: as even as can be, the first get the rest."""
    return total // count + (index < total % count)


def make_schedule(requests: Sequence[Request], arrivals: Arrivals, seed: int) -> Schedule:
    """Give each request its arrival time."""
    return Schedule(tuple(requests), tuple(arrivals.offsets_ns(len(requests), seed).tolist()), seed)


def _add(digest: hashlib._Hash, time: bytes, request: Request) -> None:
    for field in _fields_of(time, request):
        digest.update(struct.pack("<q", -1 if field is None else len(field)))
        digest.update(field or b"")


def _fields_of(time: bytes, request: Request) -> tuple[bytes | None, ...]:
    ids = request.input_ids
    return (
        time + struct.pack("<q?", request.output_tokens, request.ignore_eos),
        None if request.prompt is None else request.prompt.encode("utf-8", "surrogatepass"),
        None if ids is None else struct.pack(f"<{len(ids)}q", *ids),
        None if request.session is None else request.session.encode("utf-8", "surrogatepass"),
    )
