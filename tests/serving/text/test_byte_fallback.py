"""Text of vocabularies with byte fallback, as those of Llama 2, Mistral and Gemma: whole, cut, and streamed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.text.byte_fallback import read_byte_fallback
from serving.text.detokenization import CONTEXT_TOKENS, decode
from serving.text.generated_text import GeneratedText, TextStream
from serving.text.tokenizer import FileTokenizer, load_tokenizer
from tests.serving.text.streams import from_context, from_stream, split

_END = 2
_SPECIAL = (0, 1, _END)
_SKIP = pytest.mark.parametrize("skip", [True, False], ids=["skip_special", "keep_special"])


def _backend(bytes_of: Sequence[int] = range(0x100)) -> Tokenizer:
    """Letters of ASCII, spaces, and bytes for all else, with the decoder of Llama 2's ``tokenizer.json``."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in bytes_of), *"▁abcdefghijklmnopqrstuvwxyz"]
    backend = Tokenizer(models.BPE({token: id_ for id_, token in enumerate(tokens)}, [], byte_fallback=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(token, special=True) for token in tokens[:3]])
    return backend


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> FileTokenizer:
    folder = tmp_path_factory.mktemp("byte_fallback")
    _backend().save(str(folder / "tokenizer.json"))
    loaded = load_tokenizer(folder)
    assert isinstance(loaded, FileTokenizer)
    return loaded


def _ids(tokenizer: FileTokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("stream", [from_context, from_stream])
@pytest.mark.parametrize("text", ["€é", "😀😀", "日本語を話す", "a 😀😀😀😀😀😀 b", "ภาษาไทย" * 20])
def test_neighbouring_characters_of_several_bytes_are_streamed_whole(tokenizer: FileTokenizer, stream: Any, text: str) -> None:
    pieces = stream(tokenizer, _SPECIAL, [[id_] for id_ in _ids(tokenizer, text)])
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_is_shown_with_its_last_byte(tokenizer: FileTokenizer) -> None:
    pieces = from_context(tokenizer, _SPECIAL, [[id_] for id_ in _ids(tokenizer, "é€")])
    assert pieces == ["", "", "é", "", "", "€"]  # the first is the space before the text


@_SKIP
@settings(max_examples=150, deadline=None)
@given(
    ids=st.lists(st.integers(3, 258), max_size=3 * CONTEXT_TOKENS) | st.lists(st.integers(0, 285), max_size=100),
    cuts=st.lists(st.integers(0, 100), max_size=60).map(sorted),
)
@example(ids=[], cuts=[])
@example(ids=[0xC3 + 3, 0xA9 + 3, 0xFF + 3, 259], cuts=[1, 2, 3])  # é, a byte of no character, and a space
@example(ids=[0xE2 + 3, _END, 0x82 + 3, 0xAC + 3], cuts=[1, 2, 3])
def test_pieces_of_any_tokens_join_to_the_whole(tokenizer: FileTokenizer, skip: bool, ids: list[int], cuts: list[int]) -> None:
    parts, whole = split(ids, cuts), decode(tokenizer, ids, skip)
    assert "".join(from_context(tokenizer, _SPECIAL, parts, skip)) == whole
    assert "".join(from_stream(tokenizer, _SPECIAL, parts, skip)) == whole


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=25))
def test_the_text_of_whole_characters_is_that_of_the_library(tokenizer: FileTokenizer, text: str) -> None:
    ids = _ids(tokenizer, text)
    assert decode(tokenizer, ids, True) == tokenizer.decode(ids, skip_special_tokens=True)


def test_an_answer_that_ends_within_a_character_keeps_those_before_it(tokenizer: FileTokenizer) -> None:
    assert decode(tokenizer, _ids(tokenizer, "a é😀€")[:-1], True) == "a é😀\ufffd"


def test_a_special_token_between_two_bytes_divides_them_only_where_it_is_shown(tokenizer: FileTokenizer) -> None:
    space, first, second, third = _ids(tokenizer, "€")
    ids = [space, first, _END, second, third]
    assert decode(tokenizer, ids, True) == "€"
    assert decode(tokenizer, ids, False) == "\ufffd</s>\ufffd\ufffd"


def test_a_stop_word_of_several_bytes_is_found_in_a_run_of_bytes(tokenizer: FileTokenizer) -> None:
    text = GeneratedText(TextStream(tokenizer, True, _SPECIAL), ["。"])
    for id_ in _ids(tokenizer, "日本。語"):
        text.add([id_])
    assert (text.whole(), text.stopped) == ("日本", True)


def test_a_tokenizer_without_the_bytes_of_the_replacement_or_without_the_decoder_is_left_alone() -> None:
    assert read_byte_fallback(_backend()) is not None
    assert read_byte_fallback(_backend(range(0x80))) is None
    assert load_tokenizer(Path(DEMO_ENGINE_DIR)).byte_fallback is None
    assert read_byte_fallback(Tokenizer(models.BPE())) is None


def test_a_decoder_that_is_a_byte_fallback_alone_counts() -> None:
    backend = _backend()
    backend.decoder = decoders.ByteFallback()
    assert read_byte_fallback(backend) is not None
