"""The messages between a run's coordinator and the workers on other hosts, as MessagePack. Unknown fields are ignored.

A message is data alone: decoding it executes nothing. Each comes with the identity of the run that it belongs to, None where
its sender has no run yet, so that what is left of one run has no effect on another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from harness.clients.protocol import ConnectionUsage
from harness.distribution.byte_streams import Piece, Received
from harness.distribution.dropped_messages import BadMessageError
from harness.distribution.envelopes import UNDECODABLE
from harness.journal.run_identity import RunId
from harness.journal.worker_journal import Ended, RunNs
from harness.protocols.known_client import KnownClient
from harness.run.shared_state import Command
from harness.run.token_limits import NO_LIMITS_OF_TOKENS, TokenLimits
from harness.run.worker import WorkerPlan
from workloads.elements.request import Balance, Request
from workloads.elements.token_ids import TokenIds, token_ids
from workloads.schedule.schedule import AnyPart, ClosedPart, OpenPart, SessionPart

PROTOCOL = 6  # a change of any message that an older side would misread
PLAN, JOURNAL, SAMPLES = "plan", "journal", "samples"  # names of byte streams
LONGEST_TEXT = 10_000  # characters

Text = Annotated[str, Meta(max_length=LONGEST_TEXT)]
Name = Annotated[str, Meta(max_length=300, pattern=r"\A[\w.:+-]*\Z")]
Digest = Annotated[str, Meta(max_length=200)]
Count = Annotated[int, Meta(ge=0, le=1 << 53)]
LocalNs = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first message of a worker: its versions, and the host that it is on."""

    protocol: Count
    bench_version: Name
    host: Name
    cores: Annotated[float, Meta(ge=0, le=1 << 20)]


class PlanConfirmed(msgspec.Struct, frozen=True, tag="confirmed"):
    """The worker has its plan, whole: its SHA-256, and the schedule's digest in it."""

    plan_sha256: Digest
    schedule_digest: Digest


class WorkerReady(msgspec.Struct, frozen=True, tag="ready"):
    """The worker is connected and warm, or ``problem`` prevents it."""

    warm_up_failures: Annotated[tuple[Text, ...], Meta(max_length=10_000)] = ()
    problem: Text | None = None


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """Requests that the worker has sent."""

    sent: Count


