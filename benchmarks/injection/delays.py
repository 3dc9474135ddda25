"""How much longer each phase of a request takes in a server that is slowed down, in windows with delays and always."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delays:
    """In seconds. ``decode_step_s`` is for each token after the first; the others are for each request. ``queue_always_s`` and
    ``step_always_s``, of each step of the engine, are not for windows with delays alone.
    """

    tokenizer_s: float = 0.0
    queue_s: float = 0.0
    queue_always_s: float = 0.0
    prefill_s: float = 0.0
    decode_step_s: float = 0.0
    step_always_s: float = 0.0


NONE = Delays()
