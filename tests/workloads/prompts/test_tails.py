"""Only what follows the common beginning of two texts is encoded again, where a tokenizer divides words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.prompts.exact_text import TextCodec
from workloads.prompts.rounds import Making, TokenIds, encoded
from workloads.prompts.tails import Encoded, encode_tails

_EARLIER = "nought one two three four five six seven"


class _Words:
    """Encodes each word with the space before it by itself; keeps what it encoded."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode_each(self, texts: Sequence[str]) -> list[list[int]]:
        self.texts += texts
        return [[_number(word) for word in re.findall(r" ?\w+|\W", text)] for text in texts]

    def ids(self, text: str) -> list[int]:
        return _Words().encode_each([text])[0]


def _number(word: str) -> int:
    return int.from_bytes(word.encode(), "big")


def _encode(words: _Words, text: str, earlier: str = _EARLIER) -> TokenIds:
    return encode_tails([(text, Encoded(earlier, words.ids(earlier)))], words.encode_each)[0]


def test_the_common_beginning_is_not_encoded_again() -> None:
    words = _Words()
    assert list(_encode(words, _EARLIER + "y eight")) == words.ids(_EARLIER + "y eight")
    assert words.texts == [" seven", " seveny eight"]


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("nought one two three four five six", " six"),  # " six" and not "": the word after the cut is common to both, in part
        ("nought one two three four five si", " si"),
        ("nought one two three four five s", " s"),
        ("nought one two three four five 6", " five 6"),
        ("nought one two three four five, six", " five, six"),  # the comma ends what is common
    ],
)
def test_a_text_is_cut_before_a_space_between_words_that_both_texts_have(text: str, cut: str) -> None:
    words = _Words()
    assert list(_encode(words, text)) == words.ids(text)
    assert words.texts[-1] == cut


@pytest.mark.parametrize(
    ("earlier", "text"),
    [
        ("one two three", "six five four"),
        ("one, two, three, four", "one, two, three, four, five"),
        ("one  two  three  four", "one  two  three  four  five"),
        ("é é é é é é", "é é é é é é é"),
        ("one two", "one two three four five six seven"),  # the tails are most of it
        ("", "one two"),
        ("one two", ""),
    ],
)
def test_a_text_without_a_cut_that_saves_much_is_encoded_as_a_whole(earlier: str, text: str) -> None:
    words = _Words()
    assert list(_encode(words, text, earlier)) == words.ids(text)
    assert words.texts == [text]


def test_where_the_earlier_ids_do_not_end_with_those_of_the_tail_all_is_encoded() -> None:
    """A tokenizer with tokens of several words, which says that it has none."""

    def encode_each(texts: Sequence[str]) -> list[list[int]]:
        return [[_number(pair) for pair in re.findall(r".{1,11}", text)] for text in texts]

    text = _EARLIER + "teen"
    found = encode_tails([(text, Encoded(_EARLIER, encode_each([_EARLIER])[0])), ("one", None)], encode_each)
    assert [list(ids) for ids in found] == encode_each([text, "one"])


_SENTENCES = st.text(st.sampled_from("ab1 ,é\n"), max_size=40)


@given(st.lists(st.tuples(_SENTENCES, _SENTENCES, _SENTENCES), max_size=5))
def test_each_text_has_its_own_ids(parts: list[tuple[str, str, str]]) -> None:
    words = _Words()
    texts = [(common + end, common + other) for common, end, other in parts]
    asked = [(text, Encoded(earlier, words.ids(earlier)) if earlier else None) for text, earlier in texts]
    assert [list(ids) for ids in encode_tails(asked, words.encode_each)] == [words.ids(text) for text, _ in texts]


def test_a_codec_that_divides_words_encodes_the_tails_of_each_making() -> None:
    def longer(words: Sequence[str]) -> Making[TokenIds]:
        ids: TokenIds = []
        for count in range(1, len(words) + 1):
            ids = yield from encoded(" ".join(words[:count]))
        return ids

    for divides in (True, False):
        words = _Words()
        codec = TextCodec(str, lambda text: [], None, words.encode_each, divides_words=divides)
        made = codec.make_each((longer(text.split()) for text in (_EARLIER, _EARLIER.upper())), 2)
        assert [list(ids) for ids in made] == [words.ids(_EARLIER), words.ids(_EARLIER.upper())]
        assert (" six seven" in words.texts, _EARLIER in words.texts) == ((True, False) if divides else (False, True))
