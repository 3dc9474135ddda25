"""Pieces of a text that is streamed in parts, as the two models that stream text make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serving.text.detokenization import decode_piece, next_context
from serving.text.generated_text import TextStream


def split(ids: Sequence[int], cuts: Sequence[int]) -> list[Sequence[int]]:
    """``ids`` in parts that begin at the ``cuts``, which ascend."""
    inner = [min(cut, len(ids)) for cut in cuts]
    return [ids[start:end] for start, end in zip([0, *inner], [*inner, len(ids)], strict=True)]


def from_context(tokenizer: Any, special_ids: Sequence[int], parts: Sequence[Sequence[int]], skip: bool = True) -> list[str]:
    """Pieces from the few tokens before them only, as in ``postprocessing``."""
    context: list[int] = []
    pieces = []
    for number, part in enumerate(parts, start=1):
        pieces.append(decode_piece(tokenizer, context, part, number == len(parts), skip))
        context = next_context(context, part, special_ids)
    return pieces


def from_stream(tokenizer: Any, special_ids: Sequence[int], parts: Sequence[Sequence[int]], skip: bool = True) -> list[str]:
    """Pieces from one object that reads every token, as in BLS."""
    stream = TextStream(tokenizer, skip, special_ids)
    return [stream.add(part, number == len(parts)) for number, part in enumerate(parts, start=1)]
