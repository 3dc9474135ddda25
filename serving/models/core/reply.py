"""Responses that hold more than tokens: beams, log probabilities, logits, indices and performance metrics."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from serving.engines.protocol import Beam, Details, Increment, PerfMetrics
from serving.models.core.request import CoreRequest
from serving.text.detokenization import END_OF_SEQUENCE, MORE_FOLLOWS, next_context

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class SharedSender:
    """One request's response sender, shared by its rows and sequences: FINAL goes out with the last of them."""

    def __init__(self, sender: Any, parts: int) -> None:
        self._sender = sender
        self._left = parts
        self._lock = threading.Lock()

    def send(self, response: Any = None, flags: int = 0) -> None:
        with self._lock:
            if flags == _FINAL:
                self._left -= 1
                flags = 0 if self._left else _FINAL
            if response is not None:
                self._sender.send(response, flags=flags)
            elif flags == _FINAL:
                self._sender.send(flags=flags)

    def is_cancelled(self) -> bool:
        """Never asked after the last response: Triton 24.10 then reads freed memory."""
        with self._lock:
            return self._left > 0 and bool(self._sender.is_cancelled())


class RichAnswer:
    """Makes the responses of one request from what the engine delivered."""

    def __init__(self, request: CoreRequest, arrival_ns: int, logits_dtype: Any, vocabulary_size: int) -> None:
        self._request = request
        self._arrival_ns = arrival_ns
        self._logits_dtype = logits_dtype
        self._vocabulary_size = vocabulary_size
        self._cumulative_log_prob = 0.0
        self._context: list[int] = []

    def tensors(self, increments: Sequence[Increment], is_last: bool) -> list[Any]:
        """The tensors of one response that carries all these increments; those the client did not ask for are left out."""
        beams, context_logits, perf = self._gather(increments)
        values = self._tokens(beams, is_last)
        returns = self._request.returns
        if returns.log_probs:
            values |= _log_probs(beams)
        if returns.context_logits and context_logits:
            values["context_logits"] = self._logits(context_logits)[np.newaxis]
        if returns.generation_logits:
            values["generation_logits"] = self._generation_logits(beams)
        if returns.perf_metrics:
            values |= _perf_metrics(self._arrival_ns, perf)
        wanted = self._request.wanted_outputs
        return [pb_utils.Tensor(name, value) for name, value in values.items() if name in wanted]

    def _gather(self, increments: Sequence[Increment]) -> tuple[tuple[Beam, ...], bytes, PerfMetrics]:
        details = [increment.details or Details() for increment in increments]
        context_logits = b"".join(detail.context_logits for detail in details)
        perf = next((detail.perf for detail in reversed(details) if detail.perf is not None), PerfMetrics())
        if self._request.sampling.beam_width > 1:
            beams = tuple(beam for detail in details for beam in detail.beams)
            return beams or (Beam((), 0.0),) * self._request.sampling.return_beams, context_logits, perf
        log_probs = tuple(value for detail in details for value in detail.log_probs)
        self._cumulative_log_prob += sum(log_probs)
        tokens = tuple(token for increment in increments for token in increment.token_ids)
        logits = b"".join(detail.generation_logits for detail in details)
        return (Beam(tokens, self._cumulative_log_prob, log_probs, logits),), context_logits, perf

    def _tokens(self, beams: Sequence[Beam], is_last: bool) -> dict[str, NDArray[Any]]:
        request = self._request
        prompt = [] if request.exclude_input else request.input_ids
        sequences = [[*prompt, *beam.token_ids] for beam in beams]
        output_ids = _padded(sequences, request.pad_id, np.int32)
        values: dict[str, NDArray[Any]] = {
            "output_ids": output_ids[np.newaxis],
            "sequence_length": np.array([[len(sequence) for sequence in sequences]], dtype=np.int32),
            "detokenization_context": self._detokenization_context(beams, is_last),
        }
        if request.batch_index is not None:
            values["batch_index"] = _int32(request.batch_index)
        if request.sequence_index is not None:
            values["sequence_index"] = _int32(request.sequence_index)
        if request.return_num_input_tokens:
            values["num_input_tokens"] = _int32(len(request.input_ids))
        if request.return_num_output_tokens:
            values["num_output_tokens"] = _int32(sum(len(beam.token_ids) for beam in beams))
        return values

    def _detokenization_context(self, beams: Sequence[Beam], is_last: bool) -> NDArray[np.int32]:
        if self._request.sampling.beam_width > 1:  # every beam is whole
            return np.zeros((1, 0), dtype=np.int32)
        context = [END_OF_SEQUENCE if is_last else MORE_FOLLOWS, *self._context]
        self._context = next_context(self._context, beams[0].token_ids, self._request.special_ids)
        return np.array([context], dtype=np.int32)

    def _generation_logits(self, beams: Sequence[Beam]) -> NDArray[Any]:
        """[1, beam, tokens, vocabulary]; behind the end of a shorter beam stand zeros."""
        rows = [self._logits(beam.generation_logits) for beam in beams]
        longest = max(len(row) for row in rows)
        padded = np.zeros((1, len(rows), longest, self._vocabulary_size), dtype=self._logits_dtype)
        for number, row in enumerate(rows):
            padded[0, number, : len(row)] = row
        return padded

    def _logits(self, values: bytes) -> NDArray[Any]:
        logits: NDArray[Any] = np.frombuffer(values, dtype=np.float32).reshape(-1, self._vocabulary_size)
        return logits.astype(self._logits_dtype, copy=False)


def _log_probs(beams: Sequence[Beam]) -> dict[str, NDArray[Any]]:
    return {
        "cum_log_probs": np.array([[beam.cumulative_log_prob for beam in beams]], dtype=np.float32),
        "output_log_probs": _padded([beam.log_probs for beam in beams], 0.0, np.float32)[np.newaxis],
    }


def _perf_metrics(arrival_ns: int, perf: PerfMetrics) -> dict[str, NDArray[Any]]:
    times = {
        "arrival_time_ns": arrival_ns,
        "first_scheduled_time_ns": perf.first_scheduled_time_ns,
        "first_token_time_ns": perf.first_token_time_ns,
        "last_token_time_ns": perf.last_token_time_ns,
    }
    counts = {
        "kv_cache_alloc_new_blocks": perf.kv_new_blocks,
        "kv_cache_reused_blocks": perf.kv_reused_blocks,
        "kv_cache_alloc_total_blocks": perf.kv_total_blocks,
        "total_accepted_draft_tokens": perf.accepted_draft_tokens,
        "total_draft_tokens": perf.draft_tokens,
    }
    rate = perf.accepted_draft_tokens / perf.draft_tokens if perf.draft_tokens else 0.0
    return {
        **{name: np.array([[value]], dtype=np.int64) for name, value in times.items()},
        **{name: _int32(value) for name, value in counts.items()},
        "acceptance_rate": np.array([[rate]], dtype=np.float32),
    }


def _padded(rows: Sequence[Sequence[Any]], padding: Any, dtype: Any) -> NDArray[Any]:
    """[rows, longest]"""
    padded = np.full((len(rows), max(len(row) for row in rows)), padding, dtype=dtype)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded


def _int32(value: int) -> NDArray[np.int32]:
    return np.array([[value]], dtype=np.int32)
