"""Tokens of answers that nothing counted are their chunks, where complete answers have one token in each."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bench_records.record import Outcome, Record, TokenSource
from harness.recording.chunk_counts import count_by_chunks


def _counted(tokens: int, chunks: int, empty: int = 0, **changes: Any) -> Record:
    """A complete answer that the server counted."""
    record = Record(0, Outcome.DONE, 0, 8, output_tokens=tokens, text_chunks=chunks, empty_chunks=empty)
    return replace(record, output_tokens_source=TokenSource.SERVER, **changes)


def _uncounted(chunks: int, empty: int = 0, **changes: Any) -> Record:
    """A cancelled answer of 7 tokens by the client's tokenizer."""
    times_ns = tuple(range(chunks - empty))
    record = Record(1, Outcome.WITHDRAWN, 0, 8, token_times_ns=times_ns, text_chunks=chunks, empty_chunks=empty)
    return replace(record, **({"output_tokens": 7, "output_tokens_source": TokenSource.TEXT} | changes))


_ONE_EACH = [_counted(50, 50)] * 4
_EMPTY_ARE_TOKENS = [_counted(50, 50, empty=5)] * 4
_EMPTY_ARE_NONE = [_counted(50, 55, empty=5)] * 4
_BY_TEXT = (7, TokenSource.TEXT, None)


def _count(others: list[Record], cut: Record) -> tuple[int | None, TokenSource | None, tuple[int, ...] | None]:
    *_, found = count_by_chunks([*others, cut])
    return found.output_tokens, found.output_tokens_source, found.token_counts


@pytest.mark.parametrize("others", [_ONE_EACH, _EMPTY_ARE_TOKENS, _EMPTY_ARE_NONE])
def test_chunks_count_where_the_server_s_counts_show_one_token_in_each(others: list[Record]) -> None:
    assert _count(others, _uncounted(3)) == (3, TokenSource.CHUNKS, (1, 1, 1))


def test_chunks_count_without_a_tokenizer() -> None:
    cut = _uncounted(3, output_tokens=None, output_tokens_source=None)
    assert _count(_ONE_EACH, cut) == (3, TokenSource.CHUNKS, (1, 1, 1))


@pytest.mark.parametrize(
    ("others", "counted"),
    [
        (_EMPTY_ARE_TOKENS, (6, TokenSource.CHUNKS, None)),  # at unknown times
        (_EMPTY_ARE_NONE, (4, TokenSource.CHUNKS, (1, 1, 1, 1))),
        (_ONE_EACH, _BY_TEXT),
        ([*_ONE_EACH, _counted(50, 51, empty=1)], (4, TokenSource.CHUNKS, (1, 1, 1, 1))),
        ([*_ONE_EACH, _counted(50, 50, empty=1)], (6, TokenSource.CHUNKS, None)),
        ([*_ONE_EACH, _counted(50, 50, empty=1), _counted(50, 51, empty=1)], _BY_TEXT),
    ],
    ids=["tokens", "none", "not shown", "none, by one", "tokens, by one", "now so, now so"],
)
def test_chunks_without_text_count_as_complete_answers_show(others: list[Record], counted: tuple[Any, ...]) -> None:
    assert _count(others, _uncounted(6, empty=2)) == counted


def test_an_answer_of_chunks_without_text_alone_keeps_its_count() -> None:
    assert _count(_ONE_EACH, _uncounted(2, empty=2, output_tokens=0)) == (0, TokenSource.TEXT, None)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [_counted(50, 49)] * 4,  # joined somewhere
        [_counted(50, 25)] * 4,
        [_counted(50, 60, empty=5)] * 4,
        [_counted(33, 33)] * 3,
        [_counted(60, 60)] * 2,
        [_counted(1, 1)] * 200,  # which any server has in one chunk
        [replace(record, target=1) for record in _ONE_EACH],
        [replace(record, outcome=Outcome.TIMEOUT) for record in _ONE_EACH],
        [replace(record, prompt_echoed=True) for record in _ONE_EACH],
        [replace(record, text_chunks=None, empty_chunks=None) for record in _ONE_EACH],
        [*_ONE_EACH, _counted(50, 47)],
    ],
    ids=[
        "none", "joined", "two a chunk", "neither with nor without the empty", "few tokens", "few answers", "one token",
        "another target", "failures", "echoes", "counts of other kinds", "too many joined",
    ],
)  # fmt: skip
def test_text_counts_where_complete_answers_do_not_show_one_token_a_chunk(others: list[Record]) -> None:
    assert _count(others, _uncounted(3)) == _BY_TEXT
    assert _count([*others, *(replace(record, target=2) for record in _ONE_EACH)], _uncounted(3)) == _BY_TEXT


def test_a_few_joined_chunks_do_not_matter() -> None:
    """One in a hundred."""
    assert _count([*_ONE_EACH[1:], _counted(50, 48)], _uncounted(3))[1] is TokenSource.CHUNKS
    assert _count([*_ONE_EACH[1:], _counted(49, 47)], _uncounted(3))[1] is TokenSource.TEXT


def test_each_target_shows_its_own_chunks() -> None:
    two_each = [replace(record, target=1) for record in [_counted(50, 25)] * 4]
    others = [*two_each, *(replace(record, target=2) for record in _ONE_EACH)]
    assert _count(others, _uncounted(3, target=2))[1] is TokenSource.CHUNKS
    assert _count(others, _uncounted(3, target=1)) == _BY_TEXT


@pytest.mark.parametrize("answers", [[_counted(34, 34)] * 3, [_counted(96, 96), _counted(2, 2), _counted(2, 2)]])
def test_a_hundred_tokens_of_three_answers_are_enough(answers: list[Record]) -> None:
    assert _count(answers, _uncounted(3))[1] is TokenSource.CHUNKS


@pytest.mark.parametrize("source", [TokenSource.SERVER, TokenSource.IDS])
def test_a_count_of_the_server_stays(source: TokenSource) -> None:
    cut = _uncounted(3, output_tokens=5, output_tokens_source=source)
    assert _count(_ONE_EACH, cut) == (5, source, None)


@pytest.mark.parametrize(
    ("chunks", "reason", "source"),
    [(8, "length", TokenSource.CHUNKS), (7, "length", TokenSource.TEXT), (8, "stop", TokenSource.TEXT)],
)
def test_answers_of_the_requested_length_show_it_of_a_server_that_never_counts(
    chunks: int, reason: str, source: TokenSource
) -> None:
    whole = _uncounted(chunks, outcome=Outcome.DONE, finish_reason=reason)
    found = count_by_chunks([*[whole] * 13, _uncounted(3)])
    assert {record.output_tokens_source for record in found} == {source}


def test_a_chunk_that_ends_a_character_of_the_last_token_does_not_matter() -> None:
    whole = [_uncounted(tokens, outcome=Outcome.DONE, finish_reason="length") for tokens in [8] * 20 + [9]]
    found = count_by_chunks(whole)
    assert [(record.output_tokens, record.output_tokens_source) for record in found[-2:]] == [
        (8, TokenSource.CHUNKS),
        (9, TokenSource.CHUNKS),
    ]


def test_reasoning_that_did_not_come_is_in_no_chunk() -> None:
    assert _count([_counted(150, 50, hidden_tokens=100)] * 4, _uncounted(3))[1] is TokenSource.CHUNKS


def test_an_answer_that_repeats_its_prompt_keeps_the_count_of_the_rest() -> None:
    assert _count(_ONE_EACH, _uncounted(3, prompt_echoed=True)) == _BY_TEXT
