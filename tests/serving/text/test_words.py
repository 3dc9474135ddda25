"""A tokenizer that is said to divide words gives a text the ids of its parts, and others are not said to."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.text.words import divides_words

_CORPUS = [
    "The King and the queen's men went to 1234 seas . Don't they'LL go, camelCase HTTPServer x_y z",
    "Café, naïve — 日本語 ひらがな 😀 don't stop 12 345 6789 a1 b2",
    "a  b   c\n\tdone  \r\n def f(x): return [x for x in range(10)] // ok",
] * 3
_SHORTENED = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA_3 = rf"{_SHORTENED}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_END}"
_QWEN = _LLAMA_3.replace("{1,3}", "")
_GPT_4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"""
    + "\r\n"
    + r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["""
    + "\r\n"
    + r"]*|\s*["
    + "\r\n"
    + r"]+|\s+(?!\S)|\s+",
)


def _bpe(pre_tokenizer: pre_tokenizers.PreTokenizer) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<s>"], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def _split(*patterns: str) -> Tokenizer:
    parts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return _bpe(pre_tokenizers.Sequence([*parts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def _gpt_2() -> Tokenizer:
    return _bpe(pre_tokenizers.ByteLevel(add_prefix_space=False))


def _normal() -> Tokenizer:
    tokenizer = _gpt_2()
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC()])
    tokenizer.add_tokens([AddedToken("queen", normalized=False), AddedToken("naïve")])
    return tokenizer


_DIVIDE = {
    "demo": lambda: Tokenizer.from_file(str(DEMO_ENGINE_DIR / "tokenizer.json")),
    "gpt_2": _gpt_2,
    "normal": _normal,
    "llama_3": lambda: _split(_LLAMA_3),
    "qwen": lambda: _split(_QWEN),
    "gpt_4o": lambda: _split(_GPT_4O),
    "deepseek": lambda: _split(*_DEEPSEEK),
}
_PIECES = [
    "the",
    " the",
    " King",
    " 12",
    "345",
    " ",
    "  ",
    "\n",
    "'s",
    "'LL",
    ".",
    "é",
    "e\u0301",
    "\ufb01",
    "日本",
    "😀",
    "x",
    " a",
    "B",
]
_TEXTS = st.lists(st.sampled_from([*_PIECES, "queen", " naïve", "<s>"]), max_size=25).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("aB1  "), max_size=30
)


@pytest.fixture(scope="module", params=_DIVIDE)
def dividing(request: pytest.FixtureRequest) -> Tokenizer:
    make: Callable[[], Tokenizer] = _DIVIDE[request.param]
    return make()


@given(text=_TEXTS)
def test_a_text_has_the_ids_of_its_parts(dividing: Tokenizer, text: str) -> None:
    assert divides_words(dividing)
    whole = dividing.encode(text, add_special_tokens=False).ids
    for cut in re.finditer(r"(?<=[A-Za-z0-9])(?= [A-Za-z0-9])", text):
        parts = (text[: cut.start()], text[cut.start() :])
        assert [token for part in parts for token in dividing.encode(part, add_special_tokens=False).ids] == whole


def _with_token(token: AddedToken) -> Tokenizer:
    tokenizer = _gpt_2()
    tokenizer.add_tokens([token])
    return tokenizer


def _normalized(normalizer: normalizers.Normalizer) -> Tokenizer:
    tokenizer = _gpt_2()
    tokenizer.normalizer = normalizer
    return tokenizer


def _dropout() -> Tokenizer:
    tokenizer = _gpt_2()
    tokenizer.model.dropout = 0.1
    return tokenizer


_OTHERS = {
    "prefix_space": lambda: _bpe(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "one_word": lambda: _bpe(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
    "digits_alone": lambda: _split(r"\p{N}{1,3}"),
    "lines": lambda: _split(r"[^\n]+"),
    "removed": lambda: _bpe(pre_tokenizers.Split(Regex(_LLAMA_3), "removed")),
    "plain_string": lambda: _bpe(pre_tokenizers.Split(" ", "isolated")),
    "whitespace": lambda: _bpe(pre_tokenizers.Whitespace()),
    "metaspace": lambda: _bpe(pre_tokenizers.Metaspace()),
    "lowercase": lambda: _normalized(normalizers.Lowercase()),
    "strip": lambda: _normalized(normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])),
    "token_with_space": lambda: _with_token(AddedToken("the King")),
    "token_lstrip": lambda: _with_token(AddedToken("King", lstrip=True)),
    "token_rstrip": lambda: _with_token(AddedToken("King", rstrip=True)),
    "token_single_word": lambda: _with_token(AddedToken("King", single_word=True)),
    "dropout": _dropout,
    "word_piece": lambda: Tokenizer(models.WordPiece(unk_token="[UNK]")),
    "nothing": lambda: Tokenizer(models.BPE()),
}


@pytest.mark.parametrize("name", _OTHERS)
def test_nothing_is_assumed_about_other_tokenizers(name: str) -> None:
    assert not divides_words(_OTHERS[name]())
