"""Whether records are those of a run: what every number of a report takes for granted, checked once where they are read."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bench_records.record import Outcome, TokenSource
from reports.metrics.columns import floats, integers
from reports.statistics.arrays import FloatArray

_MOST_TOKENS = (1 << 31) - 1
_DURATIONS = ("server_queue_ns", "server_prefill_ns", "server_decode_ns", "connect_ns", "router_ns")
_TOKENS = (
    "requested_output_tokens",
    "requested_input_tokens",
    "input_tokens",
    "output_tokens",
    "text_tokens",
    "cached_input_tokens",
    "hidden_tokens",
)


def check_records(table: pa.Table) -> None:
    """Raises ValueError, which names the column, for small columns of ``requests.parquet`` that no run has written."""
    index = integers(table["index"])
    if index.size != np.unique(index).size or (index < 0).any():
        raise ValueError(f"index: {index.size:,} records of {np.unique(index).size:,} requests, or negative numbers")
    _check_words(table, "outcome", Outcome)
    _check_words(table, "output_tokens_source", TokenSource)
    for name in _TOKENS:
        tokens = floats(table[name])
        if ((tokens < 0) | (tokens > _MOST_TOKENS)).any():
            raise ValueError(f"{name}: a number of tokens is negative or above {_MOST_TOKENS:,}")
    for name in _DURATIONS:
        if (floats(table[name]) < 0).any():
            raise ValueError(f"{name}: a duration is negative")


def check_parents(index: NDArray[np.int64], parent: FloatArray) -> None:
    """Raises ValueError where a turn of a whole run waited for a request that is not in it; both have shape [n]."""
    if not np.isin(parent[~np.isnan(parent)], index).all():
        raise ValueError("parent: a turn waited for a request that is not there")


def _check_words(table: pa.Table, name: str, words: type[StrEnum]) -> None:
    found = table[name].combine_chunks().dictionary_encode().dictionary.to_pylist()
    unknown = {text for text in found if text is not None} - {word.value for word in words}
    if unknown:
        raise ValueError(f"{name}: {min(unknown)[:40]!r} is none of {', '.join(word.value for word in words)}")
