"""What the two halves of the OpenVINO engine say to each other, as MessagePack over a pipe."""

from __future__ import annotations

import msgspec

from serving.engines.protocol import EngineLimits, EngineStats, Increment, Sampling


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Start a request."""

    request_id: int
    input_ids: list[int]
    sampling: Sampling
    streaming: bool


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End a request early."""

    request_id: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The engine is loaded."""

    limits: EngineLimits
    stats: EngineStats


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine could not be loaded, or broke; nothing follows."""

    reason: str


class Step(msgspec.Struct, frozen=True, tag=True):
    """What one step, or one cancellation, brought: increments by request id, and the state after it."""

    increments: list[tuple[int, Increment]]
    stats: EngineStats


ToEngine = Submit | Cancel
FromEngine = Ready | Failed | Step

encode = msgspec.msgpack.Encoder().encode
decode_to_engine = msgspec.msgpack.Decoder(ToEngine).decode
decode_from_engine = msgspec.msgpack.Decoder(FromEngine).decode
