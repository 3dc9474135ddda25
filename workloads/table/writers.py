"""A workload as a file that other programs read: prompts as JSON or JSON lines, lengths and arrivals as traces.

A row that a format cannot express, as a later turn where a format has single prompts, is left out and counted.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from workloads.elements.errors import WorkloadError
from workloads.table.workload import Workload

_MS = 1_000_000
_MOONCAKE_BLOCK_TOKENS = 512
_BATCH_ROWS = 10_000
_TEXT_COLUMNS = ("parent", "history", "prompt", "answer", "output_tokens", "arrival_ns")

Row = Mapping[str, Any]


def write_workload(workload: Workload, format_name: str, path: Path) -> int:
    """Write ``workload`` in a format of ``WRITTEN_FORMATS``, and return how many rows it cannot express.

    Raises WorkloadError where it can express none, and OSError.
    """
    written = _WRITERS[format_name](workload, path)
    if not written:
        raise WorkloadError(
            f"{workload.facts.source}: has no row that the format {format_name} can express: {_NEEDS[format_name]}"
        )
    return len(workload) - written


def _write_upstream(workload: Workload, path: Path) -> int:
    """The prompt is cut at its first space, at which upstream joins it; one without a space gets one before it."""
    documents = []
    for row in _single_prompts(workload):
        if row["answer"] is not None:
            before, space, behind = row["prompt"].partition(" ")
            texts = (before, behind) if space else ("", before)
            documents.append({"input": texts[0], "instruction": texts[1], "output": row["answer"]})
    path.write_text(json.dumps(documents, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return len(documents)


def _write_custom(workload: Workload, path: Path) -> int:
    documents = (
        {"prompt": row["prompt"], **_length(row, "output_tokens"), **_time(workload, row)} for row in _single_prompts(workload)
    )
    return _write_lines(documents, path)


def _write_openai(workload: Workload, path: Path) -> int:
    return _write_lines(_bodies(workload), path)


def _bodies(workload: Workload) -> Iterator[dict[str, object]]:
    """Each turn with the conversation before it, where all answers of this are recorded."""
    conversations: list[list[dict[str, str]] | None] = []
    for row in _rows(workload, *_TEXT_COLUMNS):
        before = [] if row["parent"] is None else conversations[row["parent"]]
        if row["prompt"] is None or before is None:
            conversations.append(None)
            continue
        messages = [*before, *(row["history"] or ()), {"role": "user", "content": row["prompt"]}]
        answered = None if row["answer"] is None else [*messages, {"role": "assistant", "content": row["answer"]}]
        conversations.append(answered)
        yield {"messages": answered or messages, **_length(row, "max_tokens"), **_time(workload, row)}


def _write_azure(workload: Workload, path: Path) -> int:
    """Times count from the first moment of 1970, since a workload has no date."""
    written = 0
    with path.open("w", encoding="ascii", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("TIMESTAMP", "ContextTokens", "GeneratedTokens"))
        for row in _timed(workload):
            seconds, ns = divmod(row["arrival_ns"], 10**9)
            moment = datetime.fromtimestamp(seconds, UTC)
            lines.writerow((f"{moment:%Y-%m-%d %H:%M:%S}.{ns:09d}", row["input_tokens"], row["output_tokens"]))
            written += 1
    return written


def _write_mooncake(workload: Workload, path: Path) -> int:
    """Times are rounded down to the millisecond."""
    has_blocks = workload.facts.block_tokens == _MOONCAKE_BLOCK_TOKENS
    documents = (
        {
            "timestamp": row["arrival_ns"] // _MS,
            "input_length": row["input_tokens"],
            "output_length": row["output_tokens"],
            "hash_ids": row["block_hashes"],
        }
        for row in _timed(workload)
        if has_blocks and row["block_hashes"] is not None
    )
    return _write_lines(documents, path)


def _single_prompts(workload: Workload) -> Iterator[Row]:
    """The rows whose prompt is all that is sent."""
    rows = _rows(workload, *_TEXT_COLUMNS)
    return (row for row in rows if row["prompt"] is not None and row["parent"] is None and not row["history"])


def _timed(workload: Workload) -> Iterator[Row]:
    """The rows with an arrival and both lengths; none where some arrivals are not the origin's."""
    if workload.facts.untimed_rows:
        return iter(())
    names = ("arrival_ns", "input_tokens", "output_tokens")
    return (row for row in _rows(workload, *names, "block_hashes") if all(row[name] is not None for name in names))


def _rows(workload: Workload, *names: str) -> Iterator[Row]:
    for batch in workload.table.select(names).to_batches(max_chunksize=_BATCH_ROWS):
        yield from batch.to_pylist()


def _length(row: Row, name: str) -> dict[str, int]:
    return {} if row["output_tokens"] is None else {name: row["output_tokens"]}


def _time(workload: Workload, row: Row) -> dict[str, float]:
    """The arrival in ms; nothing where some rows have none of their own, beside which a reader takes no other."""
    if workload.table["arrival_ns"].null_count or workload.facts.untimed_rows:
        return {}
    whole, rest = divmod(row["arrival_ns"], _MS)
    return {"timestamp": whole + rest / _MS if rest else whole}


def _write_lines(documents: Iterator[dict[str, object]], path: Path) -> int:
    written = 0
    with path.open("w", encoding="utf-8") as file:
        for document in documents:
            file.write(json.dumps(document, ensure_ascii=False) + "\n")
            written += 1
    return written


_WRITERS: Mapping[str, Callable[[Workload, Path], int]] = MappingProxyType(
    {
        "azure": _write_azure,
        "custom": _write_custom,
        "mooncake": _write_mooncake,
        "openai": _write_openai,
        "upstream": _write_upstream,
    }
)
_NEEDS: Mapping[str, str] = MappingProxyType(
    {
        "azure": "it needs arrivals and both lengths",
        "custom": "it needs prompts without earlier messages",
        "mooncake": "it needs arrivals, both lengths and hashes of blocks of 512 tokens",
        "openai": "it needs prompts",
        "upstream": "it needs prompts without earlier messages, and answers",
    }
)
WRITTEN_FORMATS = tuple(_WRITERS)