class JournalProblem(msgspec.Struct, frozen=True, tag="journal_problem"):
    """The worker's journal cannot be written; ``ended`` is its last entry."""

    problem: Text
    ended: Ended | None = None


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The worker's process has ended with ``exit_status``. Its streams end with the lengths that their pieces give.

    ``stopped`` is why the worker stopped sending before the end of the run, where that was not at the master's command.
    """

    sent: Count
    exit_status: Annotated[int, Meta(ge=-(1 << 31), le=1 << 31)]
    usage: ConnectionUsage | None
    stopped: Text | None = None


FromWorker = Hello | PlanConfirmed | WorkerReady | Progress | JournalProblem | Finished | Piece | Received


class StartAt(msgspec.Struct, frozen=True, tag="start"):
    """The run's start, in ns of the worker's own monotonic clock."""

    start_ns: LocalNs


class SetCommand(msgspec.Struct, frozen=True, tag="command"):
    """A value of ``Command``, and the time of the run from which on nothing is due, where a rule ended it."""

    command: Annotated[int, Meta(ge=int(min(Command)), le=int(max(Command)))]
    end_ns: RunNs | None = None


class Dismissed(msgspec.Struct, frozen=True, tag="dismissed"):
    """The worker is not needed any more; ``refusal`` is the reason where it took no part."""

    refusal: Text | None = None


ToWorker = StartAt | SetCommand | Dismissed | Piece | Received

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
unpack = msgspec.msgpack.Decoder(tuple[RunId | None, msgspec.Raw]).decode
"""The run of a message, and the message, still encoded."""


def pack(run_id: str | None, message: FromWorker | ToWorker) -> bytes:
    """The message with the run that it belongs to."""
    return encode((run_id, message))


def check_run(run_id: str | None, own: str | None, message: FromWorker | ToWorker) -> None:
    """Raises BadMessageError for a message of another run."""
    if run_id != own:
        raise BadMessageError(f"{type(message).__name__}: of {'no run' if run_id is None else f'another run ({run_id})'}")


_TypeCode = Literal["i", "q"]


class _PlanMessage(msgspec.Struct, frozen=True):
    """A WorkerPlan without what belongs to one host. ``ids`` are the token ids of ``requests``, packed."""

    run_id: RunId
    worker: Annotated[int, Meta(ge=0, lt=1 << 16)]
    client: KnownClient
    kind: Literal["open", "closed", "sessions"]
    part: msgspec.Raw
    requests: list[Request]
    ids: list[tuple[_TypeCode, bytes] | None]
    warm_up: list[Request]
    warm_up_ids: list[tuple[_TypeCode, bytes] | None]
    timeout_s: Annotated[float, Meta(gt=0, le=1e9)]
    schedule_digest: str
    further: list[KnownClient] = []
    balance: Balance = Balance.ROUND_ROBIN
    token_limits: TokenLimits = NO_LIMITS_OF_TOKENS
    assigned: tuple[Annotated[int, Meta(ge=0)], ...] = ()


_KINDS: Mapping[str, type[AnyPart]] = {"open": OpenPart, "closed": ClosedPart, "sessions": SessionPart}


def encode_plan(plan: WorkerPlan) -> bytes:
    """The plan of a worker on another host. Raises ValueError where a prompt is not Unicode text."""
    kind = next(name for name, part in _KINDS.items() if isinstance(plan.part, part))
    requests, ids = _without_ids(plan.requests)
    warm_up, warm_up_ids = _without_ids(plan.warm_up)
    message = {
        "run_id": plan.run_id,
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
        "further": plan.further,
        "balance": plan.balance,
        "token_limits": plan.token_limits,
        "assigned": plan.assigned,
    }
    return encode(message)


def decode_plan(data: bytes, folder: Path) -> WorkerPlan:
    """The plan with the worker's files in a folder of its own, ``<run>-<worker>`` below ``folder``.

    Raises BadMessageError for bytes that are no plan.
    """
    try:
        return _decode_plan(data, folder)
    except (*UNDECODABLE, ValueError, OverflowError) as error:  # ids that are no packed numbers, or fewer than requests
        raise BadMessageError(f"plan: {error}") from None


def _decode_plan(data: bytes, folder: Path) -> WorkerPlan:
    message = msgspec.msgpack.decode(data, type=_PlanMessage)
    part: AnyPart = msgspec.msgpack.decode(message.part, type=_KINDS[message.kind])
    if len(part.indices) != len(message.requests):
        raise ValueError(f"{len(message.requests)} requests for {len(part.indices)} places of the schedule")
    targets = len(message.further) + 1
    if targets > 1 and (len(message.assigned) != len(message.requests) or max(message.assigned, default=0) >= targets):
        raise ValueError(f"its requests are not assigned to its {targets} targets")
    own = folder / f"{message.run_id}-{message.worker}"
    return WorkerPlan(
        worker=message.worker,
        client=message.client,
        part=part,
        requests=_with_ids(message.requests, message.ids),
        warm_up=_with_ids(message.warm_up, message.warm_up_ids),
        timeout_s=message.timeout_s,
        journal=own / f"journal-{message.worker}.bin",
        samples=own / f"samples-{message.worker}.bin",
        schedule_digest=message.schedule_digest,
        run_id=message.run_id,
        further=tuple(message.further),
        balance=message.balance,
        token_limits=message.token_limits,
        assigned=message.assigned if message.further else (),
    )


def _without_ids(requests: Sequence[Request]) -> tuple[list[Request], list[tuple[str, bytes] | None]]:
    packed = [None if request.input_ids is None else _packed(request.input_ids) for request in requests]
    return [request if request.input_ids is None else replace(request, input_ids=None) for request in requests], packed


def _packed(ids: Sequence[int]) -> tuple[str, bytes]:
    packed = ids if isinstance(ids, TokenIds) else token_ids(ids)
    return packed.typecode, packed.packed


def _with_ids(requests: Sequence[Request], ids: Sequence[tuple[str, bytes] | None]) -> list[Request]:
    return [
        request if packed is None else replace(request, input_ids=_unpacked(*packed))
        for request, packed in zip(requests, ids, strict=True)
    ]


def _unpacked(typecode: str, packed: bytes) -> TokenIds:
    if len(packed) % (4 if typecode == "i" else 8):
        raise ValueError(f"{len(packed)} bytes are no token ids of type {typecode}")
    return TokenIds(packed, typecode)
