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

# Upper bounds of the histograms' buckets, in seconds: from a step of a small model to a long wait in the queue.
HISTOGRAM_BOUNDS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0,
)  # fmt: skip


class FinishReason(Enum):
    """Why a sequence ended, in the words of TensorRT-LLM's LLM API."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


class GuideType(Enum):
    """What shape a guided answer has, in upstream's words (``guided_decoding_guide_type``)."""

    JSON = "json"  # any JSON object or array
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    EBNF_GRAMMAR = "ebnf_grammar"


@dataclass(frozen=True, slots=True)
class Guide:
    """The shape that the text of a guided answer must have; ``text`` is the schema, expression or grammar, empty for JSON."""

    type: GuideType
    text: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens. The defaults are greedy decoding, as TensorRT-LLM's when nothing is asked.

    ``end_id`` None means that no token ends the sequence. ``top_k`` 0 and ``top_p`` 1.0 mean no limit. ``top_p_decay``
    multiplies the limit of top-p after each token, down to ``top_p_min``; the token ``top_p_reset_id`` restores it.
    A sequence ends with the first of ``stop_words`` that its output ends with, and never holds one of ``bad_words``;
    both are token sequences. ``embedding_bias`` is float32 [vocabulary], added to the logits; empty is none.
    ``beam_width`` above 1 is beam search; ``return_beams`` of the beams are delivered, the best first. ``draft_ids`` are
    tokens that a cheaper model proposes: those that this one would have chosen are kept, and one more token follows.
    """

    max_tokens: int
    end_id: int | None = None
    min_tokens: int = 0
    greedy: bool = True
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    top_p_decay: float = 1.0
    top_p_min: float = 0.0
    top_p_reset_id: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    beam_width: int = 1
    return_beams: int = 1
    length_penalty: float = 0.0
    early_stopping: bool = False
    beam_search_diversity_rate: float = 0.0
    stop_words: tuple[tuple[int, ...], ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    embedding_bias: bytes = b""
    guide: Guide | None = None
    lora_task_id: int | None = None
    draft_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Returns:
    """What to deliver beside the tokens, as an increment's ``details``; nothing of it costs a request that asks for nothing."""

    log_probs: bool = False
    context_logits: bool = False
    generation_logits: bool = False
    perf_metrics: bool = False

    @property
    def anything(self) -> bool:
        return self.log_probs or self.context_logits or self.generation_logits or self.perf_metrics


@dataclass(frozen=True, slots=True)
class Beam:
    """One sequence of a beam search. ``generation_logits`` is float32 [tokens, vocabulary], empty when not asked for."""

    token_ids: tuple[int, ...]
    cumulative_log_prob: float
    log_probs: tuple[float, ...] = ()
    generation_logits: bytes = b""


@dataclass(frozen=True, slots=True)
class PerfMetrics:
    """When a request got where, and the KV blocks it took; all so far. Times are ns of the monotonic clock, 0 is "not yet".

    ``kv_new_blocks`` were allocated for its prompt, ``kv_reused_blocks`` were found in the cache, ``kv_total_blocks`` were
    allocated for prompt and output together.
    """

    first_scheduled_time_ns: int = 0
    first_token_time_ns: int = 0
    last_token_time_ns: int = 0
    kv_new_blocks: int = 0
    kv_reused_blocks: int = 0
    kv_total_blocks: int = 0
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Details:
    """What an increment carries beside its tokens, for a request that asked (``Returns``) or searched beams.

    ``log_probs`` belong to the increment's tokens. Logits are float32, row by row: ``generation_logits`` [tokens,
    vocabulary] of the increment's tokens, ``context_logits`` [prompt, vocabulary] once, on the first increment that carries
    details. ``beams`` stand on the last increment of a beam search, whose ``token_ids`` are then empty.
    """

    log_probs: tuple[float, ...] = ()
    context_logits: bytes = b""
    generation_logits: bytes = b""
    beams: tuple[Beam, ...] = ()
    perf: PerfMetrics | None = None


