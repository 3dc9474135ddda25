"""Blocks of a trace of arrivals and lengths, put together: what Azure's and BurstGPT's traces share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from workloads.readers.arrivals_of_origin import Times, find_tick_ns, order_of_arrival
from workloads.readers.csv_columns import Block, Column, accepted_rows
from workloads.readers.rejects import RejectCounter
from workloads.readers.text_rows import nothing_read
from workloads.table.workload import Workload, WorkloadFacts


@dataclass(frozen=True)
class LengthBlock:
    """Requests of one block: int64 arrays of equal length, and ``texts`` of further columns."""

    arrival_ns: Times
    input_tokens: Times
    output_tokens: Times
    texts: dict[str, pa.StringArray]


def length_block(block: Block, arrivals: Column, lengths: tuple[Column, Column], rejects: RejectCounter) -> LengthBlock:
    """The rows of ``block`` that are requests; the others are counted.

    A row without input or output tokens is that of a failed request: its lengths cannot be sent, so it is left out.
    """
    inputs, outputs = lengths
    is_accepted = accepted_rows(block, (arrivals, inputs, outputs), rejects)
    has_tokens = (inputs.values > 0) & (outputs.values > 0)
    failed = np.flatnonzero(is_accepted & ~has_tokens).tolist()
    rejects.left_out_lines(failed, lambda row: (block.where(row), "the request failed: it has no tokens"))
    kept = is_accepted & has_tokens
    return LengthBlock(
        arrivals.values[kept],
        inputs.values[kept],
        outputs.values[kept],
        {name: texts.filter(pa.array(kept)) for name, texts in block.texts.items()},
    )


def joined(blocks: Sequence[LengthBlock], rejects: RejectCounter) -> LengthBlock:
    """All blocks as one, sorted by arrival. Raises DatasetError where no request is left."""
    if not any(block.arrival_ns.size for block in blocks):
        raise nothing_read(rejects)
    whole = LengthBlock(
        np.concatenate([block.arrival_ns for block in blocks]),
        np.concatenate([block.input_tokens for block in blocks]),
        np.concatenate([block.output_tokens for block in blocks]),
        {name: pa.concat_arrays([block.texts[name] for block in blocks]) for name in blocks[0].texts},
    )
    order = order_of_arrival(whole.arrival_ns)
    return whole if order is None else _taken(whole, order)


def length_workload(name: str, rows: LengthBlock, rejects: RejectCounter, columns: dict[str, pa.Array]) -> Workload:
    """The workload of sorted ``rows`` with further ``columns``."""
    facts = WorkloadFacts(name, rejects.path.name, tick_ns=find_tick_ns(rows.arrival_ns))
    lengths = {"input_tokens": rows.input_tokens, "output_tokens": rows.output_tokens}
    arrival_ns = rows.arrival_ns - rows.arrival_ns[0]
    return Workload.of_columns(facts, arrival_ns.size, {"arrival_ns": arrival_ns, **lengths, **columns})


def _taken(rows: LengthBlock, order: NDArray[np.intp]) -> LengthBlock:
    return LengthBlock(
        rows.arrival_ns[order],
        rows.input_tokens[order],
        rows.output_tokens[order],
        {name: texts.take(pa.array(order)) for name, texts in rows.texts.items()},
    )
