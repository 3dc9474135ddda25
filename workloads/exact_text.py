"""Random text of an exact length in tokens.

Random token ids, decoded, seldom encode to as many tokens: byte-level vocabularies hold halves of characters, and neighbours
merge. With a small byte-level vocabulary such prompts are 13 % longer. So a text is decoded and encoded until its length is
right, as vLLM's ``benchmark_serving`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_MAX_TRIES = 64
_TRIES_PER_TOKEN = 4  # after so many tries another token at the end is drawn anew

TokenIds = Sequence[int]


@dataclass(frozen=True, slots=True)
class TextCodec:
    """``decode`` of token ids to text, and ``encode`` of text to token ids without special tokens."""

    decode: Callable[[TokenIds], str]
    encode: Callable[[str], TokenIds]


def exact_text(codec: TextCodec, token_ids: TokenIds, draw: Callable[[int], TokenIds]) -> tuple[str, tuple[int, ...]]:
    """A text close to ``token_ids``, and its own token ids: as many as ``token_ids``, or as near as 64 tries came.

    The text neither begins nor ends with white space, which chat templates remove. ``draw`` gives so many random token ids.
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
