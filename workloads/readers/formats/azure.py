"""Reader of Azure's LLM inference traces of 2023 and 2024: CSV with ``TIMESTAMP``, ``ContextTokens``, ``GeneratedTokens``.

Source: Azure/AzurePublicDataset (Splitwise, ISCA 2024). A time without an offset is taken as UTC.
"""

from __future__ import annotations

from collections.abc import Sequence

from workloads.readers.csv_columns import csv_blocks, timestamps_ns, tokens
from workloads.readers.length_trace import joined, length_block, length_workload
from workloads.readers.rejects import RejectCounter
from workloads.readers.source import Source
from workloads.table.workload import Workload

NAME = "azure"
SHAPE = "CSV with TIMESTAMP, ContextTokens, GeneratedTokens (Azure)"
_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def recognises(header: Sequence[str]) -> bool:
    """Whether a header has Azure's columns of lengths."""
    return set(_COLUMNS[1:]) <= set(header)


def read(source: Source, rejects: RejectCounter) -> Workload:
    """The workload of the rows. Raises DatasetError."""
    blocks = [
        length_block(
            block,
            timestamps_ns(block, "TIMESTAMP"),
            (tokens(block, "ContextTokens"), tokens(block, "GeneratedTokens")),
            rejects,
        )
        for block in csv_blocks(source, _COLUMNS, rejects)
    ]
    return length_workload(NAME, joined(blocks, rejects), rejects, {})
