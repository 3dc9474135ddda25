"""Random text of an exact length in tokens.

Random token ids, decoded, seldom encode to as many tokens: byte-level vocabularies hold halves of characters, and neighbours
merge. With a small byte-level vocabulary such prompts are 13 % longer. So a text is decoded and encoded until its length is
right, as vLLM's ``benchmark_serving`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workloads.elements.request import Request
from workloads.prompts.rounds import Made, Making, decoded, encoded, made_in_rounds, texts_at_once
from workloads.prompts.tails import Encoded, TokenIds, encode_tails

_RATIO_TEXTS, _RATIO_TOKENS = 100, 20
_MAX_TRIES = 64
_TRIES_PER_TOKEN = 4  # after this many tries another token at the end is drawn anew


@dataclass(frozen=True, slots=True)
class TextCodec:
    """``decode`` of token ids to text, and ``encode`` of text to token ids without special tokens.

    ``decode_many`` and ``encode_many`` give the same for many at once, and sooner than one by one; None where a tokenizer has
    no such thing. With ``divides_words`` a text has the ids of its two parts, where it is cut before a space between two ASCII
    letters or digits.
    """

    decode: Callable[[TokenIds], str]
    encode: Callable[[str], TokenIds]
    decode_many: Callable[[Sequence[TokenIds]], Sequence[str]] | None = None
    encode_many: Callable[[Sequence[str]], Sequence[TokenIds]] | None = None
    divides_words: bool = False

    def make(self, making: Making[Made]) -> Made:
        """What ``making`` returns."""
        return next(self.make_each([making], 1))

    def make_each(self, makings: Iterable[Making[Made]], at_once: int) -> Iterator[Made]:
        """What each of ``makings`` returns, in their order; ``at_once`` of them are under way."""
        return made_in_rounds(makings, self._decode_each, self._encode_after, at_once)

    def without(self, character: str) -> TextCodec:
        """The codec whose texts leave ``character`` out."""
        return replace(
            self,
            decode=lambda ids: self.decode(ids).replace(character, ""),
            decode_many=lambda several: [text.replace(character, "") for text in self._decode_each(several)],
        )

    def _decode_each(self, several: Sequence[TokenIds]) -> Sequence[str]:
        return [*map(self.decode, several)] if self.decode_many is None else self.decode_many(several)

    def _encode_after(self, texts: Sequence[tuple[str, Encoded | None]]) -> Sequence[TokenIds]:
        if self.divides_words:
            return encode_tails(texts, self._encode_each)
        return self._encode_each([text for text, _ in texts])

    def _encode_each(self, texts: Sequence[str]) -> Sequence[TokenIds]:
        return [*map(self.encode, texts)] if self.encode_many is None else self.encode_many(texts)


def retokenised_ratio(codec: TextCodec, token_ids: TokenIds) -> float:
    """How many tokens the text of a random token of ``token_ids`` encodes to: 1 for text that encodes to what it came from.

    Over 100 texts of 20 tokens, always the same ones for a vocabulary.
    """
    drawn = np.random.default_rng(0).choice(np.asarray(token_ids, np.int64), (_RATIO_TEXTS, _RATIO_TOKENS))
    encoded = sum(len(codec.encode(codec.decode(ids))) for ids in drawn.tolist())
    return encoded / drawn.size


def exact_text(token_ids: TokenIds, draw: Callable[[int], TokenIds]) -> Making[tuple[str, tuple[int, ...]]]:
    """Makes a text close to ``token_ids``, and its own token ids: as many as ``token_ids``, or as near as 64 tries came.

    The text neither begins nor ends with white space, which chat templates remove. ``draw`` gives this many random token ids.
    """
    length = len(token_ids)
    ids: TokenIds = token_ids
    nearest: tuple[str, tuple[int, ...]] | None = None
    for tried in range(_MAX_TRIES):
        text = (yield from decoded(ids)).strip()
        own_ids = tuple((yield from encoded(text)))
        if nearest is None or abs(len(own_ids) - length) < abs(len(nearest[1]) - length):
            nearest = text, own_ids
        if len(own_ids) == length:
            break
        kept = own_ids if len(own_ids) < length else own_ids[: max(0, length - tried // _TRIES_PER_TOKEN)]
        ids = (*kept, *draw(length - len(kept)))
    assert nearest is not None
    return nearest


def exact_requests(
    pieces: Iterable[Sequence[int]],
    further: Iterable[Callable[[int], TokenIds]],
    lengths: Sequence[tuple[int, int]],
    codec: TextCodec | None,
    ignore_eos: bool,
) -> Iterator[Request]:
    """A request for each of ``pieces``, token ids, with its input and output tokens by ``lengths``.

    With ``codec`` its prompt is the ``exact_text`` of the piece, which takes the ids that are missing from ``further``, in the
    same order; with None it is the ids.
    """
    made: Iterable[tuple[str | None, Sequence[int]]] = ((None, piece) for piece in pieces)
    if codec is not None:
        makings = (exact_text(piece, draw) for piece, draw in zip(pieces, further, strict=True))
        made = codec.make_each(makings, texts_at_once([input_tokens for input_tokens, _ in lengths]))
    for (text, ids), (input_tokens, output_tokens) in zip(made, lengths, strict=True):
        yield Request(
            output_tokens=output_tokens,
            prompt=text,
            input_ids=ids,
            input_tokens=len(ids),
            requested_input_tokens=input_tokens,
            ignore_eos=ignore_eos,
        )
