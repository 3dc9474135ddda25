"""Answers whose streamed responses repeat the text before them, as those of TensorRT-LLM's LLM API on Triton."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from harness.clients.protocol import Response


def in_pieces(responses: Sequence[Response]) -> Sequence[Response]:
    """The responses of one answer with the text alone that each adds, where they repeat what came before.

    Whether they do is seen in the answer, since no configuration says it: each text begins with the one before it, and the last
    is longer than the first. Pieces of an answer, which do not repeat, are like this by chance in answers of two or three
    tokens alone.
    """
    if not any(response.may_repeat for response in responses):
        return responses
    texts = [response.text for response in responses if response.text]
    if len(texts) <= 1 or len(texts[-1]) == len(texts[0]):
        return responses
    if not all(later.startswith(earlier) for earlier, later in pairwise(texts)):
        return responses
    pieces, known = [], 0
    for response in responses:
        pieces.append(response if not response.text else replace(response, text=response.text[known:]))
        known = max(known, len(response.text or ""))
    return pieces
