"""Requests of the core model: parsing and validation. Unsupported inputs are rejected, never ignored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.engines.protocol import TOKENS_ONLY, EngineLimits, Returns, Sampling
from serving.errors import RequestError
from serving.models.core.row import Row
from serving.models.core.sampling import read_sampling
from serving.models.unrequested import Zeros, zeros_for

_UNSUPPORTED_IF_NOT_EMPTY = frozenset(
    {
        "encoder_input_features",
        "encoder_output_lengths",
        "prompt_embedding_table",
        "prompt_vocab_size",
        "prompt_table_extra_ids",
        "cross_attention_mask",
        "mrope_rotary_cos_sin",
        "mrope_position_deltas",
        "context_phase_params",
        "skip_cross_attn_blocks",
        "retention_token_range_starts",
        "retention_token_range_ends",
        "retention_token_range_priorities",
        "retention_token_range_durations_ms",
        "retention_decode_priority",
        "retention_decode_duration_ms",
        "lookahead_window_size",
        "lookahead_ngram_size",
        "lookahead_verification_set_size",
    }
)


@dataclass(frozen=True)
class Deployment:
    """Settings of the deployment that apply to all requests; ``exclude_input`` is the default of ``exclude_input_in_output``.

    ``special_ids`` are tokens without text when special tokens are skipped. ``wraps_ids``: ids beyond the vocabulary are taken
    modulo its size; else they are refused. ``zeros`` are answered for outputs that are requested and have no value.
    """

    limits: EngineLimits
    decoupled: bool
    exclude_input: bool = False
    max_beam_width: int = 1
    max_num_sequences: int = 256
    special_ids: frozenset[int] = frozenset()
    wraps_ids: bool = False
    zeros: Zeros = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LoraWeights:
    """Adapter in a request: ``weights`` [modules, values], ``config`` [modules, 3]."""

    weights: NDArray[np.float16]
    config: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class CoreRequest:
    """A validated request of the core model: one row, one sequence (or one beam search).

    ``input_ids`` are the engine's; ``sent_ids`` the client's where they differ, since ids were wrapped.
    ``batch_index`` and ``sequence_index`` are set where the client sent several rows or requested several sequences.
    """

    input_ids: list[int]
    sampling: Sampling
    streaming: bool
    exclude_input: bool  # streamed responses never repeat the prompt, as in upstream's model
    return_num_input_tokens: bool
    return_num_output_tokens: bool
    wanted_outputs: frozenset[str]
    returns: Returns = TOKENS_ONLY
    pad_id: int = 0
    batch_index: int | None = None
    sequence_index: int | None = None
    lora: LoraWeights | None = None
    special_ids: frozenset[int] = frozenset()
    sent_ids: list[int] | None = None
    zeros: Zeros = field(default_factory=dict)

    @property
    def echoed_ids(self) -> list[int]:
        """The prompt that an answer repeats: as the client sent it."""
        return self.input_ids if self.sent_ids is None else self.sent_ids

    @property
    def is_plain(self) -> bool:
        """Whether its responses contain only tokens and their counts."""
        indexed = self.batch_index is not None or self.sequence_index is not None
        return not (indexed or self.returns.anything or self.sampling.beam_width > 1)


def parse_request(request: Any, deployment: Deployment) -> list[CoreRequest] | None:
    """Parse one Triton request to engine requests, one per row and sequence; None for a ``stop`` request.

    Raises RequestError with the tensor's name and the problem.
    """
    tensors: dict[str, NDArray[Any]] = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    if "stop" in tensors and tensors["stop"].any():
        return None
    for name in _UNSUPPORTED_IF_NOT_EMPTY & tensors.keys():
        if tensors[name].size > 0:
            raise RequestError(f"{name}: the embedded engine does not support it")
    ids = tensors.get("input_ids")
    if ids is None:
        raise RequestError("input_ids is missing")
    if ids.ndim != 2 or ids.shape[0] < 1:
        raise RequestError(f"input_ids must have shape [batch, length], but its shape is {list(ids.shape)}")
    rows = ids.shape[0]
    if rows > 1 and not deployment.decoupled:
        raise RequestError(
            f"input_ids holds {rows} rows: a batch in one request is only supported if model is deployed using decoupled mode"
        )
    wanted = frozenset(request.requested_output_names())
    return [sequence for index in range(rows) for sequence in _read_row(tensors, index, rows, wanted, deployment)]


def _read_row(
    tensors: Mapping[str, NDArray[Any]], index: int, rows: int, wanted: frozenset[str], deployment: Deployment
) -> Iterator[CoreRequest]:
    row = Row(tensors, index, rows)
    limits = deployment.limits
    streaming = bool(row.scalar("streaming", False))
    if streaming and not deployment.decoupled:
        raise RequestError("Streaming is only supported if model is deployed using decoupled mode.")
    sent_ids, input_ids = _prompt_ids(row, deployment)
    sampling = read_sampling(row, limits, deployment.max_beam_width)
    if len(input_ids) + sampling.max_tokens > limits.context_tokens:
        raise RequestError(
            f"the prompt has {len(input_ids)} tokens and request_output_len is {sampling.max_tokens}: "
            f"together more than the context length of {limits.context_tokens} tokens"
        )
    excluded = row.scalar("exclude_input_in_output")
    returns = _returns(row)
    one = CoreRequest(
        input_ids=input_ids,
        sent_ids=None if input_ids is sent_ids else sent_ids,
        sampling=sampling,
        streaming=streaming,
        exclude_input=streaming or (deployment.exclude_input if excluded is None else bool(excluded)),
        return_num_input_tokens=bool(row.scalar("return_num_input_tokens", False)),
        return_num_output_tokens=bool(row.scalar("return_num_output_tokens", False)),
        wanted_outputs=wanted,
        returns=returns,
        pad_id=row.scalar("pad_id", 0),
        batch_index=index if rows > 1 else None,
        lora=_lora(row, sampling),
        special_ids=deployment.special_ids,
        zeros=zeros_for(deployment.zeros, wanted),
    )
    if sampling.beam_width > 1:
        yield _beam_search(row, one)
    else:
        yield from _sequences(row, one, deployment)


def _beam_search(row: Row, single: CoreRequest) -> CoreRequest:
    """Validate a beam search; ``num_return_sequences`` is the number of its returned beams."""
    sampling = single.sampling
    if single.streaming:
        raise RequestError("streaming: the beams of a beam search are known at its end; omit streaming or set beam_width to 1")
    if sampling.beam_search_diversity_rate:
        raise RequestError("beam_search_diversity_rate: the embedded engine's beam search has no such penalty")
    incompatible: dict[str, object] = {
        "bad_words_list": sampling.bad_words,
        "stop_words_list": sampling.stop_words,
        "embedding_bias": sampling.embedding_bias,
        "draft_input_ids": sampling.draft_ids,
        "lora_task_id": sampling.lora_task_id,
        "guided_decoding_guide_type": sampling.guide,
        "runtime_top_p_decay": sampling.top_p_decay != 1.0,
    }
    for name, value in incompatible.items():
        if value:
            raise RequestError(f"{name}: the embedded engine cannot combine it with beam_width {sampling.beam_width}")
    beams = row.number("num_return_sequences", sampling.beam_width, 1, sampling.beam_width)
    return replace(single, sampling=replace(sampling, return_beams=beams))


def _sequences(row: Row, single: CoreRequest, deployment: Deployment) -> Iterator[CoreRequest]:
    """``num_return_sequences`` requests that differ in their seed; the first has the client's."""
    sampling = single.sampling
    exact: dict[str, object] = {"bad_words_list": sampling.bad_words, "embedding_bias": sampling.embedding_bias}
    exact |= {"draft_input_ids": sampling.draft_ids, "lora_task_id": sampling.lora_task_id}
    exact |= {"runtime_top_p_decay": sampling.top_p_decay != 1.0}
    if sampling.guide is not None:
        for name, value in exact.items():
            if value:
                raise RequestError(f"{name}: the embedded engine cannot combine it with guided decoding")
    count = row.number("num_return_sequences", 1, 1, deployment.max_num_sequences)
    if count == 1:
        yield single
        return
    if not deployment.decoupled:
        raise RequestError(
            f"num_return_sequences is {count}: more than 1 is only supported if model is deployed using decoupled mode"
        )
    for index in range(count):
        yield replace(single, sampling=replace(sampling, seed=_seed(sampling.seed, index)), sequence_index=index)


