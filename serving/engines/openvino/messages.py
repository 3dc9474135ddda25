"""What the two halves of the OpenVINO engine say to each other, as MessagePack over a pipe."""

from __future__ import annotations

import msgspec

from serving.engines.protocol import TOKENS_ONLY, EngineLimits, EngineStats, Increment, Returns, Sampling


class Submit(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Start a request. ``submitted_ns`` is the monotonic clock's, which both halves share."""

    request_id: int
    input_ids: list[int]
    sampling: Sampling
    streaming: bool
    returns: Returns = TOKENS_ONLY
    submitted_ns: int = 0


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End a request early."""

    request_id: int


class RegisterLora(msgspec.Struct, frozen=True, tag=True):
    """Keep an adapter for the requests of its task; see ``Engine.register_lora``."""

    task_id: int
    weights: bytes
    config: bytes


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The engine is loaded."""

    limits: EngineLimits
    stats: EngineStats


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine could not be loaded, or broke; nothing follows."""

    reason: str


class Step(msgspec.Struct, frozen=True, tag=True):
    """What one step, or one cancellation, brought: increments by request id, and from time to time the state after it."""

    increments: list[tuple[int, Increment]]
    stats: EngineStats | None


ToEngine = Submit | Cancel | RegisterLora
FromEngine = Ready | Failed | Step

encode = msgspec.msgpack.Encoder().encode
decode_to_engine = msgspec.msgpack.Decoder(ToEngine).decode
decode_from_engine = msgspec.msgpack.Decoder(FromEngine).decode
