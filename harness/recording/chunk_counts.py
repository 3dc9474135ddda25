"""Tokens of answers that the server did not count, by the chunks of their streams.

A server sends its count at the end of an answer, if at all, so the answers that were cut off have none. Text tokenised again
is a poor replacement: it does not always encode to the tokens that it was made of. Most servers send each token in a chunk of
its own, which the complete answers of the run show: by the server's count or, from a server that never counts, where an
answer that ended at its requested length has as many chunks.

A chunk without text is a token whose character is not complete yet, or nothing, as the server has it: the complete answers
show that, too. What they do not show is not assumed: such answers keep the count of their text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from msgspec.structs import replace

from bench_records.record import Outcome, Record, TokenSource

_AT_LENGTH = "length"  # the finish_reason of an answer that was cut at max_tokens
_TOLERANCE = 0.01  # of the tokens: a busy front end joins a few, and some servers send some that end a character
_FEWEST_TOKENS = 100  # by the rule of three, 100 without a deviation mean that at most 3 % deviate, at 95 %
_FEWEST_ANSWERS = 3  # one that came at a quiet time says nothing of the others


class _Carriers(Enum):
    """The chunks of a target's answers that carry one token each."""

    ALL = auto()
    WITH_TEXT = auto()
    THOSE_WITH_TEXT_AT_LEAST = auto()  # complete answers do not show what empty ones are


@dataclass(slots=True)
class _Evidence:
    """Sums over the complete answers of a target: their tokens, and by how many the chunks of each answer differ from these."""

    answers: int = 0
    tokens: int = 0
    off_all: int = 0
    off_with_text: int = 0

    def add(self, tokens: int, chunks: int, empty: int) -> None:
        self.answers += 1
        self.tokens += tokens
        self.off_all += abs(chunks - tokens)
        self.off_with_text += abs(chunks - empty - tokens)

    def carriers(self) -> _Carriers | None:
        """None where chunks are not tokens, or too little is known."""
        if self.answers < _FEWEST_ANSWERS or self.tokens < _FEWEST_TOKENS:
            return None
        if min(self.off_all, self.off_with_text) > _TOLERANCE * self.tokens:
            return None
        if self.off_all == self.off_with_text:
            return _Carriers.THOSE_WITH_TEXT_AT_LEAST
        return _Carriers.ALL if self.off_all < self.off_with_text else _Carriers.WITH_TEXT


def count_by_chunks(records: Sequence[Record]) -> tuple[Record, ...]:
    """The records of a run, with the number of chunks as that of tokens where only their text was counted, if anything, and
    the complete answers of the same target have one token in each chunk.
    """
    of_targets = defaultdict[int | None, _Evidence](_Evidence)
    for record in records:
        tokens = _tokens(record)
        if tokens is not None and record.text_chunks is not None:
            of_targets[record.target].add(tokens, record.text_chunks, record.empty_chunks or 0)
    carriers = {target: evidence.carriers() for target, evidence in of_targets.items()}
    return tuple(_counted(record, carriers.get(record.target)) for record in records)


def _tokens(record: Record) -> int | None:
    """The tokens of a complete answer of several, by the server; None where it did not say."""
    if record.outcome is not Outcome.DONE or record.prompt_echoed:
        return None
    if record.output_tokens_source is TokenSource.SERVER:
        tokens = record.sent_tokens
    else:
        tokens = record.requested_output_tokens if record.finish_reason == _AT_LENGTH else 0
    return tokens if tokens > 1 else None


def _counted(record: Record, carriers: _Carriers | None) -> Record:
    is_known = record.output_tokens_source in (TokenSource.SERVER, TokenSource.IDS)
    if carriers is None or is_known or not record.text_chunks or record.prompt_echoed:
        return record
    empty = record.empty_chunks or 0
    if empty and carriers is _Carriers.THOSE_WITH_TEXT_AT_LEAST:
        return record
    chunks = record.text_chunks - (empty if carriers is _Carriers.WITH_TEXT else 0)
    is_at_known_times = len(record.token_times_ns) == chunks
    return replace(
        record,
        output_tokens=chunks,
        output_tokens_source=TokenSource.CHUNKS,
        token_counts=(1,) * chunks if is_at_known_times else None,
    )