def _seed(seed: int, index: int) -> int:
    """Seed of a sequence: the client's for the first, a hash of it for the others."""
    if index == 0:
        return seed
    return int.from_bytes(hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest())


def _returns(row: Row) -> Returns:
    return Returns(
        log_probs=bool(row.scalar("return_log_probs", False)),
        context_logits=bool(row.scalar("return_context_logits", False)),
        generation_logits=bool(row.scalar("return_generation_logits", False)),
        perf_metrics=bool(row.scalar("return_perf_metrics", False)),
    )


def _sent_ids(row: Row) -> NDArray[Any]:
    """The prompt as the client sent it, int32 [length], length ≥ 1."""
    ids = row.array("input_ids")
    available = 0 if ids is None else len(ids)
    length = row.scalar("input_lengths")
    if length is None:
        raise RequestError("input_lengths is missing")
    if ids is None or not 1 <= length <= available:
        raise RequestError(f"input_lengths is {length}, but input_ids holds {available} tokens; a prompt needs at least one")
    return ids[:length]  # the rest is padding


def _prompt_ids(row: Row, deployment: Deployment) -> tuple[list[int], list[int]]:
    """The prompt as it was sent, and in the vocabulary: the same list where no id was wrapped. Raises RequestError."""
    ids = _sent_ids(row)
    sent_ids: list[int] = ids.tolist()
    size, least, most = deployment.limits.vocabulary_size, int(ids.min()), int(ids.max())
    if least >= 0 and most < size:
        return sent_ids, sent_ids
    if least < 0:
        raise RequestError(f"input_ids holds {least}, which is outside the vocabulary [0, {size})")
    if not deployment.wraps_ids:
        raise RequestError(
            f"input_ids holds {most}, which is outside the vocabulary [0, {size}); "
            "'bench serve --out_of_vocabulary_ids wrap' takes such ids modulo its size"
        )
    return sent_ids, [token % size for token in sent_ids]


def _lora(row: Row, sampling: Sampling) -> LoraWeights | None:
    weights, config = row.array("lora_weights"), row.array("lora_config")
    if weights is None and config is None:
        return None
    if weights is None or config is None:
        raise RequestError("lora_weights and lora_config go together; one of them is missing")
    if sampling.lora_task_id is None:
        raise RequestError("lora_weights needs a lora_task_id above 0")
    if weights.ndim != 2 or config.ndim != 2 or config.shape[1] != 3 or len(weights) != len(config):
        raise RequestError(
            "lora_weights must have shape [batch, modules, values] and lora_config [batch, modules, 3], but a row has "
            f"{list(weights.shape)} and {list(config.shape)}"
        )
    if not np.isfinite(weights).all():
        raise RequestError("lora_weights must be finite")
    return LoraWeights(np.ascontiguousarray(weights, dtype=np.float16), np.ascontiguousarray(config, dtype=np.int32))
