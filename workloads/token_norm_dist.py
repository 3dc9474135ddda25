"""The ``token_norm_dist`` workload: random token ids, with input and output lengths from normal distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError
from workloads.random_streams import Stream, generator
from workloads.request import LONGEST_TOKENS, Request


@dataclass(frozen=True, slots=True)
class NormalLengths:
    """Lengths in tokens: max(1, ceil(N(mean, stdev))), as upstream draws them; stdev 0 is constant."""

    mean: float
    stdev: float

    def draw(self, count: int, seed: int, stream: Stream) -> NDArray[np.int64]:
        """``count`` lengths, shape [count], each at least 1."""
        lengths = generator(seed, stream).normal(self.mean, self.stdev, count) if self.stdev else np.full(count, self.mean)
        whole: NDArray[np.int64] = np.maximum(1, np.ceil(lengths)).astype(np.int64)
        return whole

    def check(self, name: str) -> None:
        """Raise WorkloadError naming ``--<name>_mean`` or ``--<name>_stdev`` where they make no sense."""
        if not 1 <= self.mean <= LONGEST_TOKENS:
            raise WorkloadError(f"--{name}_mean {self.mean:g}: must lie between 1 and {LONGEST_TOKENS:,} tokens")
        if not 0 <= self.stdev <= LONGEST_TOKENS:
            raise WorkloadError(f"--{name}_stdev {self.stdev:g}: must lie between 0 and {LONGEST_TOKENS:,} tokens")


@dataclass(frozen=True, slots=True)
class NormalRequests:
    """Requests with normally distributed lengths, and how many were left out because they are too long."""

    requests: tuple[Request, ...]
    dropped_too_long: int


def normal_requests(
    inputs: NormalLengths,
    outputs: NormalLengths,
    count: int,
    token_ids: Sequence[int] | range,
    seed: int,
    max_input_len: int | None = None,
    context_tokens: int | None = None,
    decode: Callable[[Sequence[int]], str] | None = None,
    ignore_eos: bool = True,
) -> NormalRequests:
    """Draw ``count`` requests whose ids are uniform over ``token_ids`` (the vocabulary without its special tokens).

    Prompts longer than ``max_input_len``, or that with their output exceed ``context_tokens``, are dropped and counted.
    With ``decode``, prompts carry text too; its length in tokens is then unknown, since text need not encode back to
    the ids that it came from. Raises WorkloadError for impossible parameters.
    """
    inputs.check("input")
    outputs.check("output")
    input_lengths = inputs.draw(count, seed, Stream.INPUT_LENGTHS).tolist()
    output_lengths = outputs.draw(count, seed, Stream.OUTPUT_LENGTHS).tolist()
    if not len(token_ids):
        raise WorkloadError("the vocabulary has no token to draw from; give --vocab_size")
    ids = generator(seed, Stream.TOKEN_IDS)
    # a whole vocabulary may be a range of billions: it is never written out
    vocabulary = None if isinstance(token_ids, range) else np.asarray(token_ids, dtype=np.int64)
    requests: list[Request] = []
    for input_length, output_length in zip(input_lengths, output_lengths, strict=True):
        positions = ids.integers(0, len(token_ids), input_length)
        drawn = tuple(map(token_ids.__getitem__, positions.tolist()) if vocabulary is None else vocabulary[positions].tolist())
        if max_input_len is not None and input_length > max_input_len:
            continue
        if context_tokens is not None and input_length + output_length > context_tokens:
            continue
        requests.append(
            Request(
                output_tokens=output_length,
                prompt=None if decode is None else decode(drawn),
                input_ids=drawn,
                input_tokens=input_length if decode is None else None,
                ignore_eos=ignore_eos,
            )
        )
    if not requests:
        raise WorkloadError("every prompt is longer than allowed; lower --input_mean or raise --max_input_len")
    return NormalRequests(tuple(requests), count - len(requests))
