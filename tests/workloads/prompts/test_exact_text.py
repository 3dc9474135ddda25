"""Random text has exactly the tokens that were requested, whatever the kind of tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat

import numpy as np
import pytest
from tokenizers import Tokenizer

from workloads.lengths.families import Lognormal, Uniform
from workloads.lengths.samples import Independent
from workloads.prompts.exact_text import TextCodec, exact_text, retokenised_ratio
from workloads.prompts.rounds import decoded
from workloads.prompts.tails import TokenIds
from workloads.prompts.token_norm_dist import TokenNormDist


@pytest.mark.parametrize(("length", "texts"), [(1, 100), (2, 100), (8, 100), (128, 50), (1000, 5)])
def test_a_text_has_exactly_the_asked_tokens(tokenizer: Tokenizer, codec: TextCodec, length: int, texts: int) -> None:
    generator = np.random.default_rng(length)
    vocabulary = tokenizer.get_vocab_size()

    def draw(count: int) -> list[int]:
        drawn: list[int] = generator.integers(3, vocabulary, count).tolist()
        return drawn

    for _ in range(texts):
        text, ids = codec.make(exact_text(draw(length), draw))
        assert len(ids) == length
        assert tuple(codec.encode(text)) == ids
        assert text == text.strip()


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_drawn_prompts_have_exactly_their_lengths_as_text_and_as_ids(
    tokenizer: Tokenizer, codec: TextCodec, seed: int, as_text: bool
) -> None:
    lengths = Independent(Lognormal(60.0, 80.0, 1, 400), Uniform(1, 9))
    ids = range(3, tokenizer.get_vocab_size())
    drawn = TokenNormDist(lengths, ids, seed, codec=codec if as_text else None).draw(40).requests
    asked, _ = lengths.draw(40, seed)
    assert [request.input_tokens for request in drawn] == asked.tolist()
    for request in drawn:
        assert len(request.input_ids or ()) == request.input_tokens
        assert (request.prompt is None) is not as_text
        if request.prompt is not None:
            assert len(tokenizer.encode(request.prompt, add_special_tokens=False).ids) == request.input_tokens


def test_where_no_text_fits_the_nearest_one_is_given() -> None:
    """Each character is two tokens: an odd length cannot be had."""
    codec = TextCodec(lambda ids: "a" * ((len(ids) + 1) // 2), lambda text: [1, 2] * len(text))
    text, ids = codec.make(exact_text((1, 2, 1), lambda count: [1] * count))
    assert (text, len(ids)) in {("aa", 4), ("a", 2)}


def test_of_texts_as_near_as_each_other_the_first_is_given() -> None:
    texts = chain(["aaaa", "bb"], repeat("c" * 8))
    codec = TextCodec(lambda ids: next(texts), lambda text: [0] * len(text))
    assert codec.make(exact_text((1, 2, 3), lambda count: [1] * count))[0] == "aaaa"


def test_to_a_text_that_is_too_short_only_what_is_missing_is_added() -> None:
    drawn: set[int] = set()

    def draw(count: int) -> list[int]:
        drawn.add(count)
        return [1] * count

    TextCodec(lambda ids: "aa", lambda text: [0] * len(text)).make(exact_text((1, 2, 3), draw))
    assert drawn == {1}


def test_text_that_encodes_to_what_it_came_from_has_a_retokenised_ratio_of_1() -> None:
    codec = TextCodec(lambda ids: "".join(chr(97 + token) for token in ids), lambda text: [ord(letter) - 97 for letter in text])
    assert retokenised_ratio(codec, range(26)) == 1.0


def test_retokenised_ratio_of_text_that_falls_apart() -> None:
    codec = TextCodec(lambda ids: "".join("ab"[token] * (token + 1) for token in ids), lambda text: list(map(ord, text)))
    assert retokenised_ratio(codec, [0]) == 1.0
    assert retokenised_ratio(codec, [1]) == 2.0
    # the texts are those of numpy's seed 0, in which 1,043 of 2,000 tokens are the second one: the same in every run
    assert retokenised_ratio(codec, [0, 1]) == pytest.approx(1.5215)


@pytest.mark.parametrize("decode_many", [None, lambda several: ["".join(map(chr, ids)) for ids in several]])
def test_a_codec_without_a_character_leaves_it_out_one_by_one_and_at_once(
    decode_many: Callable[[Sequence[TokenIds]], Sequence[str]] | None,
) -> None:
    codec = TextCodec(lambda ids: "".join(map(chr, ids)), lambda text: [ord(letter) for letter in text], decode_many)
    without = codec.without("b")
    assert list(without.make_each([decoded([97, 98, 99]), decoded([98])], 2)) == ["ac", ""]
    assert without.decode([98, 97, 98]) == "a"
    assert list(codec.make_each([decoded([97, 98, 99])], 1)) == ["abc"]
