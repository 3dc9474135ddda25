"""The token ids of a text that begins as an earlier one did: only what follows their common beginning is encoded again.

A text is corrected at its end until its length is right, so most of it is encoded each time. A tokenizer that divides a text
into words before it encodes these gives a text the ids of its two parts, where it is cut before a space between two words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_letters, digits
from typing import NamedTuple

TokenIds = Sequence[int]
EncodeEach = Callable[[Sequence[str]], Sequence[TokenIds]]

_OF_WORDS = frozenset(ascii_letters + digits)
_MOST_AGAIN = 0.8  # of a text's characters; where its tails have more, it is encoded as a whole


class Encoded(NamedTuple):
    """A text and its token ids."""

    text: str
    ids: TokenIds


def encode_tails(texts: Sequence[tuple[str, Encoded | None]], encode_each: EncodeEach) -> list[TokenIds]:
    """The token ids of each text, which may come with an earlier text.

    ``encode_each`` must give a text the ids of its parts, where it is cut before a space between two ASCII letters or digits.
    An earlier text whose own ids do not end with those of its tail shows that it does not, and the text is encoded as a whole.
    """
    cuts = [0 if earlier is None else _cut(text, earlier.text) for text, earlier in texts]
    parts: list[str] = []
    for (text, earlier), cut in zip(texts, cuts, strict=True):
        parts += [text] if earlier is None or not cut else [earlier.text[cut:], text[cut:]]
    of_parts = iter(encode_each(parts))
    found: list[TokenIds | None] = []
    for (_, earlier), cut in zip(texts, cuts, strict=True):
        tail = next(of_parts)
        found.append(tail if earlier is None or not cut else _joined(earlier.ids, tail, next(of_parts)))
    whole = iter(encode_each([text for (text, _), ids in zip(texts, found, strict=True) if ids is None]))
    return [next(whole) if ids is None else ids for ids in found]


def _joined(earlier: TokenIds, earlier_tail: TokenIds, tail: TokenIds) -> TokenIds | None:
    """``earlier`` with another tail; None where it does not end with ``earlier_tail``."""
    kept = len(earlier) - len(earlier_tail)
    if kept < 0 or tuple(earlier[kept:]) != tuple(earlier_tail):
        return None
    return (*earlier[:kept], *tail)


def _cut(text: str, earlier: str) -> int:
    """The last place in the common beginning of two texts where both can be cut; 0 where there is none that saves much."""
    common = _common_length(text, earlier)
    least = (len(text) + len(earlier) - _MOST_AGAIN * len(text)) / 2
    place = text.rfind(" ", 1, max(1, common - 1))
    while place >= max(1.0, least):
        if text[place - 1] in _OF_WORDS and text[place + 1] in _OF_WORDS:
            return place
        place = text.rfind(" ", 1, place)
    return 0


def _common_length(text: str, other: str) -> int:
    """How many characters the beginnings of two texts have in common."""
    least, most = 0, min(len(text), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if text[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least
