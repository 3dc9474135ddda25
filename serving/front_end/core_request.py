"""The request to Triton's core model for one prompt."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from serving.client.request import GenerationRequest, ModelInterface, Scalar
from serving.front_end.generation import Generation
from serving.front_end.request_times import STAMP_OUTPUTS, TIMES_INPUT, not_timed

NO_END_ID = -1
_SEEDS = 1 << 64


def core_request(
    model: ModelInterface, token_ids: Sequence[int], generation: Generation, end_ids: Sequence[int], request_id: str
) -> GenerationRequest:
    """The request; ``generation.max_tokens`` is known, and ``end_ids`` are those that end a sequence. Raises ApiError if times
    of the engine are requested, and the model has no input for that.

    The engine ends a sequence with any word of a list, and its ``min_tokens`` holds for ``end_id`` alone: with ``min_tokens``
    the further ends are left to the reader of its tokens (``Choice``).
    """
    words = () if generation.min_tokens else end_ids[1:]
    sampling = generation.sampling
    scalars: dict[str, Scalar] = {
        "request_output_len": generation.max_tokens or 1,
        "end_id": end_ids[0] if end_ids else NO_END_ID,
        "streaming": streams_tokens(model, generation) or len(end_ids) > 1 + len(words),
        "seed": (secrets.randbits(64) if sampling.seed is None else sampling.seed) % _SEEDS,
        "exclude_input_in_output": True,
    }
    if sampling.greedy:
        scalars["top_k"] = 1
    else:
        scalars |= {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
    for name in ("presence_penalty", "frequency_penalty"):
        if value := getattr(sampling, name):
            scalars[name] = value
    if sampling.repetition_penalty != 1.0:
        scalars["repetition_penalty"] = sampling.repetition_penalty
    if generation.min_tokens:
        scalars["min_tokens"] = generation.min_tokens
    if sampling.guide is not None:
        scalars["guided_decoding_guide_type"], guide = sampling.guide
        if guide:
            scalars["guided_decoding_guide"] = guide
    if generation.n > 1:
        scalars["num_return_sequences"] = generation.n
    if generation.top_logprobs is not None:
        scalars["return_generation_logits" if generation.top_logprobs else "return_log_probs"] = True
    if generation.include_metrics:
        scalars |= _requested_times(model)
    if "exclude_input_in_output" not in model.inputs:  # up to release 0.11, where streamed responses alone have no prompt
        del scalars["exclude_input_in_output"]
    return GenerationRequest(
        input_ids=(tuple(token_ids),),
        scalars=scalars,
        arrays={"stop_words_list": _single_tokens(words)} if words else {},
        requested_outputs=_outputs(generation),
        request_id=request_id,
    )


def streams_tokens(model: ModelInterface, generation: Generation) -> bool:
    """Whether the core model sends tokens as they come: for a stop text, too, which ends the request early."""
    return generation.stream or bool(generation.stop) or "exclude_input_in_output" not in model.inputs


def _requested_times(model: ModelInterface) -> Mapping[str, Scalar]:
    if TIMES_INPUT not in model.inputs:  # up to release 0.18
        raise not_timed()
    return {TIMES_INPUT: True}


def _outputs(generation: Generation) -> tuple[str, ...]:
    names = ["output_ids", "sequence_length"]
    if generation.top_logprobs is not None:
        names.append("generation_logits" if generation.top_logprobs else "output_log_probs")
    if generation.n > 1:
        names.append("sequence_index")
    if generation.include_metrics:
        names += STAMP_OUTPUTS
    return tuple(names)


def _single_tokens(ids: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The word list [2, n] of words of one token each."""
    return np.array([ids, range(1, len(ids) + 1)], dtype=np.int32)
