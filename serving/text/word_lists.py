"""Word lists (stop words, bad words) as token ids, in the layout that TensorRT-LLM reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_word_list(tokenizer: Any, words: Sequence[bytes]) -> NDArray[np.int32]:
    """Encode ``words`` to an int32 array [2, n]: row 0 flat token ids (padded with 0), row 1 cumulative ends (padded with -1).

    Words without a token are skipped; without words n is 0. Source: upstream preprocessing ``_to_word_list_format``.
    """
    encoded = [ids for word in words if (ids := tokenizer.encode(word.decode("utf-8"), add_special_tokens=False))]
    ids = [token for tokens in encoded for token in tokens]
    ends = np.cumsum([len(tokens) for tokens in encoded], dtype=np.int32)
    table = np.zeros((2, len(ids)), dtype=np.int32)
    table[0] = ids
    table[1] = -1
    table[1, : len(ends)] = ends
    return table


def from_word_list(table: NDArray[np.int32]) -> tuple[tuple[int, ...], ...]:
    """Token sequences of a [2, n] word list; the inverse of ``to_word_list``."""
    ids, ends = table.tolist() if table.size else ([], [])
    starts = [0, *ends]
    return tuple(tuple(ids[start:end]) for start, end in zip(starts, ends, strict=False) if end > start >= 0)
