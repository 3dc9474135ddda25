"""Statistics of a workload: lengths, arrivals, conversations, and the prefixes that its prompts share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from workloads.elements.request import Request
from workloads.table.block_prefixes import first_with_prefix
from workloads.table.prefixes import prefix_repetition
from workloads.table.workload import Workload

Integers = NDArray[np.int64]
_QUANTILES = (0.50, 0.90, 0.99)


@dataclass(frozen=True)
class LengthStatistics:
    """Lengths in ``unit`` (tokens, or words of a text) of the rows that have one. Percentiles are nearest-rank."""

    name: str
    unit: str
    rows: int
    mean: float
    p50: int
    p90: int
    p99: int
    max: int
    total: int


@dataclass(frozen=True)
class ArrivalStatistics:
    """Statistics of sorted arrivals: first to last in s, (n − 1) / duration, and mean and coefficient of variation of the gaps.

    ``instants`` is the number of distinct arrival times. Rate and gaps are None where all requests arrive at once.
    """

    duration_s: float
    rate_per_s: float | None
    mean_gap_s: float | None
    gap_cv: float | None
    instants: int


@dataclass(frozen=True)
class SessionStatistics:
    """Conversations, and their turns; a row without a session is none."""

    sessions: int
    rows: int
    mean_turns: float
    most_turns: int
    waiting_turns: int


@dataclass(frozen=True)
class PrefixSharing:
    """The share of all prompts, in ``unit``, that an infinite prefix cache would have had: the most that reuse can reach.

    ``by_row`` is the share of each row's prompt, where the workload has hashes of blocks; else it is empty.
    """

    repeated: int
    total: int
    unit: str
    by_row: NDArray[np.float64]

    @property
    def share(self) -> float:
        return self.repeated / self.total if self.total else 0.0


@dataclass(frozen=True)
class WorkloadStatistics:
    """What a workload consists of; None for what its origin does not have."""

    rows: int
    lengths: tuple[LengthStatistics, ...]
    arrivals: ArrivalStatistics | None
    sessions: SessionStatistics | None
    prefixes: PrefixSharing | None


def workload_statistics(workload: Workload) -> WorkloadStatistics:
    """The statistics of ``workload``."""
    return WorkloadStatistics(
        len(workload), lengths_of(workload), arrivals_of(workload), sessions_of(workload), prefixes_of(workload)
    )


def values_of(workload: Workload, column: str) -> Integers:
    """The values of an integer column that are not null."""
    values: Integers = workload.table[column].drop_null().to_numpy()
    return values


def words_of(workload: Workload, column: str) -> Integers:
    """The number of words of each text of a column, separated by white space."""
    texts = pc.utf8_trim_whitespace(workload.table[column].drop_null())
    counts = pc.list_value_length(pc.utf8_split_whitespace(texts))  # 1 of no text, which splits into one empty word
    words: Integers = pc.if_else(pc.equal(texts, ""), 0, counts).to_numpy()
    return words.astype(np.int64)


def lengths_of(workload: Workload) -> tuple[LengthStatistics, ...]:
    """Lengths in tokens where they are known, and in words where there is text."""
    values = [
        ("input", "tokens", values_of(workload, "input_tokens")),
        ("output", "tokens", values_of(workload, "output_tokens")),
        ("prompt", "words", words_of(workload, "prompt")),
        ("answer", "words", words_of(workload, "answer")),
    ]
    return tuple(_lengths(name, unit, lengths) for name, unit, lengths in values if lengths.size)


def arrivals_of(workload: Workload) -> ArrivalStatistics | None:
    """None where the origin has no arrivals, or not those of all requests."""
    arrival_ns = values_of(workload, "arrival_ns")
    if not arrival_ns.size or workload.facts.untimed_rows:
        return None
    gaps_s = np.diff(arrival_ns) / 1e9
    duration_s = float(arrival_ns[-1] - arrival_ns[0]) / 1e9
    mean = float(gaps_s.mean()) if duration_s else None
    return ArrivalStatistics(
        duration_s=duration_s,
        rate_per_s=gaps_s.size / duration_s if duration_s else None,
        mean_gap_s=mean,
        gap_cv=float(gaps_s.std()) / mean if mean else None,
        instants=int(np.unique(arrival_ns).size),
    )


def sessions_of(workload: Workload) -> SessionStatistics | None:
    """None where the origin has no conversations."""
    sessions = workload.table["session"].drop_null()
    if not len(sessions):
        return None
    turns = turns_of_sessions(workload)
    waiting = len(workload) - workload.table["parent"].null_count
    return SessionStatistics(int(turns.size), int(turns.sum()), float(turns.mean()), int(turns.max()), waiting)


def turns_of_sessions(workload: Workload) -> Integers:
    """The number of turns of each conversation."""
    counts = pc.value_counts(workload.table["session"].drop_null())
    turns: Integers = counts.field("counts").to_numpy()
    return turns


def prefixes_of(workload: Workload) -> PrefixSharing | None:
    """By the hashes of blocks where there are some, else by the text of prompts; None where there is neither."""
    hashes = workload.table["block_hashes"]
    if workload.facts.block_tokens is not None and hashes.null_count < len(workload):
        return _sharing_of_hashes(hashes.combine_chunks(), workload.table["input_tokens"], workload.facts.block_tokens)
    prompts = workload.table["prompt"].drop_null()
    if not len(prompts):
        return None
    repetition = prefix_repetition([Request(1, prompt) for prompt in prompts.to_pylist()])
    return PrefixSharing(repetition.repeated, repetition.total, repetition.unit, np.zeros(0, np.float64))


def _sharing_of_hashes(hashes: pa.ListArray, input_tokens: pa.ChunkedArray, block_tokens: int) -> PrefixSharing:
    """A block counts where an earlier row begins with it and all before it in its row; the last one may be partial."""
    lengths: Integers = pc.fill_null(pc.list_value_length(hashes), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat: Integers = hashes.flatten().to_numpy(zero_copy_only=False)
    row = np.repeat(np.arange(lengths.size), lengths)
    is_reused = first_with_prefix(flat, lengths) < np.arange(flat.size)
    reused_blocks = np.bincount(row[is_reused], minlength=lengths.size)
    tokens: Integers = pc.fill_null(input_tokens, 0).to_numpy().astype(np.int64)
    reused = np.minimum(reused_blocks * block_tokens, tokens)
    by_row = np.divide(reused, tokens, out=np.zeros(tokens.size), where=tokens > 0)
    return PrefixSharing(int(reused.sum()), int(tokens.sum()), "tokens", by_row)


def _lengths(name: str, unit: str, values: Integers) -> LengthStatistics:
    ordered = np.sort(values)
    p50, p90, p99 = (int(ordered[int(np.ceil(q * ordered.size)) - 1]) for q in _QUANTILES)
    total = int(ordered.sum())
    return LengthStatistics(name, unit, int(ordered.size), total / ordered.size, p50, p90, p99, int(ordered[-1]), total)
