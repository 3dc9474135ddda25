"""How much longer each phase of a request takes in a server that is slowed down, in windows with delays and always."""

from __future__ import annotations

from dataclasses import dataclass

DELAYED = ".delayed"
"""The suffix of the file, named like the step log, that has from when to when each step with a prompt was delayed, in ns."""


@dataclass(frozen=True, slots=True)
class Delays:
    """In seconds. ``decode_step_s`` is for each token after the first; the others are for each request. ``queue_always_s`` and
    ``step_always_s``, of each step of the engine, are not for windows with delays alone. ``prompt_step_s`` is for each step of
    the pipeline with a prompt, whose other requests it delays in their decode.
    """

    tokenizer_s: float = 0.0
    queue_s: float = 0.0
    queue_always_s: float = 0.0
    prefill_s: float = 0.0
    decode_step_s: float = 0.0
    step_always_s: float = 0.0
    prompt_step_s: float = 0.0


NONE = Delays()
