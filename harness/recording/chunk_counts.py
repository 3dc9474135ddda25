"""Tokens of answers that the server did not count, by the chunks of their streams.

A server sends its count at the end of an answer, if at all, so the answers that were cut off have none. Text tokenised again
is a poor replacement: it does not always encode to the tokens that it was made of. Most servers send each token in a chunk of
its own, which the complete answers of the run show: by the server's count or, from a server that never counts, where an
answer that ended at its requested length has as many chunks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from bench_records.record import Outcome, Record, TokenSource

_AT_LENGTH = "length"  # the finish_reason of an answer that was cut at max_tokens
_TOLERANCE = 0.01  # of the tokens: a busy front end joins a few, and some servers send some that end a character


def count_by_chunks(records: Sequence[Record]) -> tuple[Record, ...]:
    """The records of a run, with the number of chunks as that of tokens where only their text was counted, if anything, and
    the complete answers of the same target have one token in each chunk.
    """
    tokens, deviations = Counter[int | None](), Counter[int | None]()
    for record in records:
        known = _tokens(record)
        if known is not None:
            tokens[record.target] += known
            deviations[record.target] += abs(_chunks(record) - known)
    one_each = {target for target, number in tokens.items() if deviations[target] <= _TOLERANCE * number}
    return tuple(_counted(record) if record.target in one_each else record for record in records)


def _tokens(record: Record) -> int | None:
    """The tokens of a complete answer of several, by the server; None where it did not say."""
    if record.outcome is not Outcome.DONE:
        return None
    if record.output_tokens_source is TokenSource.SERVER:
        tokens = record.output_tokens or 0
    else:
        at_length = record.text_chunks is not None and record.finish_reason == _AT_LENGTH
        tokens = record.requested_output_tokens if at_length else 0
    return tokens if tokens > 1 else None


def _chunks(record: Record) -> int:
    """The chunks of a complete answer that carry tokens."""
    return len(record.token_times_ns) if record.text_chunks is None else record.text_chunks


def _counted(record: Record) -> Record:
    chunks = record.text_chunks
    if not chunks or record.prompt_echoed:
        return record
    is_at_known_times = len(record.token_times_ns) == chunks
    return replace(
        record,
        output_tokens=chunks,
        output_tokens_source=TokenSource.CHUNKS,
        token_counts=(1,) * chunks if is_at_known_times else None,
    )
