"""The messages between a run's coordinator and the workers on other hosts, as MessagePack. Unknown fields are ignored.

A message is data alone: decoding it executes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from harness.clients.protocol import ConnectionUsage
from harness.clients.registry import KnownClient
from harness.distribution.byte_streams import Piece, Received
from harness.journal.worker_journal import Ended
from harness.run.worker import WorkerPlan
from workloads.request import Request
from workloads.schedule import AnyPart, ClosedPart, OpenPart, SessionPart
from workloads.token_ids import TokenIds, token_ids

PROTOCOL = 1  # a change of any message that an older side would misread
PLAN, JOURNAL, PROBE = "plan", "journal", "probe"  # names of byte streams


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first message of a worker: its versions, and the host that it is on."""

    protocol: int
    bench_version: str
    host: str
    cores: float


class PlanConfirmed(msgspec.Struct, frozen=True, tag="confirmed"):
    """The worker has its plan, whole: its SHA-256, and the schedule's digest in it."""

    plan_sha256: str
    schedule_digest: str


class WorkerReady(msgspec.Struct, frozen=True, tag="ready"):
    """The worker is connected and warm, or ``problem`` prevents it."""

    warm_up_failures: tuple[str, ...] = ()
    problem: str | None = None


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """Requests that the worker has sent."""

    sent: int


class JournalProblem(msgspec.Struct, frozen=True, tag="journal_problem"):
    """The worker's journal cannot be written; ``ended`` is its last entry."""

    problem: str
    ended: Ended | None = None


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The worker's process has ended with ``exit_status``. Its streams end with the lengths that their pieces give."""

    sent: int
    exit_status: int
    usage: ConnectionUsage | None


FromWorker = Hello | PlanConfirmed | WorkerReady | Progress | JournalProblem | Finished | Piece | Received


class StartAt(msgspec.Struct, frozen=True, tag="start"):
    """The run's start, in ns of the worker's own monotonic clock."""

    start_ns: int


class SetCommand(msgspec.Struct, frozen=True, tag="command"):
    """A value of ``Command``."""

    command: int


class Dismissed(msgspec.Struct, frozen=True, tag="dismissed"):
    """The worker is not needed any more; ``refusal`` is the reason where it took no part."""

    refusal: str | None = None


ToWorker = StartAt | SetCommand | Dismissed | Piece | Received

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode


class _PlanMessage(msgspec.Struct, frozen=True):
    """A WorkerPlan without what belongs to one host. ``ids`` are the token ids of ``requests``, packed."""

    worker: int
    client: KnownClient
    kind: str
    part: msgspec.Raw
    requests: list[Request]
    ids: list[tuple[str, bytes] | None]
    warm_up: list[Request]
    warm_up_ids: list[tuple[str, bytes] | None]
    timeout_s: float
    schedule_digest: str


_KINDS: dict[str, Any] = {"open": OpenPart, "closed": ClosedPart, "sessions": SessionPart}


def encode_plan(plan: WorkerPlan) -> bytes:
    """The plan of a worker on another host. Raises ValueError where a prompt is not Unicode text."""
    kind = next(name for name, part in _KINDS.items() if isinstance(plan.part, part))
    requests, ids = _without_ids(plan.requests)
    warm_up, warm_up_ids = _without_ids(plan.warm_up)
    message = {
        "worker": plan.worker,
        "client": plan.client,
        "kind": kind,
        "part": msgspec.Raw(encode(plan.part)),
        "requests": requests,
        "ids": ids,
        "warm_up": warm_up,
        "warm_up_ids": warm_up_ids,
        "timeout_s": plan.timeout_s,
        "schedule_digest": plan.schedule_digest,
    }
    return encode(message)


def decode_plan(data: bytes, folder: Path) -> WorkerPlan:
    """The plan with the worker's files in ``folder``. Raises msgspec.MsgspecError for bytes that are no plan."""
    message = msgspec.msgpack.decode(data, type=_PlanMessage)
    part: AnyPart = msgspec.msgpack.decode(message.part, type=_KINDS.get(message.kind, OpenPart))
    return WorkerPlan(
        worker=message.worker,
        client=message.client,
        part=part,
        requests=_with_ids(message.requests, message.ids),
        warm_up=_with_ids(message.warm_up, message.warm_up_ids),
        timeout_s=message.timeout_s,
        journal=folder / f"journal-{message.worker}.bin",
        probe=folder / f"probe-{message.worker}.bin",
        schedule_digest=message.schedule_digest,
    )


def _without_ids(requests: Sequence[Request]) -> tuple[list[Request], list[tuple[str, bytes] | None]]:
    packed = [None if one.input_ids is None else _packed(one.input_ids) for one in requests]
    return [one if one.input_ids is None else replace(one, input_ids=None) for one in requests], packed


def _packed(ids: Sequence[int]) -> tuple[str, bytes]:
    packed = ids if isinstance(ids, TokenIds) else token_ids(ids)
    return packed.typecode, packed.packed


def _with_ids(requests: Sequence[Request], ids: Sequence[tuple[str, bytes] | None]) -> list[Request]:
    return [
        one if packed is None else replace(one, input_ids=TokenIds(packed[1], packed[0]))
        for one, packed in zip(requests, ids, strict=True)
    ]
