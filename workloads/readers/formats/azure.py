"""Reader of Azure's LLM inference traces of 2023 and 2024: CSV with ``TIMESTAMP``, ``ContextTokens``, ``GeneratedTokens``.

Source: Azure/AzurePublicDataset (Splitwise, ISCA 2024). A time without an offset is taken as UTC. The trace of 2025 has
``NumImages``, too: requests with images are read as their tokens, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from workloads.readers.csv_columns import csv_blocks, header_of, timestamps_ns, tokens
from workloads.readers.length_trace import joined, length_block, length_workload
from workloads.readers.rejects import RejectCounter
from workloads.readers.source import Source
from workloads.table.workload import Workload

NAME = "azure"
SHAPE = "CSV with TIMESTAMP, ContextTokens, GeneratedTokens (Azure)"
_IMAGES = "NumImages"
_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def recognises(header: Sequence[str]) -> bool:
    """Whether a header has Azure's columns of lengths."""
    return set(_COLUMNS[1:]) <= set(header)


def read(source: Source, rejects: RejectCounter) -> Workload:
    """The workload of the rows. Raises DatasetError."""
    columns = (*_COLUMNS, _IMAGES) if header_of(source.head).count(_IMAGES) == 1 else _COLUMNS
    blocks = [
        length_block(
            block,
            timestamps_ns(block, "TIMESTAMP"),
            (tokens(block, "ContextTokens"), tokens(block, "GeneratedTokens")),
            rejects,
        )
        for block in csv_blocks(source, columns, rejects)
    ]
    rejects.with_media = sum(_count_with_images(block.texts[_IMAGES]) for block in blocks if _IMAGES in block.texts)
    return length_workload(NAME, joined(blocks, rejects), rejects, {})


def _count_with_images(counts: pa.StringArray) -> int:
    """Pandas writes none as ``0.0`` where some row of the column is empty."""
    return int(pc.sum(pc.match_substring_regex(counts, "[1-9]"), min_count=0).as_py())
