"""What crosses Locust's port, decoded into types: Locust's own messages, the handshake, and sealed messages of bench.

Locust's frame is MessagePack of (type, data, name of the connection). Nothing is taken from a frame that is not of a known type
with the right fields, and what has no use here, as Locust's statistics, is not even decoded.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from harness.distribution.admission import NONCE_BYTES
from harness.distribution.byte_streams import PIECE_BYTES
from harness.distribution.dropped_messages import BadMessageError

PAYLOAD, PING, PONG = "bench", "bench_ping", "bench_pong"
JOIN, CHALLENGE, PROOF, ADMITTED, REFUSED = "bench_join", "bench_challenge", "bench_proof", "bench_admitted", "bench_refused"
MOST_BYTES = PIECE_BYTES + (256 << 10)  # of a frame; a longer one ends its connection
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

Name = Annotated[str, Meta(min_length=1, max_length=300)]
Nonce = Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
Signature = Annotated[bytes, Meta(min_length=32, max_length=32)]
MonotonicNs = Annotated[int, Meta(ge=0, le=1 << 62)]


class ClientReady(msgspec.Struct, frozen=True):
    """A worker of Locust has connected."""


class Heartbeat(msgspec.Struct, frozen=True):
    """A worker's; CPU in percent of a core, memory in bytes."""

    state: Literal["ready", "spawning", "running", "cleanup", "stopping", "stopped"]
    current_cpu_usage: Annotated[float, Meta(ge=0, le=1e6)]
    current_memory_usage: Annotated[int, Meta(ge=0, le=1 << 60)] = 0


class Answered(msgspec.Struct, frozen=True):
    """The master's answer to ``client_ready`` or to a heartbeat."""


class Quit(msgspec.Struct, frozen=True):
    """The other side has ended."""


class Unused(msgspec.Struct, frozen=True):
    """A message of Locust that has no use here."""


class Join(msgspec.Struct, frozen=True):
    """A worker asks to take part."""

    nonce: Nonce


class Challenge(msgspec.Struct, frozen=True):
    """The master asks for a proof."""

    nonce: Nonce


class Proof(msgspec.Struct, frozen=True):
    """The worker's proof; ``nonce`` is that of its Join."""

    nonce: Nonce
    proof: Signature


class Admitted(msgspec.Struct, frozen=True):
    """The worker takes part; with the master's proof."""

    proof: Signature


class Refused(msgspec.Struct, frozen=True):
    """The worker takes no part."""

    reason: Annotated[str, Meta(max_length=1_000)]


class Sealed(msgspec.Struct, frozen=True):
    """A message of bench, and the signature of its sender."""

    data: bytes
    signature: Signature


class Ping(msgspec.Struct, frozen=True):
    """The master's time, in ns of its monotonic clock, when it sent this."""

    sent_ns: MonotonicNs


class Pong(msgspec.Struct, frozen=True):
    """The answer to a Ping: its time, and those of the worker's monotonic clock at its arrival and at the answer."""

    sent_ns: MonotonicNs
    received_ns: MonotonicNs
    answered_ns: MonotonicNs


Content = (
    ClientReady | Heartbeat | Answered | Quit | Unused | Join | Challenge | Proof | Admitted | Refused | Sealed
)  # of an envelope


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message that was received at ``received_ns`` from ``peer``: the worker, or (empty) the master.

    ``address`` is the IP address that it came from.
    """

    peer: str
    kind: str
    content: Content
    received_ns: int
    address: str


_NO_DATA = (ClientReady, Answered, Quit, Unused)
_FROM_WORKER: Mapping[str, type[Content]] = {
    "client_ready": ClientReady,
    "heartbeat": Heartbeat,
    "quit": Quit,
    "stats": Unused,
    "logs": Unused,
    "client_stopped": Unused,
    JOIN: Join,
    PROOF: Proof,
    PAYLOAD: Sealed,
    PONG: Sealed,
}
_FROM_MASTER: Mapping[str, type[Content]] = {
    "ack": Answered,
    "heartbeat": Answered,
    "quit": Quit,
    "reconnect": Unused,
    CHALLENGE: Challenge,
    ADMITTED: Admitted,
    REFUSED: Refused,
    PAYLOAD: Sealed,
    PING: Sealed,
}
_decode_frame = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw, Name]).decode
_encode = msgspec.msgpack.Encoder().encode
_decode_ping, _decode_pong = msgspec.msgpack.Decoder(Ping).decode, msgspec.msgpack.Decoder(Pong).decode


def from_worker(frames: Sequence[bytes], address: str) -> Envelope:
    """A message to the master: the name of the connection, by which it answers, and Locust's frame. Raises BadMessageError."""
    received_ns = time.monotonic_ns()
    if len(frames) != 2:
        raise BadMessageError(f"{len(frames)} frames instead of 2")
    try:
        peer = frames[0].decode()
    except UnicodeDecodeError:
        raise BadMessageError("the name of its connection is not UTF-8") from None
    kind, content, name = _decoded(frames[1], _FROM_WORKER)
    if name != peer:
        raise BadMessageError(f"{kind}: in the name of another connection")
    return Envelope(peer, kind, content, received_ns, address)


def from_master(frames: Sequence[bytes], address: str) -> Envelope:
    """A message to a worker. Raises BadMessageError."""
    received_ns = time.monotonic_ns()
    kind, content, _ = _decoded(b"".join(frames), _FROM_MASTER)
    return Envelope("", kind, content, received_ns, address)


def sealed_ping(data: bytes) -> Ping:
    """The content of a sealed PING. Raises BadMessageError."""
    try:
        return _decode_ping(data)
    except UNDECODABLE as error:
        raise BadMessageError(f"{PING}: {error}") from None


def sealed_pong(data: bytes) -> Pong:
    """The content of a sealed PONG. Raises BadMessageError."""
    try:
        return _decode_pong(data)
    except UNDECODABLE as error:
        raise BadMessageError(f"{PONG}: {error}") from None


def encoded(content: Ping | Pong) -> bytes:
    return _encode(content)


def fields(content: Content) -> dict[str, object]:
    """A message's data, as Locust sends it."""
    return msgspec.structs.asdict(content)


def _decoded(frame: bytes, types: Mapping[str, type[Content]]) -> tuple[str, Content, str]:
    try:
        kind, raw, name = _decode_frame(frame)
    except UNDECODABLE as error:
        raise BadMessageError(f"not a message of Locust: {error}") from None
    wanted = types.get(kind)
    if wanted is None:
        raise BadMessageError("of an unknown type, or of one that is for the other side")
    if wanted in _NO_DATA:
        return kind, wanted(), name
    try:
        return kind, msgspec.msgpack.decode(raw, type=wanted), name
    except UNDECODABLE as error:
        raise BadMessageError(f"{kind}: {error}") from None
