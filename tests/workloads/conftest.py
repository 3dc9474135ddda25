"""Tokenizers of several kinds, trained on this project's own pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from workloads.prompts.exact_text import TextCodec

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
    """Trained on every fourth page: its training takes far longer than those of the others."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    alphabet = sorted(set().union(*_CORPUS))
    trainer = trainers.UnigramTrainer(
        vocab_size=1000, special_tokens=["<unk>"], unk_token="<unk>", initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS[::4], trainer)
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
    scope="session", params=[_demo, _byte_level, _byte_fallback, _unigram, _word_piece], ids=lambda make: make.__name__[1:]
)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    make: Callable[[], Tokenizer] = request.param
    return make()


@pytest.fixture(scope="session")
def codec(tokenizer: Tokenizer) -> TextCodec:
    return TextCodec(
        lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False),
        lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
    )
