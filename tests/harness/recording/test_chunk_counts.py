"""Tokens of answers that nothing counted are their chunks, where complete answers have one token in each."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bench_records.record import Outcome, Record, TokenSource
from harness.recording.chunk_counts import count_by_chunks


def _counted(tokens: int, counts: tuple[int, ...] | None, **changes: Any) -> Record:
    """A complete answer that the server counted."""
    times_ns = tuple(range(tokens - 1 if counts is None else len(counts)))
    source = TokenSource.SERVER
    record = Record(0, Outcome.DONE, 0, 8, token_times_ns=times_ns, token_counts=counts, output_tokens=tokens)
    return replace(record, output_tokens_source=source, **changes)


def _uncounted(chunks: int, **changes: Any) -> Record:
    """A cancelled answer of 3 chunks with text and 7 tokens by the client's tokenizer."""
    record = Record(1, Outcome.WITHDRAWN, 0, 8, token_times_ns=(1, 2, 3), output_tokens=7, text_chunks=chunks)
    return replace(record, **({"output_tokens_source": TokenSource.TEXT} | changes))


_ONE_EACH = _counted(4, (1, 1, 1, 1))


def test_chunks_count_where_the_server_s_counts_show_one_token_in_each() -> None:
    _, found = count_by_chunks([_ONE_EACH, _uncounted(3)])
    assert (found.output_tokens, found.output_tokens_source, found.token_counts) == (3, TokenSource.CHUNKS, (1, 1, 1))


def test_chunks_without_text_count_at_unknown_times() -> None:
    _, found = count_by_chunks([_ONE_EACH, _uncounted(4)])
    assert (found.output_tokens, found.output_tokens_source, found.token_counts) == (4, TokenSource.CHUNKS, None)


def test_chunks_count_without_a_tokenizer() -> None:
    _, found = count_by_chunks([_ONE_EACH, _uncounted(3, output_tokens=None, output_tokens_source=None)])
    assert (found.output_tokens, found.output_tokens_source) == (3, TokenSource.CHUNKS)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [_counted(4, None)],  # joined somewhere
        [_counted(4, (2, 2))],
        [_counted(1, (1,))],  # which any server has in one chunk
        [replace(_ONE_EACH, target=1)],
        [replace(_ONE_EACH, outcome=Outcome.TIMEOUT)],
        [_ONE_EACH] * 9 + [_counted(4, (2, 1, 1))],
    ],
    ids=["none", "unknown counts", "two a chunk", "one token", "another target", "a failure", "too many joined"],
)
def test_text_counts_where_complete_answers_do_not_show_one_token_a_chunk(others: list[Record]) -> None:
    *_, found = count_by_chunks([*others, _uncounted(3, target=0)])
    assert (found.output_tokens, found.output_tokens_source, found.token_counts) == (7, TokenSource.TEXT, None)


def test_a_few_joined_chunks_do_not_matter() -> None:
    *_, found = count_by_chunks([*[_ONE_EACH] * 24, _counted(4, (2, 1, 1)), _uncounted(3)])
    assert found.output_tokens_source is TokenSource.CHUNKS


@pytest.mark.parametrize(
    ("chunks", "reason", "source"),
    [(8, "length", TokenSource.CHUNKS), (7, "length", TokenSource.TEXT), (8, "stop", TokenSource.TEXT)],
)
def test_answers_of_the_requested_length_show_it_of_a_server_that_never_counts(
    chunks: int, reason: str, source: TokenSource
) -> None:
    whole = _uncounted(chunks, outcome=Outcome.DONE, finish_reason=reason)
    found = count_by_chunks([whole, _uncounted(3)])
    assert {record.output_tokens_source for record in found} == {source}


def test_a_chunk_that_ends_a_character_of_the_last_token_does_not_matter() -> None:
    whole = [_uncounted(tokens, outcome=Outcome.DONE, finish_reason="length") for tokens in [8] * 20 + [9]]
    found = count_by_chunks(whole)
    assert [(record.output_tokens, record.output_tokens_source) for record in found[-2:]] == [
        (8, TokenSource.CHUNKS),
        (9, TokenSource.CHUNKS),
    ]


def test_an_answer_that_repeats_its_prompt_keeps_the_count_of_the_rest() -> None:
    _, found = count_by_chunks([_ONE_EACH, _uncounted(3, prompt_echoed=True)])
    assert (found.output_tokens, found.output_tokens_source) == (7, TokenSource.TEXT)