@dataclass(frozen=True, slots=True)
class Increment:
    """What one engine step, or several that were not read apart, added to one request.

    ``finish`` is set on the last increment, and only there; ``error`` too ends the request.
    """

    token_ids: Sequence[int]
    finish: FinishReason | None = None
    error: str | None = None
    details: Details | None = None

    @property
    def is_last(self) -> bool:
        return self.finish is not None or self.error is not None


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What a request must keep to: token ids lie in [0, vocabulary_size), prompt and output together fit the context."""

    vocabulary_size: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of seconds by bucket (upper bounds ``HISTOGRAM_BOUNDS_S``, then everything above), and their sum."""

    counts: tuple[int, ...] = (0,) * (len(HISTOGRAM_BOUNDS_S) + 1)
    sum_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """State of an engine after its latest step. Counters (``…_total``) and histograms only grow; the others are of this moment.

    ``active_requests`` are all that have been submitted and not ended: ``waiting_requests`` of them have not started,
    ``context_requests`` have no token yet, ``paused_requests`` gave their place in the cache to others. ``context_tokens``
    are the prompt tokens of the requests in context phase. ``scheduled_requests_total / iterations_total`` over an interval
    is the mean batch size of that interval; ``kv_reused_blocks_total / kv_prompt_blocks_total`` the KV cache's hit rate.
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
    waiting_requests: int = 0
    context_requests: int = 0
    generation_requests: int = 0
    paused_requests: int = 0
    context_tokens: int = 0
    prompt_tokens_total: int = 0
    kv_prompt_blocks_total: int = 0
    kv_reused_blocks_total: int = 0
    memory_bytes: int = 0
    time_to_first_token: Histogram = Histogram()
    inter_token_latency: Histogram = Histogram()
    queue_time: Histogram = Histogram()


class SchedulerPolicy(Enum):
    """When a waiting request may start, in upstream's words.

    GUARANTEED_NO_EVICT: when the cache has room for all that it and the running requests may still need. MAX_UTILIZATION:
    at once; a request that finds the cache full is paused, and computed again when there is room.
    """

    GUARANTEED_NO_EVICT = "guaranteed_no_evict"
    MAX_UTILIZATION = "max_utilization"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings every engine understands, named after the parameters of upstream's ``tensorrt_llm/config.pbtxt``.

    The cache has room for ``max_tokens_in_paged_kv_cache``, or for what ``kv_cache_free_gpu_mem_fraction`` of the memory
    that is free at load holds (on a CPU: of the available RAM), whichever is less. ``max_queue_size`` 0 is no limit;
    ``guided_decoding_backend`` empty is no guided decoding.
    """

    max_tokens_in_paged_kv_cache: int = 131_072
    max_num_sequences: int = 256
    max_num_tokens: int = 2_048
    enable_kv_cache_reuse: bool = True
    enable_chunked_context: bool = True
    kv_cache_free_gpu_mem_fraction: float = 0.9
    batch_scheduler_policy: SchedulerPolicy = SchedulerPolicy.GUARANTEED_NO_EVICT
    max_queue_size: int = 0
    max_beam_width: int = 16
    guided_decoding_backend: str = "xgrammar"
    lora_cache_host_memory_bytes: int = 1 << 30


TOKENS_ONLY = Returns()

Deliver = Callable[[Increment], None]


class Engine(Protocol):
    """One loaded model that generates for many requests at once."""

    @property
    def limits(self) -> EngineLimits: ...

    def submit(
        self,
        request_id: int,
        input_ids: Sequence[int],
        sampling: Sampling,
        deliver: Deliver,
        *,
        streaming: bool,
        returns: Returns = TOKENS_ONLY,
    ) -> None:
        """Queue one request; returns at once.

        ``request_id`` is unique among the requests in flight. With ``streaming`` every step's tokens are delivered as
        they come; without, one increment at the end carries them all. Exactly one delivered increment is the last.
        What the engine cannot do is answered with an error increment that names it.
        """
        ...

    def cancel(self, request_id: int) -> None:
        """End a request early and free what it holds; its last increment says CANCELLED. Unknown ids are ignored."""
        ...

    def register_lora(self, task_id: int, weights: bytes, config: bytes) -> None:
        """Make the adapter of a task known, for requests with ``lora_task_id``.

        ``weights`` is float16 [modules, values], ``config`` int32 [modules, 3] (module, layer, rank), both in upstream's
        layout and flat; ``len(config) / 12`` is the number of modules.
        """
        ...

    def stats(self) -> EngineStats: ...

    def close(self) -> None:
        """Stop the engine; requests still in flight get an error increment."""
        ...
