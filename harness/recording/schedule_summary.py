"""The summary of a schedule that recording needs: due times, requested lengths, fingerprints of the prompts.

Prompts themselves are left out: a million of them would fill gigabytes, and length and fingerprint detect an echo as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from bench_records.record import Outcome
from workloads.elements.request import Request
from workloads.elements.token_ids import int64_bytes
from workloads.schedule.schedule import (
    AnySchedule,
    ClosedPart,
    ClosedSchedule,
    Schedule,
    SessionSchedule,
    closed_part,
    session_shard,
)

_FINGERPRINT_BYTES = 8
_CUT_CHARACTER = "\ufffd"  # what a tokenizer decodes a part of a character to

Decode = Callable[[Sequence[int]], str]

Ns = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
Tokens = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]


class Prompt(msgspec.Struct, array_like=True, frozen=True):
    """A prompt's length (in characters or token ids) and its fingerprint (8 bytes of BLAKE2b)."""

    length: Annotated[int, Meta(ge=0)]
    fingerprint: bytes

    def begins_text(self, text: str) -> bool:
        """Whether ``text`` begins with this prompt."""
        return len(text) >= self.length and _text_fingerprint(text[: self.length]) == self.fingerprint

    def begins_ids(self, ids: Sequence[int]) -> bool:
        """Whether ``ids`` begin with this prompt."""
        return len(ids) >= self.length and _ids_fingerprint(ids[: self.length]) == self.fingerprint


class RequestSummary(msgspec.Struct, array_like=True, frozen=True):
    """The fields of a request on which its record depends. ``text`` and ``ids`` are its prompt, each None where absent.

    ``requested_input_tokens`` is None of a prompt that was not made for a length.
    """

    output_tokens: Tokens
    input_tokens: Tokens | None
    ignore_eos: bool
    session: str | None
    text: Prompt | None
    ids: Prompt | None
    traffic_class: str | None = None
    cancel_after_ns: Ns | None = None
    cancel_after_tokens: Tokens | None = None
    requested_input_tokens: Tokens | None = None


class OpenTimes(msgspec.Struct, frozen=True, tag="open"):
    """The due times of an open loop: request i was due ``offsets_ns[i]`` after the run's start."""

    offsets_ns: tuple[Ns, ...]


class ClosedTimes(msgspec.Struct, frozen=True, tag="closed"):
    """The times of a closed loop: user u began at ``user_starts_ns[u]``; no request was due from ``end_ns`` on, if any."""

    user_starts_ns: tuple[Ns, ...]
    end_ns: Ns | None


class SessionTimes(msgspec.Struct, frozen=True, tag="sessions"):
    """The times of sessions; see SessionSchedule."""

    offsets_ns: tuple[Ns | None, ...]
    parents: tuple[int | None, ...]
    think_times_ns: tuple[Ns, ...]
    joins: tuple[tuple[int, ...], ...] = ()

    def waited_for(self, index: int) -> tuple[int, ...]:
        """The requests whose answers a turn waits for, its parent first; none of a first turn."""
        parent = self.parents[index]
        joins = self.joins[index] if self.joins else ()
        return joins if parent is None else (parent, *joins)

    def of_later_turn(self, index: int) -> tuple[int | None, int | None]:
        """The parent and the own time of a later turn; both None of a first one."""
        parent = self.parents[index]
        return parent, None if parent is None else self.offsets_ns[index]


