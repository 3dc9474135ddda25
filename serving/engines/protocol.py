"""Interface between the served models and the engines that run the network.

An engine owns a thread (or processes) and batches in flight: a request that is submitted while others run joins them at the
next step. Generated tokens are delivered through a callback, in order, on the engine's thread; the callback must not block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

# Upper bounds of histogram buckets in seconds: from one step of a small model to a long wait in the queue.
HISTOGRAM_BOUNDS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0,
)  # fmt: skip


class FinishReason(Enum):
    """Reason for the end of a sequence; the values are those of TensorRT-LLM's LLM API."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


class GuideType(Enum):
    """Kind of a guide; the values are upstream's ``guided_decoding_guide_type``."""

    JSON = "json"  # any JSON object or array
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    EBNF_GRAMMAR = "ebnf_grammar"


@dataclass(frozen=True, slots=True)
class Guide:
    """Constraint of guided decoding; ``text`` is the schema, regular expression or grammar, empty for JSON."""

    type: GuideType
    text: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters. The defaults are greedy decoding, as in TensorRT-LLM.

    ``end_id`` None means that no token ends the sequence. ``top_k`` 0 and ``top_p`` 1.0 mean no limit. ``top_p_decay``
    multiplies the limit of top-p after each token, down to ``top_p_min``; the token ``top_p_reset_id`` restores it.
    A sequence ends with the first of ``stop_words`` in its output, and never contains one of ``bad_words``; both are token
    sequences. ``embedding_bias`` is float32 [vocabulary], added to the logits; empty is none. ``beam_width`` above 1 is beam
    search; ``return_beams`` of the beams are delivered, best first. It ends with the first ``beam_width`` complete beams, or,
    without ``early_stopping``, where no other can become better. ``draft_ids`` are tokens proposed by a cheaper model: those
    that this model would have chosen are kept, and one more token follows.
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
    early_stopping: bool = True
    beam_search_diversity_rate: float = 0.0
    stop_words: tuple[tuple[int, ...], ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    embedding_bias: bytes = b""
    guide: Guide | None = None
    lora_task_id: int | None = None
    draft_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Returns:
    """Requested outputs beside the tokens, delivered as ``Increment.details``; they cost nothing unless requested."""

    log_probs: bool = False
    context_logits: bool = False
    generation_logits: bool = False
    perf_metrics: bool = False

    @property
    def anything(self) -> bool:
        return self.log_probs or self.context_logits or self.generation_logits or self.perf_metrics


@dataclass(frozen=True, slots=True)
class Beam:
    """One sequence of a beam search. ``generation_logits`` is float32 [tokens, vocabulary], empty unless requested."""

    token_ids: tuple[int, ...]
    cumulative_log_prob: float
    log_probs: tuple[float, ...] = ()
    generation_logits: bytes = b""


@dataclass(frozen=True, slots=True)
class PerfMetrics:
    """Times and KV blocks of a request so far. Times are ns of the monotonic clock, 0 before the event.

    ``kv_new_blocks`` were allocated for the prompt, ``kv_reused_blocks`` came from the cache, ``kv_total_blocks`` were
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
    """Outputs beside the tokens of an increment, as requested (``Returns``), or the beams of a beam search.

    ``log_probs`` belong to the increment's tokens. Logits are float32 in row order: ``generation_logits`` [tokens, vocabulary]
    of the increment's tokens, ``context_logits`` [prompt, vocabulary] once, on the first increment with details. ``beams`` are
    on the last increment of a beam search, whose ``token_ids`` are empty.
    """

    log_probs: tuple[float, ...] = ()
    context_logits: bytes = b""
    generation_logits: bytes = b""
    beams: tuple[Beam, ...] = ()
    perf: PerfMetrics | None = None


@dataclass(frozen=True, slots=True)
class Increment:
    """Tokens that one or several engine steps added to one request.

    ``finish`` is set on the last increment only; ``error`` ends the request, too.
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
    """Limits of a request: token ids lie in [0, vocabulary_size), prompt and output together fit the context."""

    vocabulary_size: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """Histogram of durations: counts per bucket (``HISTOGRAM_BOUNDS_S``, and one above), and their sum in seconds."""

    counts: tuple[int, ...] = (0,) * (len(HISTOGRAM_BOUNDS_S) + 1)
    sum_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """State of an engine after its latest step. Counters (``…_total``) and histograms are monotonic; the rest is current.

    ``active_requests`` have been submitted and not ended: ``waiting_requests`` of them have not started, ``context_requests``
    have no token yet, ``paused_requests`` were evicted from the cache. ``context_tokens`` are the prompt tokens of the requests
    in context phase. ``scheduled_requests_total / iterations_total`` over an interval is its mean batch size;
    ``kv_reused_blocks_total / kv_prompt_blocks_total`` is the hit rate of the KV cache. The memory is that of the engine's
    processes: ordinary, on the GPUs, and locked for transfers to them; None where the engine does not report it.
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
    memory_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    pinned_memory_bytes: int | None = None
    time_to_first_token: Histogram = Histogram()
    inter_token_latency: Histogram = Histogram()
    queue_time: Histogram = Histogram()


class SchedulerPolicy(Enum):
    """Condition for the start of a waiting request; the values are upstream's.

    GUARANTEED_NO_EVICT: when the cache has room for the worst case of this and all running requests. MAX_UTILIZATION: at once;
    when the cache is full, a request is paused and recomputed later.
    """

    GUARANTEED_NO_EVICT = "guaranteed_no_evict"
    MAX_UTILIZATION = "max_utilization"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings common to all engines, named after the parameters of upstream's ``tensorrt_llm/config.pbtxt``.

    The cache holds ``max_tokens_in_paged_kv_cache`` tokens, or as many as fit into ``kv_cache_free_gpu_mem_fraction`` of the
    memory that is free at load time (on a CPU: of the available RAM), whichever is less; on a GPU the memory alone decides by
    default. ``max_queue_size`` 0 is no limit; an empty ``guided_decoding_backend`` disables guided decoding. ``step_log`` is
    the absolute path of the file to which the openvino engine writes its steps (``serving/engines/step_log.py``); empty is
    none. ``min_step_time`` is the least time of its steps (``serving/engines/openvino/step_time.py``); empty is none.

    The last three are for an engine in another environment: its ``engine_python``, the GPUs that share each layer, and further
    settings of the library, as KEY=VALUE.
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
    step_log: str = ""
    min_step_time: str = ""
    engine_python: str = ""
    tensor_parallel_size: int = 1
    engine_arg: tuple[str, ...] = ()

    @property
    def gpu_cache_tokens(self) -> int | None:
        """``max_tokens_in_paged_kv_cache`` for a GPU; None, with the option's default, for as many as fit into its memory."""
        tokens = self.max_tokens_in_paged_kv_cache
        return None if tokens == EngineOptions().max_tokens_in_paged_kv_cache else tokens


@dataclass(frozen=True, slots=True)
class Front:
    """One of ``count`` processes that share an engine. Number 0 starts the engine's process; all others join it.

    ``name`` is the same for all of them and for no other engine of this machine. ``on_stop`` is called with the client's id
    where another front got a request to stop it; see ``SharedEngine``.
    """

    number: int
    count: int
    name: str
    on_stop: Callable[[str], None]


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

        ``request_id`` is unique among the requests in flight. With ``streaming`` the tokens of every step are delivered
        immediately; without, one increment at the end carries them all. Exactly one delivered increment is the last.
        An unsupported parameter results in an error increment that names it.
        """
        ...

    def cancel(self, request_id: int) -> None:
        """End a request early and free its resources; its last increment has CANCELLED. Unknown ids are ignored."""
        ...

    def register_lora(self, task_id: int, weights: bytes, config: bytes) -> None:
        """Register the adapter of a task, for requests with ``lora_task_id``.

        ``weights`` is float16 [modules, values], ``config`` int32 [modules, 3] (module, layer, rank), both in upstream's
        layout and flat; ``len(config) / 12`` is the number of modules.
        """
        ...

    def reset_prefix_cache(self) -> None:
        """Empty the prefix cache of an idle engine, so that no later prompt reuses an earlier one; counters go on.

        Blocks until it is empty. Raises EngineError where requests are in flight, or the engine cannot do it.
        """
        ...

    def stats(self) -> EngineStats: ...

    def close(self) -> None:
        """Stop the engine; requests still in flight get an error increment."""
        ...


class SharedEngine(Engine, Protocol):
    """An engine that several processes share; the ids of requests are unique within one of them."""

    def announce_stop(self, client_id: str) -> None:
        """Have every other front stop the requests with this client's id."""
        ...
