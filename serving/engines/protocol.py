"""The seam between the served models and whatever runs the network.

An engine owns a thread (or processes) of its own and batches in flight: a request that is submitted while others run
joins them at the next step. What it generates comes back through a callback, in order, on the engine's thread; the
callback must hand over and return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class FinishReason(Enum):
    """Why a sequence ended, in the words of TensorRT-LLM's LLM API."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens. The defaults are greedy decoding, as TensorRT-LLM's when nothing is asked.

    ``end_id`` None means that no token ends the sequence. ``top_k`` 0 and ``top_p`` 1.0 mean no limit.
    """

    max_tokens: int
    end_id: int | None = None
    min_tokens: int = 0
    greedy: bool = True
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Increment:
    """What one engine step, or several that were not read apart, added to one request.

    ``finish`` is set on the last increment, and only there; ``error`` too ends the request.
    """

    token_ids: Sequence[int]
    finish: FinishReason | None = None
    error: str | None = None

    @property
    def is_last(self) -> bool:
        return self.finish is not None or self.error is not None


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What a request must keep to: token ids lie in [0, vocabulary_size), prompt and output together fit the context."""

    vocabulary_size: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """State of an engine after its latest step. Counters (``…_total``) only grow; the others are of this moment.

    ``scheduled_requests_total / iterations_total`` over an interval is the mean batch size of that interval.
    """

    active_requests: int
    scheduled_requests: int
    max_requests: int
    iterations_total: int
    scheduled_requests_total: int
    generated_tokens_total: int
    kv_cache_used_fraction: float
    kv_cache_blocks: int
    kv_cache_tokens_per_block: int


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings every engine understands, named after the parameters of upstream's ``tensorrt_llm/config.pbtxt``."""

    max_tokens_in_paged_kv_cache: int = 131_072
    max_num_sequences: int = 256
    max_num_tokens: int = 2_048
    enable_kv_cache_reuse: bool = True
    enable_chunked_context: bool = True


Deliver = Callable[[Increment], None]


class Engine(Protocol):
    """One loaded model that generates for many requests at once."""

    @property
    def limits(self) -> EngineLimits: ...

    def submit(
        self, request_id: int, input_ids: Sequence[int], sampling: Sampling, deliver: Deliver, *, streaming: bool
    ) -> None:
        """Queue one request; returns at once.

        ``request_id`` is unique among the requests in flight. With ``streaming`` every step's tokens are delivered as
        they come; without, one increment at the end carries them all. Exactly one delivered increment is the last.
        """
        ...

    def cancel(self, request_id: int) -> None:
        """End a request early and free what it holds; its last increment says CANCELLED. Unknown ids are ignored."""
        ...

    def stats(self) -> EngineStats: ...

    def close(self) -> None:
        """Stop the engine; requests still in flight get an error increment."""
        ...
