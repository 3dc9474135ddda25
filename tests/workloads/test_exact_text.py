"""Random text has exactly the tokens that were asked for, whatever the kind of tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from workloads.exact_text import TextCodec, exact_text, retokenised_ratio
from workloads.lengths.families import Lognormal, Uniform
from workloads.lengths.samples import Independent
from workloads.token_norm_dist import TokenNormDist

_ROOT = Path(__file__).parents[2]
_CORPUS = [path.read_text(encoding="utf-8") for path in sorted((_ROOT / "docs").rglob("*.md"))]


def _demo() -> Tokenizer:
    return Tokenizer.from_file(str(_ROOT / "serving" / "demo_engine" / "tokenizer.json"))


def _byte_fallback() -> Tokenizer:
    """As Llama 2's: words with their space as ``▁``, and a token a byte for what is not in the vocabulary."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.train_from_iterator(_CORPUS, trainers.BpeTrainer(vocab_size=2000, special_tokens=special, show_progress=False))
    return tokenizer


def _byte_level() -> Tokenizer:
    """As GPT-2's and Llama 3's: every byte is a character of the alphabet."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=["<s>"], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=1000, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def _word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=2000, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


@pytest.fixture(
    scope="module", params=[_demo, _byte_level, _byte_fallback, _unigram, _word_piece], ids=lambda make: make.__name__[1:]
)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    make: Callable[[], Tokenizer] = request.param
    return make()


def _codec(tokenizer: Tokenizer) -> TextCodec:
    return TextCodec(
        lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False),
        lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
    )


@pytest.mark.parametrize(("length", "texts"), [(1, 100), (2, 100), (8, 100), (128, 50), (1000, 5)])
def test_a_text_has_exactly_the_asked_tokens(tokenizer: Tokenizer, length: int, texts: int) -> None:
    generator = np.random.default_rng(length)
    vocabulary = tokenizer.get_vocab_size()

    def draw(count: int) -> list[int]:
        drawn: list[int] = generator.integers(3, vocabulary, count).tolist()
        return drawn

    codec = _codec(tokenizer)
    for _ in range(texts):
        text, ids = exact_text(codec, draw(length), draw)
        assert len(ids) == length
        assert tuple(codec.encode(text)) == ids
        assert text == text.strip()


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_drawn_prompts_have_exactly_their_lengths_as_text_and_as_ids(tokenizer: Tokenizer, seed: int, as_text: bool) -> None:
    lengths = Independent(Lognormal(60.0, 80.0, 1, 400), Uniform(1, 9))
    codec = _codec(tokenizer) if as_text else None
    ids = range(3, tokenizer.get_vocab_size())
    drawn = TokenNormDist(lengths, ids, seed, codec=codec).draw(40).requests
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
    text, ids = exact_text(codec, (1, 2, 1), lambda count: [1] * count)
    assert (text, len(ids)) in {("aa", 4), ("a", 2)}


def test_text_that_encodes_to_what_it_came_from_has_a_retokenised_ratio_of_1() -> None:
    codec = TextCodec(lambda ids: "".join(chr(97 + token) for token in ids), lambda text: [ord(letter) - 97 for letter in text])
    assert retokenised_ratio(codec, range(26)) == 1.0


def test_retokenised_ratio_of_text_that_falls_apart() -> None:
    codec = TextCodec(lambda ids: "".join("ab"[token] * (token + 1) for token in ids), lambda text: list(map(ord, text)))
    assert retokenised_ratio(codec, [0]) == 1.0
    assert retokenised_ratio(codec, [1]) == 2.0
    # the texts are those of numpy's seed 0, in which 1,043 of 2,000 tokens are the second one: the same in every run
    assert retokenised_ratio(codec, [0, 1]) == pytest.approx(1.5215)
