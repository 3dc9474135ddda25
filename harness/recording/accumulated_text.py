"""Answers whose streamed responses repeat the text before them, as those of TensorRT-LLM's LLM API on Triton."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from harness.clients.protocol import Repetition, Response

_UNFINISHED = "\ufffd"  # in place of a character of which some bytes have not come


def in_pieces(responses: Sequence[Response]) -> Sequence[Response]:
    """The responses of one answer with the text alone that each adds, where they repeat what came before.

    That is what follows the prefix common to it and the text before. A character that is unfinished at the end of a text is no
    part of it, except in the last text.
    """
    if not _repeats(responses):
        return responses
    last = max((number for number, response in enumerate(responses) if response.text), default=0)
    pieces, known = [], ""
    for number, response in enumerate(responses):
        if response.text:
            text = response.text if number == last else response.text.rstrip(_UNFINISHED)
            response, known = replace(response, text=text[_common_length(known, text) :]), text
        pieces.append(response)
    return pieces


def _repeats(responses: Sequence[Response]) -> bool:
    """Whether texts repeat. Where no configuration says it, this is seen in the answer: each text begins with the one before
    it, and the last is longer than the first. Pieces of an answer, which do not repeat, are like this by chance in answers of
    two or three tokens alone.
    """
    repetitions = {response.repetition for response in responses}
    if Repetition.POSSIBLE not in repetitions:
        return Repetition.CERTAIN in repetitions
    texts = [text for response in responses if (text := (response.text or "").rstrip(_UNFINISHED))]
    if not texts or len(texts[-1]) == len(texts[0]):
        return False
    return all(later.startswith(earlier) for earlier, later in pairwise(texts))


def _common_length(earlier: str, later: str) -> int:
    """The length of the common prefix. The usual case is much faster than a comparison of each character."""
    if later.startswith(earlier):
        return len(earlier)
    pairs = enumerate(zip(earlier, later, strict=False))
    return next((number for number, (before, after) in pairs if before != after), len(later))
