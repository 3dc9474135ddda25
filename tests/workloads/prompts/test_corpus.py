"""Prompts cut from a corpus: exact lengths by tokenizers of several kinds, text of the corpus, consecutive or random."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.errors import WorkloadError
from workloads.elements.random_streams import Stream
from workloads.elements.request import NO_LIMITS, LengthLimits
from workloads.lengths.families import Constant, Uniform
from workloads.lengths.law import Lengths
from workloads.lengths.samples import Independent
from workloads.prompts.corpus import CorpusPrompts, Pieces, corpus_text
from workloads.prompts.drawn import Drawn
from workloads.prompts.exact_text import TextCodec
from workloads.readers.detect import read_workload_file
from workloads.table.workload import Workload, WorkloadFacts

_PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "load.md"
_LETTERS = TextCodec(lambda ids: "".join(map(chr, ids)), lambda text: [ord(letter) for letter in text])


@cache
def _text() -> str:
    return corpus_text(read_workload_file(_PAGE, "text").workload) + "\n\nÄpfel, naïve Füße, 東京 und 🙂🙂 überall."


def _cut(
    lengths: Lengths,
    pieces: Pieces = Pieces.CONSECUTIVE,
    count: int | None = None,
    codec: TextCodec = _LETTERS,
    *,
    as_ids: bool = False,
    limits: LengthLimits = NO_LIMITS,
    text: str | None = None,
    ignore_eos: bool = False,
) -> Drawn:
    lengths_of_both = Independent(lengths, Constant(3))
    prompts = CorpusPrompts(
        _text() if text is None else text, codec, lengths_of_both, pieces, 5, limits, as_ids=as_ids, ignore_eos=ignore_eos
    )
    return prompts.draw(count)


@pytest.mark.parametrize("pieces", Pieces)
def test_a_piece_encodes_to_the_length_that_was_drawn(codec: TextCodec, pieces: Pieces) -> None:
    law = Uniform(1, 60)
    drawn = _cut(law, pieces, 25, codec)
    lengths = law.draw(25, 5, Stream.INPUT_LENGTHS)[: len(drawn.requests)].tolist()
    assert drawn.inexact == 0
    assert [len(codec.encode(request.prompt or "")) for request in drawn.requests] == lengths
    assert [request.input_tokens for request in drawn.requests] == lengths
    as_ids = _cut(law, pieces, 25, codec, as_ids=True)
    assert [len(request.input_ids or ()) for request in as_ids.requests] == lengths


def test_consecutive_pieces_are_the_corpus_in_its_order() -> None:
    ids = _LETTERS.encode(_text())
    drawn = _cut(Constant(100), as_ids=True)
    assert [token for request in drawn.requests for token in request.input_ids or ()] == ids[: len(ids) // 100 * 100]
    assert len(_cut(Constant(100), count=3).requests) == 3
    letters = _cut(Constant(9), text="one two three four five")
    assert [request.prompt for request in letters.requests] == ["one two t", "hree four"]
    assert [request.prompt for request in _cut(Constant(5), text="helloworld").requests] == ["hello", "world"]


def test_requests_have_the_drawn_output_lengths_and_end_as_asked() -> None:
    for as_ids in (False, True):
        drawn = _cut(Constant(5), text="helloworld", as_ids=as_ids, ignore_eos=as_ids)
        assert [request.output_tokens for request in drawn.requests] == [3, 3]
        assert [request.ignore_eos for request in drawn.requests] == [as_ids, as_ids]
        assert [request.prompt for request in drawn.requests] == [None, None] if as_ids else ["hello", "world"]


def test_random_pieces_stand_anywhere_in_the_corpus_and_follow_the_seed() -> None:
    drawn = _cut(Constant(50), Pieces.RANDOM, 40, as_ids=True)
    starts = {_text().find("".join(map(chr, request.input_ids or ()))) for request in drawn.requests}
    assert len(starts) > 30
    assert min(starts) >= 0
    assert drawn == _cut(Constant(50), Pieces.RANDOM, 40, as_ids=True)


def test_random_pieces_begin_at_every_place_that_a_whole_one_has() -> None:
    drawn = _cut(Constant(9), Pieces.RANDOM, 40, text="abcdefghij")
    assert len(drawn.requests) == 40
    assert {request.prompt for request in drawn.requests} == {"abcdefghi", "bcdefghij"}
    whole = _cut(Constant(10), Pieces.RANDOM, 20, text="abcdefghij")
    assert {request.prompt for request in whole.requests} == {"abcdefghij"}


@pytest.mark.parametrize(("text", "prompts"), [("東ab", ["a"]), ("a東", ["a", "a"])])
def test_what_a_part_of_a_character_leaves_out_is_taken_from_the_text_behind_it(text: str, prompts: list[str]) -> None:
    """Each token is a byte: the second piece of the second text begins with its last character, so its first comes after it."""
    in_bytes = TextCodec(lambda ids: bytes(ids).decode("utf-8", "replace"), lambda text: list(text.encode("utf-8")))
    drawn = _cut(Constant(1), count=len(prompts), codec=in_bytes, text=text)
    assert [request.prompt for request in drawn.requests] == prompts
    assert drawn.inexact == 0


def test_pieces_without_a_text_of_their_length_are_counted() -> None:
    in_pairs = TextCodec(lambda ids: "a" * ((len(ids) + 1) // 2), lambda text: [1, 2] * len(text))
    drawn = _cut(Constant(3), codec=in_pairs, text="aaaaaa")
    assert [request.input_tokens for request in drawn.requests] == [4, 4, 4, 4]
    assert [request.requested_input_tokens for request in drawn.requests] == [3, 3, 3, 3]
    assert drawn.inexact == 4


@given(st.text(min_size=30, max_size=60).filter(lambda text: len(text.strip()) >= 30), st.integers(4, 9))
def test_a_cut_inside_a_character_leaves_no_part_of_it(text: str, length: int) -> None:
    in_bytes = TextCodec(
        lambda ids: bytes(ids).decode("utf-8", "replace"), lambda text: list(text.encode("utf-8", "surrogatepass"))
    )
    if "\ufffd" in text or not text.isprintable():
        return
    for request in _cut(Constant(length), count=4, codec=in_bytes, text=text).requests:
        assert "\ufffd" not in (request.prompt or "")


def test_the_sign_of_a_cut_character_stays_where_the_corpus_has_it() -> None:
    assert [request.prompt for request in _cut(Constant(5), text="ab\ufffdcd").requests] == ["ab\ufffdcd"]


def test_prompts_that_are_too_long_are_counted() -> None:
    drawn = _cut(Uniform(1, 40), count=30, limits=LengthLimits(max_input_len=20))
    assert 0 < drawn.dropped_too_long < 30
    assert len(drawn.requests) == 30 - drawn.dropped_too_long


_NONE_CUT = "the corpus has 13 tokens, and no prompt can be cut from it"


@pytest.mark.parametrize(
    ("pieces", "length", "limits", "problem"),
    [
        (Pieces.CONSECUTIVE, 10_000_000, NO_LIMITS, f"{_NONE_CUT}: it is shorter than one"),
        (Pieces.RANDOM, 10_000_000, NO_LIMITS, "the corpus has 13 tokens, and a prompt of 10,000,000 is requested"),
        (Pieces.RANDOM, 9, LengthLimits(max_input_len=5), f"{_NONE_CUT}: all are longer than max_input_len 5 allows"),
        (
            Pieces.CONSECUTIVE,
            9,
            LengthLimits(context_tokens=11),
            f"{_NONE_CUT}: all are longer than the context of 11 tokens allows",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused(pieces: Pieces, length: int, limits: LengthLimits, problem: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        _cut(Constant(length), pieces, 2, limits=limits, text="one two three")
    assert str(refused.value) == problem


def test_prompt_and_output_may_fill_the_context() -> None:
    assert len(_cut(Constant(9), count=2, limits=LengthLimits(context_tokens=12)).requests) == 2


def test_a_corpus_is_its_paragraphs_with_blank_lines_between_them() -> None:
    workload = Workload.of_columns(WorkloadFacts("text", "a file"), 2, {"prompt": ["One\ntwo.", "Three."]})
    assert corpus_text(workload) == "One\ntwo.\n\nThree."


def test_parts_of_characters_alone_are_no_prompts() -> None:
    in_bytes = TextCodec(lambda ids: bytes(ids).decode("utf-8", "replace"), lambda text: list(text.encode("utf-8")))
    with pytest.raises(
        WorkloadError, match=r"^the corpus has 6 tokens, and no prompt can be cut from it: no text has so few tokens$"
    ):
        _cut(Constant(1), count=2, codec=in_bytes, text="東京")
