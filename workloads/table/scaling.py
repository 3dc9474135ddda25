"""Lengths of a trace scaled: the prefixes that its prompts share, their whole input, and their output.

NVIDIA's generators of prefix data (``prefix_len_multiplier`` of Dynamo and AIPerf) stretch the blocks that more than one
request has, and keep what is a request's own. So does ``prefix``, row by row: each request of the trace stays, at its time.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from workloads.elements.errors import Field, WorkloadError
from workloads.elements.request import LONGEST_TOKENS
from workloads.table.block_prefixes import first_with_prefix
from workloads.table.workload import SCHEMA, Workload

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scaling:
    """Factors of lengths in tokens, above 0, rounded to whole tokens of at least 1.

    ``input`` scales whole prompts. ``prefix`` scales the leading blocks that a prompt shares with another of the trace, on top
    of ``input``: with n such blocks, round(n · prefix · input) are left, at least 1. Both keep whole blocks whole, and equal
    hashes equal: a block is repeated, or left out, by its depth alone, so prompts have the same prefix in common after it as
    before.
    """

    prefix: float = 1.0
    input: float = 1.0
    output: float = 1.0

    @property
    def changes(self) -> bool:
        """Whether any length changes."""
        return (self.prefix, self.input, self.output) != (1.0, 1.0, 1.0)

    def entries(self) -> dict[str, float]:
        """The factors that are not 1, by name, for the manifest; nothing where none is."""
        factors = {"prefix_factor": self.prefix, "input_factor": self.input, "output_factor": self.output}
        return {name: factor for name, factor in factors.items() if factor != 1.0}

    def scaled(self, workload: Workload) -> Workload:
        """The workload with these lengths; its rows stay in order. Raises WorkloadError where they cannot be scaled."""
        if not self.changes:
            return workload
        self.check(workload)
        table = workload.table
        columns = {field.name: table[field.name] for field in SCHEMA}
        inputs, outputs = (table[column].to_numpy() for column in ("input_tokens", "output_tokens"))
        block_tokens = workload.facts.block_tokens
        if block_tokens is not None and (self.prefix, self.input) != (1.0, 1.0):
            hashes, inputs = self._scaled_blocks(table["block_hashes"].combine_chunks(), inputs, block_tokens)
            columns["block_hashes"] = pa.chunked_array([hashes])
        else:
            inputs = _rounded(inputs * self.input)
        for column, values in (("input_tokens", inputs), ("output_tokens", _rounded(outputs * self.output))):
            self._check_lengths(values)
            columns[column] = pa.chunked_array([pa.array(values)])
        return Workload(pa.Table.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA), workload.facts)

    def check(self, workload: Workload) -> None:
        """Raise WorkloadError for a factor of lengths that ``workload`` does not have."""
        name, table = workload.facts.source, workload.table
        if not self.changes:
            return
        if table["prompt"].null_count < len(workload):
            raise WorkloadError(*_fields(self), f": {name} has prompts of its own, of which the length is that of their text")
        if table["input_tokens"].null_count or table["output_tokens"].null_count:
            raise WorkloadError(*_fields(self), f": {name} has rows without lengths")
        if self.prefix != 1.0 and workload.facts.block_tokens is None:
            raise WorkloadError(
                Field("prefix_factor"), f": {name} has no block hashes, so nothing that its prompts share is known"
            )

    def _check_lengths(self, tokens: Integers) -> None:
        if tokens.max(initial=0) > LONGEST_TOKENS:
            raise WorkloadError(*_fields(self), f": requests more than {LONGEST_TOKENS:,} tokens in a request; lower it")

    def _scaled_blocks(self, hashes: pa.ListArray, inputs: Integers, block_tokens: int) -> tuple[pa.ListArray, Integers]:
        """The hashes of each row, and its tokens."""
        factor = self.prefix * self.input
        blocks: Integers = pc.fill_null(pc.list_value_length(hashes), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        flat: Integers = hashes.flatten().to_numpy(zero_copy_only=False)
        shared = shared_blocks(flat, blocks)
        shared_tokens = np.minimum(shared * block_tokens, inputs)
        own = inputs - shared_tokens
        own = np.where(own > 0, _rounded(own * self.input), 0)
        kept = np.where(shared > 0, _rounded(shared * factor), 0)
        tokens = kept * block_tokens - (shared * block_tokens - shared_tokens) + own  # a partial last block stays partial
        self._check_lengths(tokens)  # before the hashes of all these blocks fill the memory
        made = array("q")
        ends = [0]
        starts = np.cumsum(blocks) - blocks
        rows = zip(starts.tolist(), blocks.tolist(), shared.tolist(), (-(-own // block_tokens)).tolist(), strict=True)
        for row, (start, count, first, own_blocks) in enumerate(rows):
            of_row = flat[start : start + count].tolist()
            made.extend(_stretched(of_row[:first], factor))
            made.extend(_own(of_row, row, first, own_blocks))
            ends.append(len(made))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(np.frombuffer(made, np.int64))), tokens


def shared_blocks(flat: Integers, blocks: Integers) -> Integers:
    """The number of leading blocks of each row with which another row begins, too. ``flat`` has the hashes of all rows,
    ``blocks`` their number in each; shape [rows].
    """
    row = np.repeat(np.arange(blocks.size), blocks)
    first = first_with_prefix(flat, blocks)
    is_shared = np.bincount(first, minlength=flat.size)[first] > 1
    counts: Integers = np.bincount(row[is_shared], minlength=blocks.size).astype(np.int64)
    return counts


def _stretched(hashes: Sequence[int], factor: float) -> Iterator[int]:
    """A shared prefix of ``factor`` times as many blocks; a block that is repeated has a hash that follows from its own."""
    before = 0
    for depth, block_hash in enumerate(hashes, start=1):
        upto = int(_rounded(np.array(depth * factor)))
        for copy in range(upto - before):
            yield block_hash if copy == 0 else _derived(block_hash, copy)
        before = upto


def _own(hashes: Sequence[int], row: int, first: int, blocks: int) -> Iterator[int]:
    """``blocks`` hashes that no other row has: those of the row from the block ``first`` on, and more that follow from them."""
    known = hashes[first : first + blocks]
    yield from known
    for copy in range(blocks - len(known)):
        yield _derived(hashes[-1] if hashes else 0, row, copy)


def _derived(*numbers: int) -> int:
    """A hash that follows from ``numbers``, whatever else is in the trace."""
    packed = b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little", signed=True)


def _rounded(tokens: NDArray[np.float64]) -> Integers:
    whole: Integers = np.maximum(1, np.floor(tokens + 0.5)).astype(np.int64)
    return whole


def _fields(scaling: Scaling) -> list[str]:
    """The factors as parts of an error's sentence."""
    parts: list[str] = []
    for name, factor in scaling.entries().items():
        parts += [", "] if parts else []
        parts += [Field(name), f" {factor:g}"]
    return parts
