"""Responses of the core model: builders that turn the engine's increments into Triton's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from serving.engines.protocol import Beam, Details, Increment, PerfMetrics
from serving.models.core.request import CoreRequest
from serving.models.parameters import failure_response
from serving.text.detokenization import END_OF_SEQUENCE, MORE_FOLLOWS, next_context

Piece = TypeVar("Piece")


class ResponseBuilder(Protocol[Piece]):
    """Builds the responses of one request from pieces of increments, in order."""

    request: CoreRequest

    def pieces(self, increment: Increment) -> Sequence[Piece]:
        """What an increment contributes to the next response; empty if nothing. Called on the engine's thread."""
        ...

    def token_count(self, pieces: Sequence[Piece]) -> int:
        """Number of generated tokens in these pieces."""
        ...

    def response(self, pieces: Sequence[Piece], is_last: bool) -> Any:
        """An ``InferenceResponse`` with all these pieces. Called on the sending thread."""
        ...


class TokenResponses:
    """Responses with tokens and their counts only; a piece is a token id."""

    def __init__(self, request: CoreRequest) -> None:
        self.request = request
        self._context: list[int] = []
        self._lengths: dict[int, Any] = {}  # the tensor sequence_length by its value, which a streamed answer repeats

    def pieces(self, increment: Increment) -> Sequence[int]:
        return increment.token_ids

    def token_count(self, pieces: Sequence[int]) -> int:
        return len(pieces)

    def response(self, pieces: Sequence[int], is_last: bool) -> Any:
        request = self.request
        wanted = request.wanted_outputs
        output_ids = pieces if request.exclude_input else [*request.echoed_ids, *pieces]
        tensors = []
        if "output_ids" in wanted:
            tensors.append(_int32_tensor("output_ids", output_ids, (1, 1, len(output_ids))))
        if "sequence_length" in wanted:
            tensors.append(self._length(len(output_ids)))
        if "detokenization_context" in wanted:
            context = [END_OF_SEQUENCE if is_last else MORE_FOLLOWS, *self._context]
            tensors.append(_int32_tensor("detokenization_context", context, (1, len(context))))
            self._context = next_context(self._context, pieces, request.special_ids)
        if "num_input_tokens" in wanted and request.return_num_input_tokens:
            tensors.append(_int32_tensor("num_input_tokens", [len(request.input_ids)], (1, 1)))
        if "num_output_tokens" in wanted and request.return_num_output_tokens:
            tensors.append(_int32_tensor("num_output_tokens", [len(pieces)], (1, 1)))
        if request.zeros:
            tensors += [pb_utils.Tensor(name, values) for name, values in request.zeros.items()]
        return pb_utils.InferenceResponse(tensors)

    def _length(self, tokens: int) -> Any:
        tensor = self._lengths.get(tokens)
        if tensor is None:
            tensor = self._lengths[tokens] = _int32_tensor("sequence_length", [tokens], (1, 1))
        return tensor


class DetailedResponses:
    """Responses with beams, log probabilities, logits, indices or performance metrics; a piece is a whole increment."""

    def __init__(self, request: CoreRequest, arrival_ns: int, logits_dtype: Any, vocabulary_size: int) -> None:
        self.request = request
        self._arrival_ns = arrival_ns
        self._logits_dtype = logits_dtype
        self._vocabulary_size = vocabulary_size
        self._cumulative_log_prob = 0.0
        self._context: list[int] = []

    def pieces(self, increment: Increment) -> Sequence[Increment]:
        return (increment,) if increment.token_ids or increment.details is not None else ()

    def token_count(self, pieces: Sequence[Increment]) -> int:
        beams = [beam for increment in pieces if increment.details for beam in increment.details.beams]
        return sum(len(increment.token_ids) for increment in pieces) + sum(len(beam.token_ids) for beam in beams)

    def response(self, pieces: Sequence[Increment], is_last: bool) -> Any:
        try:
            return pb_utils.InferenceResponse(self._tensors(pieces, is_last))
        except MemoryError:
            return failure_response("the response does not fit into memory; request fewer logits")

    def _tensors(self, increments: Sequence[Increment], is_last: bool) -> list[Any]:
        """The requested tensors of one response that carries all these increments."""
        beams, context_logits, perf = self._merged(increments)
        values = {**self.request.zeros, **self._token_tensors(beams, is_last)}
        returns = self.request.returns
        if returns.log_probs:
            values |= _log_probs(beams)
        if returns.context_logits and context_logits:
            values["context_logits"] = self._logits(context_logits)[np.newaxis]
        if returns.generation_logits:
            values["generation_logits"] = self._generation_logits(beams)
        if returns.perf_metrics:
            values |= _perf_metrics(self._arrival_ns, perf)
        wanted = self.request.wanted_outputs
        return [pb_utils.Tensor(name, value) for name, value in values.items() if name in wanted]

    def _merged(self, increments: Sequence[Increment]) -> tuple[tuple[Beam, ...], bytes, PerfMetrics]:
        details = [increment.details or Details() for increment in increments]
        context_logits = b"".join(detail.context_logits for detail in details)
        perf = next((detail.perf for detail in reversed(details) if detail.perf is not None), PerfMetrics())
        if self.request.sampling.beam_width > 1:
            beams = tuple(beam for detail in details for beam in detail.beams)
            return beams or (Beam((), 0.0),) * self.request.sampling.return_beams, context_logits, perf
        log_probs = tuple(value for detail in details for value in detail.log_probs)
        self._cumulative_log_prob += sum(log_probs)
        tokens = tuple(token for increment in increments for token in increment.token_ids)
        logits = b"".join(detail.generation_logits for detail in details)
        return (Beam(tokens, self._cumulative_log_prob, log_probs, logits),), context_logits, perf

    def _token_tensors(self, beams: Sequence[Beam], is_last: bool) -> dict[str, NDArray[Any]]:
        request = self.request
        prompt = [] if request.exclude_input else request.echoed_ids
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
        if self.request.sampling.beam_width > 1:  # a beam is complete text
            return np.zeros((1, 0), dtype=np.int32)
        context = [END_OF_SEQUENCE if is_last else MORE_FOLLOWS, *self._context]
        self._context = next_context(self._context, beams[0].token_ids, self.request.special_ids)
        return np.array([context], dtype=np.int32)

    def _generation_logits(self, beams: Sequence[Beam]) -> NDArray[Any]:
        """[1, beam, tokens, vocabulary]; shorter beams are padded with zeros."""
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
    """Array [rows, longest row]."""
    padded = np.full((len(rows), max(len(row) for row in rows)), padding, dtype=dtype)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded


def _int32(value: int) -> NDArray[np.int32]:
    return np.array([[value]], dtype=np.int32)


def _int32_tensor(name: str, values: Sequence[int], shape: tuple[int, ...]) -> Any:
    return pb_utils.Tensor(name, np.array(values, dtype=np.int32).reshape(shape))
