"""Texts that are made many at once are those that are made one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer

from workloads.elements.request import LengthLimits
from workloads.lengths.families import Lognormal, Uniform
from workloads.lengths.samples import Independent
from workloads.prompts.exact_text import TextCodec, exact_requests, exact_text
from workloads.prompts.rounds import Making, TokenIds, decoded, encoded, texts_at_once
from workloads.prompts.shared_prefixes import SharedPrefixes
from workloads.prompts.token_norm_dist import TokenNormDist


class _Letters:
    """A codec of letters that keeps how many texts and ids each call has."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.codec = TextCodec(self._decode, self._encode, self._decode_many, self._encode_many)

    def _decode(self, ids: TokenIds) -> str:
        return "".join(chr(97 + token) for token in ids)

    def _encode(self, text: str) -> TokenIds:
        return [ord(letter) - 97 for letter in text]

    def _decode_many(self, several: Sequence[TokenIds]) -> list[str]:
        self.calls.append(("decode", len(several)))
        return [*map(self._decode, several)]

    def _encode_many(self, texts: Sequence[str]) -> list[TokenIds]:
        self.calls.append(("encode", len(texts)))
        return [*map(self._encode, texts)]


def _twice(ids: TokenIds, tries: int) -> Making[tuple[str, TokenIds]]:
    """The ids, as text and back, ``tries`` times."""
    text = ""
    for _ in range(tries):
        text = yield from decoded(ids)
        ids = yield from encoded(text)
    return text, ids


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_what_is_made_comes_in_order_whatever_ends_first(at_once: int) -> None:
    tries = [5, 1, 0, 3, 1, 1, 7]
    made = _Letters().codec.make_each((_twice([k, k + 1], count) for k, count in enumerate(tries)), at_once)
    texts = ["ab", "bc", "", "de", "ef", "fg", "gh"]
    assert list(made) == [(text, [k, k + 1]) for k, text in enumerate(texts)]


def test_one_that_ends_makes_room_for_the_next() -> None:
    letters = _Letters()
    assert len(list(letters.codec.make_each((_twice([k], tries) for k, tries in enumerate([1, 2, 1, 1])), 2))) == 4
    assert letters.calls == [("decode", 2), ("encode", 2)] * 2 + [("decode", 1), ("encode", 1)]


def test_makings_are_started_only_where_there_is_room() -> None:
    started: list[int] = []

    def making(number: int) -> Making[int]:
        started.append(number)
        yield from decoded([0])
        return number

    assert next(_Letters().codec.make_each(map(making, range(100)), 3)) == 0
    assert started == [0, 1, 2]


def test_without_makings_nothing_is_made() -> None:
    assert list(_Letters().codec.make_each([], 8)) == []


@pytest.mark.parametrize(
    ("lengths", "texts"),
    [
        ([1], 512),
        ([0], 512),  # of no tokens
        ([127] * 600, 512),
        ([129] * 600, 508),  # 65,536 / 129
        ([100, 1_948], 64),  # a mean of 1,024
        ([1_000_000], 8),
        ([], 8),
    ],
)
def test_long_texts_are_made_fewer_at_once(lengths: list[int], texts: int) -> None:
    assert texts_at_once(lengths) == texts


def test_prompts_are_made_as_many_at_once_as_their_lengths_with_prefixes_allow() -> None:
    """65,536 / 1,024 of 1,000 tokens after a prefix of 24, and 65,536 / 1,000 without."""
    for shared, at_once in ((SharedPrefixes(1, 24), 64), (None, 65)):
        letters = _Letters()
        lengths = Independent(Uniform(1_000, 1_000), Uniform(1, 1))
        TokenNormDist(lengths, range(26), 4, codec=letters.codec, shared=shared).draw(70)
        assert max(count for _, count in letters.calls) == at_once
    letters = _Letters()
    pieces = [(1,) * 1_000] * 70
    assert len(list(exact_requests(pieces, [lambda count: (1,) * count] * 70, [(1_000, 1)] * 70, letters.codec, True))) == 70
    assert max(count for _, count in letters.calls) == 65


def _together(tokenizer: Tokenizer, codec: TextCodec) -> TextCodec:
    return replace(
        codec,
        decode_many=lambda several: tokenizer.decode_batch([list(ids) for ids in several], skip_special_tokens=False),
        encode_many=lambda texts: [each.ids for each in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)],
    )


@pytest.mark.parametrize("shared", [None, SharedPrefixes(3, 12, 5)], ids=["alone", "shared"])
def test_prompts_are_those_of_one_text_after_another(
    tokenizer: Tokenizer, codec: TextCodec, shared: SharedPrefixes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = Independent(Lognormal(30.0, 40.0, 1, 300), Uniform(1, 9))
    ids = range(3, tokenizer.get_vocab_size())
    source = TokenNormDist(lengths, ids, 4, LengthLimits(max_input_len=200), _together(tokenizer, codec), shared=shared)
    together = source.draw(60)
    monkeypatch.setattr("workloads.prompts.token_norm_dist.texts_at_once", lambda _: 1)
    assert replace(source, codec=codec).draw(60) == together
    assert 0 < together.dropped_too_long < 20


def test_a_text_is_that_of_its_own_decoding_and_encoding(tokenizer: Tokenizer, codec: TextCodec) -> None:
    """``exact_text`` as a loop over one text."""
    vocabulary = np.arange(3, tokenizer.get_vocab_size())
    for seed in range(5):
        random, other = np.random.default_rng(seed), np.random.default_rng(seed)
        first = random.choice(vocabulary, 20).tolist()
        assert other.choice(vocabulary, 20).tolist() == first
        made = _together(tokenizer, codec).make(exact_text(first, lambda count: random.choice(vocabulary, count).tolist()))  # noqa: B023
        ids: TokenIds = first
        for tried in range(64):
            text = codec.decode(ids).strip()
            found = codec.encode(text)
            if len(found) == 20:
                break
            kept = list(found) if len(found) < 20 else list(found[: max(0, 20 - tried // 4)])
            ids = kept + other.choice(vocabulary, 20 - len(kept)).tolist()
        assert made == (text, tuple(found))
