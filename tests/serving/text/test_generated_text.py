"""Text of a sequence as it is generated: what each addition shows, what comes from the prompt, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.text.detokenization import decode, special_token_ids
from serving.text.generated_text import GeneratedText, TextStream
from serving.text.tokenizer import load_tokenizer

_TOKENIZER = load_tokenizer(DEMO_ENGINE_DIR)
_SPECIAL = special_token_ids(DEMO_ENGINE_DIR)


def _encode(text: str) -> list[int]:
    ids: list[int] = _TOKENIZER.encode(text, add_special_tokens=False)
    return ids


def _generated(stop_words: Sequence[str] = (), prompt: Sequence[int] = (), skip_special: bool = True) -> GeneratedText:
    return GeneratedText(TextStream(_TOKENIZER, skip_special, _SPECIAL), stop_words, prompt)


def test_the_whole_is_what_was_added() -> None:
    text = _generated()
    assert text.whole() == ""
    added = [text.add(_encode("The king")), text.add(_encode(" went home"), True)]
    assert added == ["The king", " went home"]
    assert text.whole() == text.whole() == "The king went home"


def test_text_added_after_a_look_at_the_whole_is_joined_to_it() -> None:
    text = _generated()
    text.add(_encode("The king"))
    assert text.whole() == "The king"
    text.add(_encode(" went home"), True)
    assert text.whole() == "The king went home"


def test_the_prompt_s_text_comes_first_and_is_no_addition() -> None:
    text = _generated(prompt=_encode("The king"))
    assert text.whole() == "The king"
    assert text.add(_encode(" went home"), True) == " went home"
    assert text.whole() == "The king went home"


def test_a_stop_word_in_the_prompt_stops_nothing() -> None:
    text = _generated([" king", "king went"], _encode("The king"))
    assert text.add(_encode(" went home"), True) == " went home"
    assert not text.stopped


def test_generated_text_ends_before_the_first_stop_word() -> None:
    text = _generated([" went"], _encode("The king"))
    assert text.add(_encode(" and the queen")) == " and the queen"
    assert not text.stopped
    assert text.add(_encode(" went home")) == ""
    assert text.stopped
    assert text.add(_encode(" again"), True) == ""
    assert text.whole() == "The king and the queen"


def test_a_stop_word_that_may_not_stop_is_text_and_a_later_one_stops() -> None:
    text = _generated([" went"])
    assert text.add(_encode("The king went"), may_stop=False) == "The king went"
    assert not text.stopped
    assert text.add(_encode(" home went")) == " home"
    assert text.stopped


def test_the_start_of_a_stop_word_is_withheld_until_the_end() -> None:
    text = _generated(["sea shore"])
    assert text.add(_encode("The sea")) == "The "
    assert text.add([], True) == "sea"
    assert (text.whole(), text.stopped) == ("The sea", False)


def test_half_a_character_is_withheld_until_it_is_whole_or_the_end() -> None:
    first, *rest = _encode("€")
    text = _generated()
    assert [text.add([first]), text.add(rest), text.add([first]), text.add([], True)] == ["", "€", "", "\ufffd"]
    assert text.whole() == "€\ufffd"


def test_an_addition_is_not_the_last_one_unless_it_is_said() -> None:
    first, *rest = _encode("€")
    stream, text = TextStream(_TOKENIZER, True, _SPECIAL), _generated(["sea shore"])
    assert [stream.add([first]), stream.add(rest)] == ["", "€"]
    assert [text.add(_encode("sea")), text.add(_encode(" shore"))] == ["", ""]


@pytest.mark.parametrize(("skip_special", "shown"), [(True, "sea"), (False, "sea</s>")])
def test_special_tokens_are_text_only_where_they_are_not_skipped(skip_special: bool, shown: str) -> None:
    assert _generated(skip_special=skip_special).add([*_encode("sea"), _TOKENIZER.eos_token_id], True) == shown


@pytest.mark.parametrize("skip_special", [True, False])
def test_the_text_of_a_long_sequence_is_that_of_all_its_tokens(skip_special: bool) -> None:
    """Its characters have one to three bytes, and special tokens lie between them: windows begin at all of these."""
    ids = [*_encode("The sea, ça va, 5 €. " * 8), _TOKENIZER.eos_token_id] * 3
    stream = TextStream(_TOKENIZER, skip_special, _SPECIAL)
    added = [stream.add([token]) for token in ids]
    assert "".join([*added, stream.add([], True)]) == decode(_TOKENIZER, ids, skip_special)
    assert len(ids) > 300


class _CountingTokenizer:
    """One letter a token; notes how many tokens each decoding took."""

    def __init__(self) -> None:
        self.decoded: list[int] = []

    def decode(self, ids: list[int], **_options: Any) -> str:
        self.decoded.append(len(ids))
        return "".join(map(chr, ids))


@given(st.lists(st.integers(97, 122), max_size=300))
@example(list(range(97, 397)))
def test_a_token_s_text_costs_the_same_however_long_the_sequence_is(ids: list[int]) -> None:
    tokenizer = _CountingTokenizer()
    stream = TextStream(tokenizer, True, ())
    assert "".join(stream.add([token]) for token in ids) == "".join(map(chr, ids))
    assert max(tokenizer.decoded, default=0) <= 65  # a window of 64 tokens, and the new one
    assert len(tokenizer.decoded) <= len(ids) + len(ids) // 48  # which starts again from 16 tokens
