"""Messages between a ``ProcessEngine`` and the process that runs its engine, as MessagePack over a pipe."""

from __future__ import annotations

import msgspec

from serving.engines.protocol import TOKENS_ONLY, EngineLimits, EngineStats, Increment, Returns, Sampling


class Submit(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Start a request. ``submitted_ns`` is a time of the monotonic clock, which both processes share."""

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
    """Register the adapter of a task; see ``Engine.register_lora``."""

    task_id: int
    weights: bytes
    config: bytes


class ResetPrefixCache(msgspec.Struct, frozen=True, tag=True):
    """Empty the prefix cache; ``PrefixCacheReset`` follows."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """A client stops its requests: from one of several processes that share the engine, and from there to the others."""

    client_id: str


class PrefixCacheReset(msgspec.Struct, frozen=True, tag=True):
    """The prefix cache is empty, or is not, for the reason ``problem``."""

    problem: str | None = None


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The engine is loaded."""

    limits: EngineLimits
    stats: EngineStats


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine could not be loaded, or failed; no message follows."""

    reason: str


class Step(msgspec.Struct, frozen=True, tag=True):
    """Result of a step or a cancellation: increments by request id, and periodically the state after it."""

    increments: list[tuple[int, Increment]]
    stats: EngineStats | None


ToEngine = Submit | Cancel | RegisterLora | ResetPrefixCache
FromEngine = Ready | Failed | Step | PrefixCacheReset | Stop

encode = msgspec.msgpack.Encoder().encode
decode_to_engine = msgspec.msgpack.Decoder(ToEngine).decode
decode_from_engine = msgspec.msgpack.Decoder(FromEngine).decode
