"""Sampling parameters of a request of the core model: parsing and validation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from serving.engines.protocol import EngineLimits, Guide, GuideType, Sampling
from serving.errors import RequestError
from serving.models.core.row import Row, check_tokens

NO_END_ID = -1  # in TensorRT-LLM: no token ends the sequence
_LARGEST_WORD_LIST = 4096  # tokens


def read_sampling(row: Row, limits: EngineLimits, max_beam_width: int) -> Sampling:
    """Parse the sampling parameters of one row. Raises RequestError with the tensor's name and the problem."""
    max_tokens = row.scalar("request_output_len")
    if max_tokens is None or max_tokens < 1:
        raise RequestError(f"request_output_len must be at least 1, not {max_tokens}")
    min_tokens = row.first("min_tokens", "min_length", default=0)
    if not 0 <= min_tokens <= max_tokens:
        raise RequestError(f"min_tokens must lie in [0, request_output_len = {max_tokens}], not {min_tokens}")
    lengths = Sampling(max_tokens, row.token("end_id", limits.vocabulary_size, NO_END_ID), min_tokens)
    sampling = replace(
        _with_distribution(row, lengths, limits),
        repetition_penalty=row.number("repetition_penalty", 1.0, np.nextafter(0.0, 1.0), None),
        presence_penalty=row.number("presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=row.number("frequency_penalty", 0.0, -2.0, 2.0),
        seed=row.first("seed", "random_seed", default=0),
        beam_width=row.number("beam_width", 1, 1, max_beam_width),
        return_beams=1,
        length_penalty=row.number("len_penalty", 0.0, -1e3, 1e3),
        early_stopping=bool(row.scalar("early_stopping", True)),
        beam_search_diversity_rate=row.number("beam_search_diversity_rate", 0.0, 0.0, None),
        stop_words=_words(row, "stop_words_list", limits),
        bad_words=_words(row, "bad_words_list", limits),
        embedding_bias=_embedding_bias(row, limits),
        guide=_guide(row),
        lora_task_id=row.scalar("lora_task_id") or None,  # upstream's clients send 0 for no adapter
        draft_ids=tuple(row.tokens("draft_input_ids", limits.vocabulary_size)),
    )
    _check_draft(row, sampling, limits)
    return sampling


def _with_distribution(row: Row, sampling: Sampling, limits: EngineLimits) -> Sampling:
    """``sampling`` with temperature, top-k and top-p.

    TensorRT-LLM's rule: top_k 1, or neither top_k nor top_p, is greedy; if one of them is 0, only the other one limits.
    """
    top_k = row.number("runtime_top_k", 0, 0, None)
    top_p = row.number("runtime_top_p", 0.0, 0.0, 1.0)
    temperature = row.number("temperature", 1.0, 0.0, None)
    greedy = top_k == 1 or (top_k == 0 and top_p == 0.0) or temperature == 0.0
    decay = row.number("runtime_top_p_decay", 1.0, np.nextafter(0.0, 1.0), 1.0)
    top_p_min = row.number("runtime_top_p_min", 0.0, 0.0, 1.0)
    reset_id = row.token("runtime_top_p_reset_ids", limits.vocabulary_size)
    decays = decay != 1.0 and not greedy  # otherwise minimum and reset have no effect
    return replace(
        sampling,
        greedy=greedy,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p or 1.0,
        top_p_decay=decay if decays else 1.0,
        top_p_min=top_p_min if decays else 0.0,
        top_p_reset_id=reset_id if decays else None,
    )


def _words(row: Row, name: str, limits: EngineLimits) -> tuple[tuple[int, ...], ...]:
    """Token sequences of a [2, n] word list: row 0 the ids of all words, row 1 the end of each word, then -1."""
    table = row.array(name)
    if table is None:
        return ()
    if table.ndim != 2 or table.shape[0] != 2:
        raise RequestError(f"{name} must have shape [batch, 2, n], but a row of it has shape {list(table.shape)}")
    if table.shape[1] > _LARGEST_WORD_LIST:
        raise RequestError(f"{name} holds {table.shape[1]} tokens; the most is {_LARGEST_WORD_LIST}")
    ids, ends = table.tolist()
    words: list[tuple[int, ...]] = []
    start = 0
    for end in ends:
        if end < 0:
            break
        if not start < end <= len(ids):
            raise RequestError(f"{name}: word ends must grow, from at least 1 to at most {len(ids)}, and -1 ends the list")
        words.append(tuple(ids[start:end]))
        start = end
    if start:
        check_tokens(name, table[0, :start], limits.vocabulary_size)
    return tuple(words)


def _embedding_bias(row: Row, limits: EngineLimits) -> bytes:
    bias = row.array("embedding_bias")
    if bias is None:
        return b""
    if bias.ndim != 1 or len(bias) > limits.vocabulary_size:
        raise RequestError(f"embedding_bias must hold {limits.vocabulary_size} values a row, but its row is {list(bias.shape)}")
    if not np.isfinite(bias).all():
        raise RequestError("embedding_bias must be finite")
    # A tokenizer may have fewer tokens than the network's vocabulary, which is often rounded up.
    whole = np.zeros(limits.vocabulary_size, dtype=np.float32)
    whole[: len(bias)] = bias
    return whole.tobytes() if bias.any() else b""


def _guide(row: Row) -> Guide | None:
    kind, text = row.text("guided_decoding_guide_type"), row.text("guided_decoding_guide")
    if not kind:
        if text:
            raise RequestError("guided_decoding_guide was sent without guided_decoding_guide_type")
        return None
    try:
        guide_type = GuideType(kind)
    except ValueError:
        known = ", ".join(known.value for known in GuideType)
        raise RequestError(f"guided_decoding_guide_type is {kind!r}; known: {known}") from None
    if guide_type is GuideType.JSON:
        return Guide(guide_type)
    if not text:
        raise RequestError(f"guided_decoding_guide_type {kind} needs guided_decoding_guide")
    return Guide(guide_type, text)


def _check_draft(row: Row, sampling: Sampling, limits: EngineLimits) -> None:
    """Validate draft inputs. Draft tokens are accepted where greedy decoding yields the same, regardless of draft logits."""
    logits: Any = row.array("draft_logits")
    if row.scalar("draft_acceptance_threshold") is not None:
        raise RequestError(
            "draft_acceptance_threshold: not supported; this engine accepts the draft tokens that it would have chosen itself"
        )
    if not sampling.draft_ids:
        if logits is not None:
            raise RequestError("draft_logits was sent without draft_input_ids")
        return
    if not sampling.greedy:
        raise RequestError("draft_input_ids needs greedy decoding: runtime_top_k 1, or neither runtime_top_k nor runtime_top_p")
    if len(sampling.draft_ids) >= limits.context_tokens:
        raise RequestError(f"draft_input_ids holds {len(sampling.draft_ids)} tokens, more than the context")
    if logits is not None and logits.shape != (len(sampling.draft_ids), limits.vocabulary_size):
        raise RequestError(
            f"draft_logits must have a row of {limits.vocabulary_size} for each draft token, not the shape {list(logits.shape)}"
        )
