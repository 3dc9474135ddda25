"""The schedule: the requests of a run with their send offsets. Drawn once, before the run, from one seed; immutable.

An open loop's schedule holds the due time of each request. A closed loop's holds the start time of each user: the user's first
request is due then, and each later one when its predecessor has ended. A schedule of sessions holds the due times of first
turns, and of each later turn the one whose answer it waits for.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from workloads.arrivals.processes import Arrivals
from workloads.elements.request import CancelPoint, HistorySource, Message, Request, Variant
from workloads.elements.token_ids import int64_bytes

_HISTORY = b"history".ljust(64)
_MIXTURE = b"mixture".ljust(64)


@dataclass(frozen=True, slots=True)
class OpenPart:
    """One worker's part of an open loop: ``indices`` of requests in the order of their offsets, each due at its offset in ns.

    ``max_concurrency`` is its part of the limit on requests in flight; None is no limit.
    """

    indices: tuple[int, ...]
    offsets_ns: tuple[int, ...]
    max_concurrency: int | None


@dataclass(frozen=True, slots=True)
class ClosedPart:
    """One worker's part of a closed loop: its users start at ``user_starts_ns`` and take ``indices`` in order.

    No request is due at ``end_ns`` or later; None is no end.
    """

    indices: tuple[int, ...]
    user_starts_ns: tuple[int, ...]
    end_ns: int | None


@dataclass(frozen=True, slots=True)
class SessionPart:
    """One worker's part of a schedule of sessions: ``indices`` of requests, with what ``SessionSchedule`` holds of each.

    ``parents`` and ``joins`` are positions in this part, which has whole sessions.
    """

    indices: tuple[int, ...]
    offsets_ns: tuple[int | None, ...]
    parents: tuple[int | None, ...]
    think_times_ns: tuple[int, ...]
    history: HistorySource = HistorySource.RECORDED
    joins: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Schedule:
    """Requests, each with its offset in ns from the run's start: an open loop. They are in the order of their arrival, except
    probes, which come after all others, so that the others have the same numbers with and without probes.

    ``max_concurrency`` limits the requests in flight: arrivals above it wait, first in, first out. It is divided among the
    workers.
    """

    requests: tuple[Request, ...]
    offsets_ns: tuple[int, ...]
    seed: int
    max_concurrency: int | None = None

    def __len__(self) -> int:
        return len(self.requests)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the content and send offset of every request: equal digests are equal traffic."""
        digest = hashlib.sha256()
        for request, offset_ns in zip(self.requests, self.offsets_ns, strict=True):
            _add(digest, struct.pack("<q", offset_ns), request)
        if self.max_concurrency is not None:
            digest.update(struct.pack("<16sq", b"max_concurrency", self.max_concurrency))
        return digest.hexdigest()

    def shard(self, index: int, count: int) -> tuple[int, ...]:
        """The request indices of worker ``index`` of ``count``: each belongs to exactly one worker."""
        return tuple(range(index, len(self.requests), count))

    def part(self, index: int, count: int) -> OpenPart:
        """The part of worker ``index`` of ``count``."""
        indices = tuple(sorted(self.shard(index, count), key=self.offsets_ns.__getitem__))
        ceiling = None if self.max_concurrency is None else even_share(self.max_concurrency, index, count)
        return OpenPart(indices, tuple(self.offsets_ns[k] for k in indices), ceiling)


@dataclass(frozen=True)
class ClosedSchedule:
    """Requests in the order in which users take them; user u starts at ``user_starts_ns[u]`` ns: a closed loop.

    A request is due when a user is free to send it. At ``end_ns`` the users stop, whatever is left.
    """

    requests: tuple[Request, ...]
    user_starts_ns: tuple[int, ...]
    seed: int
    end_ns: int | None = None

    def __len__(self) -> int:
        return len(self.requests)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the content of every request, the users' start times and the end."""
        digest = hashlib.sha256(b"closed loop")
        for request in self.requests:
            _add(digest, b"", request)
        users = len(self.user_starts_ns)
        digest.update(struct.pack(f"<q{users}qq", users, *self.user_starts_ns, -1 if self.end_ns is None else self.end_ns))
        return digest.hexdigest()

    def shard(self, index: int, count: int) -> tuple[int, ...]:
        """The request indices of worker ``index`` of ``count``, the same number for each user of every worker."""
        return self.part(index, count).indices

    def part(self, index: int, count: int) -> ClosedPart:
        """The part of worker ``index`` of ``count``."""
        return closed_part(len(self.requests), self.user_starts_ns, self.end_ns, index, count)


