"""Random text of an exact length in tokens.

Random token ids, decoded, seldom encode to as many tokens: byte-level vocabularies hold halves of characters, and neighbours
merge. With a small byte-level vocabulary such prompts are 13 % longer. So a text is decoded and encoded until its length is
right, as vLLM's ``benchmark_serving`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_RATIO_TEXTS, _RATIO_TOKENS = 100, 20
_MAX_TRIES = 64
_TRIES_PER_TOKEN = 4  # after this many tries another token at the end is drawn anew

TokenIds = Sequence[int]


@dataclass(frozen=True, slots=True)
class TextCodec:
    """``decode`` of token ids to text, and ``encode`` of text to token ids without special tokens."""

    decode: Callable[[TokenIds], str]
    encode: Callable[[str], TokenIds]


def retokenised_ratio(codec: TextCodec, token_ids: TokenIds) -> float:
    """How many tokens the text of a random token of ``token_ids`` encodes to: 1 for text that encodes to what it came from.

    Over 100 texts of 20 tokens, always the same ones for a vocabulary.
    """
    drawn = np.random.default_rng(0).choice(np.asarray(token_ids, np.int64), (_RATIO_TEXTS, _RATIO_TOKENS))
    encoded = sum(len(codec.encode(codec.decode(ids))) for ids in drawn.tolist())
    return encoded / drawn.size


def exact_text(codec: TextCodec, token_ids: TokenIds, draw: Callable[[int], TokenIds]) -> tuple[str, tuple[int, ...]]:
    """A text close to ``token_ids``, and its own token ids: as many as ``token_ids``, or as near as 64 tries came.

    The text neither begins nor ends with white space, which chat templates remove. ``draw`` gives this many random token ids.
    """
    length = len(token_ids)
    ids: TokenIds = token_ids
    nearest: tuple[str, tuple[int, ...]] | None = None
    for tried in range(_MAX_TRIES):
        text = codec.decode(ids).strip()
        encoded = tuple(codec.encode(text))
        if nearest is None or abs(len(encoded) - length) < abs(len(nearest[1]) - length):
            nearest = text, encoded
        if len(encoded) == length:
            break
        kept = encoded if len(encoded) < length else encoded[: max(0, length - tried // _TRIES_PER_TOKEN)]
        ids = (*kept, *draw(length - len(kept)))
    assert nearest is not None
    return nearest
