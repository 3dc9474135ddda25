"""Byte fallback of SentencePiece's vocabularies: the tokens ``<0x00>`` to ``<0xFF>``, for characters that have no token.

The decoder of ``tokenizers`` writes one U+FFFD for each byte of a run of such tokens unless the whole run is UTF-8. So a
character that is cut, at the end of a streamed piece or of an answer, would take all characters of its run with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tokenizers import Tokenizer

_REPLACEMENT = "\ufffd".encode()


@dataclass(frozen=True)
class ByteFallback:
    """The byte of each such token by its id, and the ids by their bytes. ``special_ids`` are the special tokens' ids."""

    byte_of: Mapping[int, int]
    id_of: Mapping[int, int]
    special_ids: frozenset[int]

    def repaired(self, token_ids: Sequence[int], skip_special_tokens: bool) -> Sequence[int]:
        """``token_ids`` with UTF-8 in each run of bytes: those of no character, or of a cut one, become the bytes of U+FFFD.

        Without special tokens where these are skipped: the bytes on both sides of one are then a single run.
        """
        if self.byte_of.keys().isdisjoint(token_ids):
            return token_ids
        shown = [id_ for id_ in token_ids if id_ not in self.special_ids] if skip_special_tokens else token_ids
        ids: list[int] = []
        for is_byte, run in groupby(shown, self.byte_of.__contains__):
            if is_byte:
                text = bytes(map(self.byte_of.__getitem__, run)).decode("utf-8", "replace")
                ids.extend(map(self.id_of.__getitem__, text.encode()))
            else:
                ids.extend(run)
        return ids


def read_byte_fallback(tokenizer: Tokenizer) -> ByteFallback | None:
    """The byte fallback of a tokenizer; None where its decoder has none, or its vocabulary no bytes for U+FFFD."""
    if tokenizer.decoder is None:
        return None
    decoder = json.loads(tokenizer.decoder.__getstate__())
    if all(part.get("type") != "ByteFallback" for part in decoder.get("decoders", [decoder])):
        return None
    ids = {byte: id_ for byte in range(0x100) if (id_ := tokenizer.token_to_id(f"<0x{byte:02X}>")) is not None}
    if not ids.keys() >= set(_REPLACEMENT):
        return None
    special = frozenset(id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special)
    return ByteFallback({id_: byte for byte, id_ in ids.items()}, ids, special)
