"""The bytes of one token, which may be a part of a character."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_REPLACEMENT = "\ufffd"  # in a text that is not, or not alone, UTF-8
_OF_ONE_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # byte fallback of SentencePiece


def _byte_of_character() -> Mapping[str, int]:
    """The alphabet of byte-level BPE (GPT-2's ``bytes_to_unicode``): printable bytes are themselves, others begin at U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return MappingProxyType({chr(byte): byte for byte in printable} | {chr(0x100 + k): byte for k, byte in enumerate(others)})


_BYTE_OF = _byte_of_character()


def token_bytes(tokenizer: Any, token: int, text: str) -> bytes:
    """The bytes of ``token``, whose ``text`` alone it is; those of its text where the tokenizer does not show others."""
    if _REPLACEMENT not in text:
        return text.encode()
    written = tokenizer.convert_ids_to_tokens(token)
    if not isinstance(written, str):
        return text.encode()
    if match := _OF_ONE_BYTE.fullmatch(written):
        return bytes([int(match[1], 16)])
    return bytes(map(_BYTE_OF.__getitem__, written)) if _BYTE_OF.keys() >= set(written) else text.encode()
