"""What recording needs to know of a schedule: when each request was due, what was asked for, how its prompt begins an echo.

Prompts themselves stay out: a million of them would fill gigabytes, and a length and a fingerprint tell an echo as well.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import msgspec

from harness.records.record import Outcome
from workloads.request import Request
from workloads.schedule import AnySchedule, ClosedPart, ClosedSchedule, Schedule, closed_part

_FINGERPRINT_BYTES = 8


class Prompt(msgspec.Struct, array_like=True, frozen=True):
    """A prompt's length (in characters or token ids) and its fingerprint (8 bytes of BLAKE2b)."""

    length: int
    fingerprint: bytes

    def begins_text(self, text: str) -> bool:
        """Whether ``text`` begins with this prompt."""
        return len(text) >= self.length and _text_fingerprint(text[: self.length]) == self.fingerprint

    def begins_ids(self, ids: Sequence[int]) -> bool:
        """Whether ``ids`` begin with this prompt."""
        return len(ids) >= self.length and _ids_fingerprint(ids[: self.length]) == self.fingerprint


class Asked(msgspec.Struct, array_like=True, frozen=True):
    """One request, as far as its record depends on it. ``text`` and ``ids`` are its prompt, each where it has one."""

    output_tokens: int
    input_tokens: int | None
    ignore_eos: bool
    session: str | None
    text: Prompt | None
    ids: Prompt | None


class OpenTimes(msgspec.Struct, frozen=True, tag="open"):
    """Request i was due ``offsets_ns[i]`` after the run's start."""

    offsets_ns: tuple[int, ...]


class ClosedTimes(msgspec.Struct, frozen=True, tag="closed"):
    """User u came at ``user_starts_ns[u]``; nothing was due at ``end_ns`` or after, None is no such end."""

    user_starts_ns: tuple[int, ...]
    end_ns: int | None


class AskedSchedule(msgspec.Struct, frozen=True):
    """The schedule, as far as records depend on it."""

    digest: str
    times: OpenTimes | ClosedTimes
    requests: tuple[Asked, ...]

    def indices(self, worker: int, workers: int) -> Sequence[int]:
        """The requests that ``worker`` of ``workers`` sends, in the order in which it sends them."""
        match self.times:
            case OpenTimes():
                return range(worker, len(self.requests), workers)
            case ClosedTimes():
                return self.part_of_users(self.times, worker, workers).indices

    def part_of_users(self, times: ClosedTimes, worker: int, workers: int) -> ClosedPart:
        """What ``worker`` of ``workers`` sends of a closed loop."""
        return closed_part(len(self.requests), times.user_starts_ns, times.end_ns, worker, workers)


def asked_schedule(schedule: AnySchedule) -> AskedSchedule:
    """What recording needs of ``schedule``."""
    times: OpenTimes | ClosedTimes
    match schedule:
        case Schedule():
            times = OpenTimes(schedule.offsets_ns)
        case ClosedSchedule():
            times = ClosedTimes(schedule.user_starts_ns, schedule.end_ns)
    return AskedSchedule(schedule.digest, times, tuple(map(_asked, schedule.requests)))


def _asked(request: Request) -> Asked:
    prompt, ids = request.prompt, request.input_ids
    return Asked(
        output_tokens=request.output_tokens,
        input_tokens=request.input_tokens,
        ignore_eos=request.ignore_eos,
        session=request.session,
        text=Prompt(len(prompt), _text_fingerprint(prompt)) if prompt else None,
        ids=Prompt(len(ids), _ids_fingerprint(ids)) if ids else None,
    )


def _text_fingerprint(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_FINGERPRINT_BYTES).digest()


def _ids_fingerprint(ids: Sequence[int]) -> bytes:
    return hashlib.blake2b(struct.pack(f"<{len(ids)}q", *ids), digest_size=_FINGERPRINT_BYTES).digest()


_WAIT_NS = 100_000_000


def free_again_ns(done_ns: int, outcome: Outcome | None) -> int:
    """When a user is free whose request ended at ``done_ns`` with ``outcome`` (None: as it should): at once, as a rule.

    Who finds nobody listening tries again after 0.1 s: users who did so at once would send all that was prepared, in
    seconds, to a server that is about to be there again, and take the machine from it.
    """
    return done_ns + _WAIT_NS if outcome is Outcome.CONNECT else done_ns
