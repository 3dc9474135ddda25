"""A server as constants: the law of an engine's step, its admission, the front end's costs, and the noise of steps.

Times are in s. The bounds of the types apply when a model is read from a file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

Seconds = Annotated[float, Meta(ge=0, le=100)]
Cost = Annotated[float, Meta(ge=0, le=10)]  # of a token, a sequence, a request or a response
Noise = Annotated[float, Meta(ge=-100, le=100)]
Count = Annotated[int, Meta(ge=1, le=1 << 30)]
Sequences = Annotated[int, Meta(ge=1, le=1 << 20)]
Tokens = Annotated[int, Meta(ge=1, le=1 << 24)]
Delay = Annotated[int, Meta(ge=0, le=1)]
Rounds = Annotated[int, Meta(ge=1, le=64)]
KV_BLOCK_TOKENS = 32
NO_LIMIT = 1 << 60
"""More than any step or cache holds, where an Admission has no limit."""


class Order(StrEnum):
    """What one step of the engine may hold."""

    MIXED = "mixed"  # prompts beside the sequences that decode
    PREFILL_FIRST = "prefill_first"  # prompts alone, as soon as there are any


@dataclass(frozen=True)
class StepLaw:
    """The duration of a step: a constant, and a cost for each unit of its work.

    ``prefill`` is the cost of a prompt token beyond the first ``free_prefill`` of a step; ``prefill_context`` that of a prompt
    token and a token of its context, summed over the prompts of the step; ``prefill_step`` is added once where the step holds a
    prompt; ``sequence`` is the cost of a sequence that gets a token; ``context`` that of a token in the KV cache of those
    sequences.

    ``launch`` is the time that the host needs to launch a step that holds a prompt, while the step before runs; it is
    ``launch_large`` for a step of more than ``large_step`` tokens, where such steps differ.
    """

    step: Seconds
    prefill: Cost = 0.0
    prefill_context: Cost = 0.0
    prefill_step: Seconds = 0.0
    sequence: Cost = 0.0
    context: Cost = 0.0
    launch: Seconds = 0.0
    launch_large: Seconds = 0.0
    free_prefill: Annotated[int, Meta(ge=0, le=1 << 24)] = 0
    large_step: Tokens | None = None

    def duration(self, prefill: int, with_context: int, sequences: int, context: int) -> float:
        """The time that a step takes, without noise."""
        return (
            self.step
            + self.prefill * max(0, prefill - self.free_prefill)
            + self.prefill_context * with_context
            + (self.prefill_step if prefill else 0.0)
            + self.sequence * sequences
            + self.context * context
        )

    def slower(self, factor: float) -> StepLaw:
        """The law of an engine whose steps take this ``factor`` of the time; a launch is the host's."""
        terms = ("step", "prefill", "prefill_context", "prefill_step", "sequence", "context")
        return replace(self, **{term: factor * getattr(self, term) for term in terms})

    def launch_of(self, prefill: float, tokens: float) -> float:
        """The time that the host needs to launch a step of ``tokens`` tokens, of which ``prefill`` belong to prompts."""
        if not prefill:
            return 0.0
        return self.launch if self.large_step is None or tokens <= self.large_step else self.launch_large


@dataclass(frozen=True)
class Admission:
    """Which requests a step takes.

    ``max_sequences`` is the batch limit and ``token_budget`` the most tokens of a step, beyond which a prompt is cut into
    chunks; None where there is no limit. With a ``lookahead`` of 1 (asynchronous scheduling) a step is decided and launched
    while the one before it runs, and the tokens of that one are sent after the launch; with 0 it is decided when the one before
    has ended. The place and the blocks of a request are free when its last token is sent: with a lookahead, for the step after
    the next one.

    ``kv_blocks`` is the size of the KV cache, in blocks of KV_BLOCK_TOKENS tokens: a request is taken when those that it will
    need at its end are free beside those of the requests that run, so none is ever paused.
    """

    order: Order = Order.MIXED
    max_sequences: Sequences | None = None
    token_budget: Tokens | None = None
    lookahead: Delay = 0
    kv_blocks: Count | None = None

    def blocks_of(self, tokens: int) -> int:
        """The blocks of the KV cache that a request of ``tokens``, prompt and answer, needs."""
        return -(-tokens // KV_BLOCK_TOKENS)


@dataclass(frozen=True)
class FrontEnd:
    """The one process between clients and engine, an event loop that handles in rounds what became ready during the round
    before.

    ``delay`` is the time on the way, in total. A request waits for ``intake_rounds`` rounds, and takes ``intake`` of the
    process in the last. Each token that the engine hands over takes ``token``, and each response ``response``; tokens of one
    request that are handed over before a response is written share one.
    """

    delay: Cost = 0.0
    intake: Cost = 0.0
    intake_rounds: Rounds = 1
    token: Cost = 0.0
    response: Cost = 0.0


@dataclass(frozen=True)
class Server:
    """One engine and its front end.

    ``noise`` in s is added to the durations of steps, in blocks of consecutive values; ``launch_noise`` is relative to the time
    of a launch.
    """

    law: StepLaw
    admission: Admission = Admission()
    front_end: FrontEnd = FrontEnd()
    noise: Annotated[tuple[Noise, ...], Meta(min_length=1, max_length=1 << 20)] = (0.0,)
    launch_noise: Annotated[tuple[Noise, ...], Meta(min_length=1, max_length=1 << 20)] = (0.0,)
