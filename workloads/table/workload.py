"""The workload table: the form between every reader or generator of traffic and the requests that are sent.

One row a request, in the order of arrival. A column's value is null where the origin does not have it. The table is written as
``workload.parquet`` and read back equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from workloads.elements.errors import DatasetError, Field

_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
_FACTS_KEY = b"inflight_bench_workload"
_MOST_TABLE_BYTES = 4 << 30  # decompressed

SCHEMA = pa.schema(
    [
        ("arrival_ns", pa.int64()),  # since the beginning of the file; null: the arrival process decides
        ("session", pa.string()),  # the conversation
        ("parent", pa.int64()),  # the row of the turn whose answer this one waits for; always an earlier row
        ("think_time_ns", pa.int64()),  # from the end of the parent's answer to this turn
        ("history", pa.list_(_MESSAGE)),  # messages before the prompt that are sent as they are: system prompts, given turns
        ("prompt", pa.string()),  # this turn's text
        ("answer", pa.string()),  # the recorded answer
        ("input_tokens", pa.int64()),  # of the whole prompt, with its history
        ("output_tokens", pa.int64()),
        ("token_ids", pa.list_(pa.int64())),  # of the whole prompt
        ("block_hashes", pa.list_(pa.int64())),  # one a block of ``block_tokens`` input tokens: equal hashes, equal tokens
        ("request_class", pa.string()),  # model, adapter, log type or service class
        ("joins", pa.list_(pa.int64())),  # earlier rows besides ``parent`` whose answers this one waits for: parallel sub-turns
        ("request_id", pa.string()),  # the origin's name of the request
    ]
)
_ADDED = ("joins", "request_id")  # since the first version; files without them are read, and have the digest that they had


@dataclass(frozen=True)
class WorkloadFacts:
    """What is known of a workload as a whole.

    ``format`` is the reader's or generator's name, ``source`` the file's name or the generator's parameters as text.
    ``rejected_rows`` is the number of rows that could not be read. ``block_tokens`` is the length in tokens of a block of
    ``block_hashes``. ``tick_ns`` is the grid that the origin rounded its arrivals to; None where there is none.
    ``untimed_rows`` is the number of later turns without a time of their own, whose arrivals are the earliest possible.
    """

    format: str
    source: str
    rejected_rows: int = 0
    block_tokens: int | None = None
    tick_ns: int | None = None
    untimed_rows: int = 0


@dataclass(frozen=True)
class Workload:
    """Requests before they are tied to a tokenizer, a seed or a target: ``table`` has the columns of ``SCHEMA``."""

    table: pa.Table
    facts: WorkloadFacts

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @classmethod
    def of_columns(cls, facts: WorkloadFacts, rows: int, columns: Mapping[str, pa.Array | Sequence[Any]]) -> Self:
        """A workload of ``rows`` rows from the columns that its origin has; the others are null.

        Raises KeyError for a column that is not in ``SCHEMA``.
        """
        unknown = set(columns) - set(SCHEMA.names)
        if unknown:
            raise KeyError(f"not columns of a workload: {sorted(unknown)}")
        arrays = [
            pa.array(columns[column.name], column.type) if column.name in columns else pa.nulls(rows, column.type)
            for column in SCHEMA
        ]
        return cls(pa.Table.from_arrays(arrays, schema=SCHEMA), facts)

    @property
    def digest(self) -> str:
        """SHA-256 over the columns and facts: equal digests are equal workloads."""
        facts = asdict(self.facts)
        if not self.facts.untimed_rows:
            del facts["untimed_rows"]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        for name, column in zip(SCHEMA.names, self.table.columns, strict=True):
            if name not in _ADDED or column.null_count < len(self):
                _add(digest, column.combine_chunks())
        return digest.hexdigest()

    def write(self, path: Path) -> None:
        """Write the workload as Parquet."""
        facts = json.dumps(asdict(self.facts), sort_keys=True).encode()
        pq.write_table(self.table.replace_schema_metadata({_FACTS_KEY: facts}), path, compression="zstd")


def parse_workload(path: Path, content: bytes) -> Workload:
    """What ``Workload.write`` wrote: the ``content`` of the file that messages name ``path``. Raises DatasetError."""
    try:
        table = _parquet_table(path, content)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise DatasetError(path, f"is not Parquet: {error}") from error
    metadata = table.schema.metadata or {}
    if _FACTS_KEY not in metadata:
        raise DatasetError(path, ("is not a workload of bench; ", Field("field"), " prompt=COLUMN reads other Parquet"))
    table = _with_added(table.replace_schema_metadata(None))
    if table.schema != SCHEMA:
        raise DatasetError(path, "has other columns than this version of bench writes; import its origin again")
    problem = _problem(table)
    if problem is not None:
        raise DatasetError(path, f"is damaged: {problem}; import its origin again")
    return Workload(table, _facts(path, metadata[_FACTS_KEY]))


def _with_added(table: pa.Table) -> pa.Table:
    for name in _ADDED:
        if name not in table.column_names:
            table = table.append_column(SCHEMA.field(name), pa.nulls(len(table), SCHEMA.field(name).type))
    return table


def _parquet_table(path: Path, content: bytes) -> pa.Table:
    """Raises DatasetError for a table too large to hold, and OSError or ArrowException for what is not Parquet."""
    with pq.ParquetFile(pa.BufferReader(content)) as file:
        groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
        if sum(group.total_byte_size for group in groups) > _MOST_TABLE_BYTES:
            raise DatasetError(path, f"holds more than {_MOST_TABLE_BYTES >> 20:,} MiB; cut it into parts")
        table = file.read()
    table.validate(full=True)
    return table


def _problem(table: pa.Table) -> str | None:
    """What in the columns contradicts ``SCHEMA``'s notes; None where nothing does."""
    for name in ("arrival_ns", "think_time_ns", "input_tokens", "output_tokens"):
        if (pc.min(table[name]).as_py() or 0) < 0:
            return f"{name} is negative"
    if (np.diff(table["arrival_ns"].drop_null().to_numpy()) < 0).any():
        return "arrival_ns is not sorted"
    has_parent = table["parent"].is_valid().to_numpy()
    parents = table["parent"].drop_null().to_numpy()
    if ((parents < 0) | (parents >= np.flatnonzero(has_parent))).any():
        return "a parent is not an earlier row"
    if not has_parent[table["joins"].is_valid().to_numpy()].all():
        return "a row joins others and has no parent"
    joins = table["joins"].combine_chunks()
    joined = joins.flatten().to_numpy(zero_copy_only=False)
    if ((joined < 0) | (joined >= pc.list_parent_indices(joins).to_numpy())).any():
        return "a join is not an earlier row"
    return None


def _facts(path: Path, text: bytes) -> WorkloadFacts:
    try:
        return WorkloadFacts(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise DatasetError(path, f"holds metadata that cannot be read: {error}") from error


def _add(digest: hashlib._Hash, values: pa.Array) -> None:
    """Add the logical values: which are null, and those that are not. Buffers may differ where values are equal."""
    digest.update(np.packbits(values.is_valid().to_numpy(zero_copy_only=False)).tobytes())
    valid = values.drop_null()
    if pa.types.is_list(valid.type):
        _add(digest, pc.list_value_length(valid))
        _add(digest, valid.flatten())
    elif pa.types.is_struct(valid.type):
        for member in valid.flatten():
            _add(digest, member)
    elif pa.types.is_string(valid.type):
        _add(digest, pc.binary_length(valid))
        if len(valid):
            _, offsets, data = valid.buffers()
            first, end = np.frombuffer(offsets, np.int32)[valid.offset : valid.offset + len(valid) + 1][[0, -1]]
            digest.update(memoryview(data)[first:end] if data is not None else b"")
    else:
        digest.update(valid.to_numpy(zero_copy_only=False).astype("<i8").tobytes())
