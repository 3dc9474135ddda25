"""Token sampling in numpy, for the parameters that OpenVINO's own sampler lacks. Pure functions.

Order and meaning follow OpenVINO GenAI's sampler (penalties on logits, then temperature, top-k, top-p), so a greedy choice is
the same in both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serving.engines.protocol import Sampling

Logits = NDArray[np.float32]


def log_softmax(logits: Logits) -> NDArray[np.float64]:
    """Natural logarithms of the softmax over the last axis."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    normalised: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normalised


def shape_logits(logits: Logits, sampling: Sampling, prompt: Sequence[int], output: Sequence[int]) -> NDArray[np.float64]:
    """Logits [vocabulary] after bias, penalties and bans, for the token that follows ``prompt + output``.

    A banned token is -inf: the end token before ``min_tokens``, and a token that would complete a bad word. As in
    TensorRT-LLM a bad word may start in the prompt.
    """
    shaped = logits.astype(np.float64)
    if sampling.embedding_bias:
        shaped += np.frombuffer(sampling.embedding_bias, dtype=np.float32)
    _penalise(shaped, sampling, prompt, output)
    if sampling.end_id is not None and len(output) < sampling.min_tokens:
        shaped[sampling.end_id] = -np.inf
    if sampling.bad_words:
        longest = max(len(word) for word in sampling.bad_words)
        tail = (*prompt[-longest:], *output[-longest:])
        for word in sampling.bad_words:
            if len(word) == 1 or tail[-len(word) + 1 :] == word[:-1]:
                shaped[word[-1]] = -np.inf
    return shaped


def _penalise(logits: NDArray[np.float64], sampling: Sampling, prompt: Sequence[int], output: Sequence[int]) -> None:
    if sampling.repetition_penalty != 1.0:
        seen = np.unique([*prompt, *output])
        values = logits[seen]
        logits[seen] = np.where(values < 0, values * sampling.repetition_penalty, values / sampling.repetition_penalty)
    if output and (sampling.presence_penalty or sampling.frequency_penalty):
        tokens, counts = np.unique(output, return_counts=True)
        logits[tokens] -= sampling.presence_penalty + sampling.frequency_penalty * counts


def choose(shaped: NDArray[np.float64], sampling: Sampling, top_p: float, random: np.random.Generator) -> int:
    """The next token: the most likely one, or a sample with temperature from the ``top_k`` most likely within ``top_p``."""
    if sampling.greedy:
        return int(shaped.argmax())
    order = np.argsort(-shaped, kind="stable")
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    scaled = shaped[order] / sampling.temperature
    weights = np.exp(scaled - scaled[0])
    weights /= weights.sum()
    before = np.cumsum(weights) - weights  # the most likely token always stays
    weights = np.where(before < top_p, weights, 0.0)
    cumulative = np.cumsum(weights)
    drawn = np.searchsorted(cumulative, random.random() * cumulative[-1], side="right")
    return int(order[min(int(drawn), len(order) - 1)])


def next_top_p(top_p: float, token: int, sampling: Sampling) -> float:
    """The top-p limit for the token after ``token``."""
    if token == sampling.top_p_reset_id:
        return sampling.top_p
    return max(top_p * sampling.top_p_decay, sampling.top_p_min)


def ends_with_stop_word(output: Sequence[int], stop_words: Sequence[Sequence[int]]) -> bool:
    """Whether the output ends with one of the words."""
    return any(len(word) <= len(output) and tuple(output[-len(word) :]) == tuple(word) for word in stop_words)