@dataclass(frozen=True)
class SessionSchedule:
    """Sessions: a later turn waits for the answer to an earlier one, its parent; first turns are an open loop.

    Shape [n] each: ``parents`` are indices of earlier requests, None for first turns. ``offsets_ns`` are the due times of first
    turns, and the earliest ones of later turns, None where that is their parent's. ``turn_due_ns`` is the rule. With the
    server's ``history`` a request has only the messages between its parent's answer and its prompt. ``joins`` are the indices
    of earlier requests that a later turn waits for besides its parent; empty where no turn does.
    """

    requests: tuple[Request, ...]
    offsets_ns: tuple[int | None, ...]
    parents: tuple[int | None, ...]
    think_times_ns: tuple[int, ...]
    seed: int
    history: HistorySource = HistorySource.RECORDED
    joins: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.requests)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the content of every request with its history, and the values that make its due time."""
        digest = hashlib.sha256(b"sessions" if self.history is HistorySource.RECORDED else b"sessions, the server's history")
        times = zip(self.offsets_ns, self.parents, self.think_times_ns, strict=True)
        for request, (offset_ns, parent, think_time_ns) in zip(self.requests, times, strict=True):
            numbers = (-1 if offset_ns is None else offset_ns, -1 if parent is None else parent, think_time_ns)
            _add(digest, struct.pack("<qqq", *numbers), request)
        if self.joins:
            digest.update(b"joins")
            for joined in self.joins:
                digest.update(struct.pack(f"<q{len(joined)}q", len(joined), *joined))
        return digest.hexdigest()

    def shard(self, index: int, count: int) -> tuple[int, ...]:
        """The request indices of worker ``index`` of ``count``: a session belongs to one worker."""
        return session_shard(self.parents, index, count, self.joins)

    def part(self, index: int, count: int) -> SessionPart:
        """The part of worker ``index`` of ``count``."""
        indices = self.shard(index, count)
        position = {request: place for place, request in enumerate(indices)}
        parents = (self.parents[k] for k in indices)
        joins = tuple(tuple(position[joined] for joined in self.joins[k]) for k in indices) if self.joins else ()
        return SessionPart(
            indices,
            tuple(self.offsets_ns[k] for k in indices),
            tuple(None if parent is None else position[parent] for parent in parents),
            tuple(self.think_times_ns[k] for k in indices),
            self.history,
            joins,
        )


AnySchedule = Schedule | ClosedSchedule | SessionSchedule
AnyPart = OpenPart | ClosedPart | SessionPart


def turn_due_ns(offset_ns: int | None, think_time_ns: int, answered_ns: int) -> int:
    """When a later turn is due that waited for answers of which the last ended at ``answered_ns``: after the think time, not
    before its offset.
    """
    return max(answered_ns + think_time_ns, offset_ns or 0)


def session_numbers(requests: Sequence[Request]) -> list[int]:
    """The number of each request's session, in the order of their first requests; one without a session is its own."""
    known: dict[str, int] = {}
    numbers: list[int] = []
    count = 0
    for request in requests:
        number = count if request.session is None else known.setdefault(request.session, count)
        count += number == count
        numbers.append(number)
    return numbers


def session_shard(
    parents: Sequence[int | None], index: int, count: int, joins: Sequence[Sequence[int]] = ()
) -> tuple[int, ...]:
    """The requests of every ``count``-th session from ``index`` on; sessions are numbered by their first turns.

    Sessions of which a turn of one waits for a turn of another belong to one worker: they are one session here.
    """
    first: list[int] = []
    for number, parent in enumerate(parents):
        first.append(number if parent is None else first[parent])
    merged = _merged(first, joins)
    numbers: dict[int, int] = {}
    return tuple(k for k, root in enumerate(merged) if numbers.setdefault(root, len(numbers)) % count == index)


def _merged(first: Sequence[int], joins: Sequence[Sequence[int]]) -> Sequence[int]:
    """The first turn of each request's session, the earliest one of sessions that wait for each other."""
    into: dict[int, int] = {}

    def root_of(turn: int) -> int:
        while turn in into:
            turn = into[turn]
        return turn

    for number, joined in enumerate(joins):
        for other in joined:
            earlier, later = sorted((root_of(first[number]), root_of(first[other])))
            if earlier != later:
                into[later] = earlier
    return [root_of(turn) for turn in first] if into else first


def closed_part(requests: int, user_starts_ns: tuple[int, ...], end_ns: int | None, index: int, count: int) -> ClosedPart:
    """The part of worker ``index`` of ``count`` in a closed loop of ``requests`` requests."""
    users = len(user_starts_ns)
    indices = tuple(k for k in range(requests) if k % users % count == index)
    return ClosedPart(indices, user_starts_ns[index::count], end_ns)


def even_share(total: int, index: int, count: int) -> int:
    """The share of worker ``index`` of ``count`` in ``total``: equal parts, the remainder to the first workers."""
    return total // count + (index < total % count)


def make_schedule(requests: Sequence[Request], arrivals: Arrivals, seed: int) -> Schedule:
    """An open-loop schedule of all ``requests`` at the times of ``arrivals``."""
    return Schedule(tuple(requests), tuple(arrivals.offsets_ns(len(requests), seed).tolist()), seed)


def _add(digest: hashlib._Hash, time: bytes, request: Request) -> None:
    for field in _fields_of(time, request):
        digest.update(struct.pack("<q", -1 if field is None else len(field)))
        digest.update(field or b"")


def _fields_of(time: bytes, request: Request) -> tuple[bytes | None, ...]:
    """The last ones are absent without a history and a class, and longer than the first of any request, so that they cannot be
    taken for one."""
    ids = request.input_ids
    fields: tuple[bytes | None, ...] = (
        time + struct.pack("<q?", request.output_tokens, request.ignore_eos),
        None if request.prompt is None else _encoded(request.prompt),
        None if ids is None else int64_bytes(ids),
        None if request.session is None else _encoded(request.session),
    )
    if request.history:
        fields += (_HISTORY + b"".join(map(_message, request.history)),)
    if request.traffic_class is not None or request.variant is not None or request.cancel is not None:
        fields += (_MIXTURE + _mixture(request),)
    return fields


def _mixture(request: Request) -> bytes:
    """What a mixture sets in a request; unknown numbers are -1."""
    variant, cancel = request.variant or Variant(), request.cancel or CancelPoint()
    numbers = (variant.lora_task_id, cancel.after_ns, cancel.after_tokens)
    texts = (None if text is None else _encoded(text) for text in (request.traffic_class, variant.model))
    sized = (struct.pack("<q", -1 if text is None else len(text)) + (text or b"") for text in texts)
    return struct.pack("<qqq", *(-1 if number is None else number for number in numbers)) + b"".join(sized)


def _message(message: Message) -> bytes:
    role, content = _encoded(message.role), _encoded(message.content)
    return struct.pack("<qq", len(role), len(content)) + role + content


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
