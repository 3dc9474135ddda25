"""The schedule: which request is sent when. Drawn once, before the run, from one seed; never changed after."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from workloads.arrivals import Arrivals
from workloads.request import Request


@dataclass(frozen=True)
class Schedule:
    """Requests in the order of their arrival, each with its offset in ns from the run's start."""

    requests: tuple[Request, ...]
    offsets_ns: tuple[int, ...]
    seed: int

    def __len__(self) -> int:
        return len(self.requests)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything that is sent and when: equal digests are equal runs."""
        digest = hashlib.sha256()
        for request, offset_ns in zip(self.requests, self.offsets_ns, strict=True):
            for field in _fields_of(request, offset_ns):
                digest.update(struct.pack("<q", -1 if field is None else len(field)))
                digest.update(field or b"")
        return digest.hexdigest()

    def shard(self, index: int, count: int) -> tuple[int, ...]:
        """The request indices that worker ``index`` of ``count`` sends: dealt out in turn, each to exactly one worker."""
        return tuple(range(index, len(self.requests), count))


def make_schedule(requests: Sequence[Request], arrivals: Arrivals, seed: int) -> Schedule:
    """Give each request its arrival time."""
    return Schedule(tuple(requests), tuple(arrivals.offsets_ns(len(requests), seed).tolist()), seed)


def _fields_of(request: Request, offset_ns: int) -> tuple[bytes | None, ...]:
    ids = request.input_ids
    return (
        struct.pack("<qq?", offset_ns, request.output_tokens, request.ignore_eos),
        None if request.prompt is None else request.prompt.encode("utf-8", "surrogatepass"),
        None if ids is None else struct.pack(f"<{len(ids)}q", *ids),
        None if request.session is None else request.session.encode("utf-8", "surrogatepass"),
    )