class ScheduleSummary(msgspec.Struct, frozen=True):
    """The fields of a schedule on which records depend."""

    digest: str
    times: OpenTimes | ClosedTimes | SessionTimes
    requests: tuple[RequestSummary, ...]

    def __post_init__(self) -> None:
        """Raises ValueError where there are more or fewer times than requests, or a turn waits for itself or a later one."""
        match self.times:
            case OpenTimes(offsets_ns):
                counts = {len(offsets_ns)}
            case ClosedTimes(user_starts_ns=starts_ns):
                counts = {len(self.requests)} if starts_ns else set()
            case SessionTimes(offsets_ns=offsets, parents=parents, think_times_ns=think_times):
                counts = {len(offsets), len(parents), len(think_times), len(self.times.joins or parents)}
                joins = self.times.joins
                waits = [*enumerate(parents), *((index, other) for index, joined in enumerate(joins) for other in joined)]
                if not all(other is None or 0 <= other < index for index, other in waits):
                    raise ValueError("a turn waits for itself or a later one")
                if any(joined and parent is None for joined, parent in zip(joins, parents, strict=False)):
                    raise ValueError("a first turn waits for others")
        if counts != {len(self.requests)}:
            raise ValueError("its times are not those of its requests")

    def indices(self, worker: int, workers: int) -> Sequence[int]:
        """The requests of ``worker`` of ``workers``, in the order of sending."""
        match self.times:
            case OpenTimes():
                return range(worker, len(self.requests), workers)
            case ClosedTimes():
                return self.part_of_users(self.times, worker, workers).indices
            case SessionTimes(parents=parents, joins=joins):
                return session_shard(parents, worker, workers, joins)

    def part_of_users(self, times: ClosedTimes, worker: int, workers: int) -> ClosedPart:
        """The part of a closed loop that ``worker`` of ``workers`` sends."""
        return closed_part(len(self.requests), times.user_starts_ns, times.end_ns, worker, workers)


def summarise_schedule(schedule: AnySchedule, decode: Decode | None = None) -> ScheduleSummary:
    """The summary of ``schedule``. ``decode`` returns the text of token ids, for prompts that are ids and whose answers are
    text, so that an echo is found in such answers, too.
    """
    times: OpenTimes | ClosedTimes | SessionTimes
    match schedule:
        case Schedule():
            times = OpenTimes(schedule.offsets_ns)
        case ClosedSchedule():
            times = ClosedTimes(schedule.user_starts_ns, schedule.end_ns)
        case SessionSchedule():
            times = SessionTimes(schedule.offsets_ns, schedule.parents, schedule.think_times_ns, schedule.joins)
    return ScheduleSummary(schedule.digest, times, tuple(_summarise_request(request, decode) for request in schedule.requests))


def _summarise_request(request: Request, decode: Decode | None) -> RequestSummary:
    prompt, ids, cancel = request.prompt, request.input_ids, request.cancel
    if prompt is None and ids is not None and decode is not None:
        prompt = decode(ids).rstrip(_CUT_CHARACTER)  # the answer may complete a character that the last ids begin
    return RequestSummary(
        output_tokens=request.output_tokens,
        input_tokens=request.input_tokens,
        ignore_eos=request.ignore_eos,
        session=request.session,
        text=Prompt(len(prompt), _text_fingerprint(prompt)) if prompt else None,
        ids=Prompt(len(ids), _ids_fingerprint(ids)) if ids else None,
        traffic_class=request.traffic_class,
        cancel_after_ns=None if cancel is None else cancel.after_ns,
        cancel_after_tokens=None if cancel is None else cancel.after_tokens,
        requested_input_tokens=request.requested_input_tokens,
    )


def _text_fingerprint(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=_FINGERPRINT_BYTES).digest()


def _ids_fingerprint(ids: Sequence[int]) -> bytes:
    return hashlib.blake2b(int64_bytes(ids), digest_size=_FINGERPRINT_BYTES).digest()


_RETRY_DELAY_NS = 100_000_000


def user_free_ns(done_ns: int, outcome: Outcome | None) -> int:
    """When a user is free whose request ended at ``done_ns`` with ``outcome`` (None: success): usually at once.

    After a failed connection it is free 0.1 s later. Without the delay, users would send all prepared requests within
    seconds to a server that is restarting, and use up the CPU that it needs.
    """
    return done_ns + _RETRY_DELAY_NS if outcome is Outcome.CONNECT else done_ns
