"""How deep a JSON text is nested: Triton's parser recurses, and a million brackets overflow its stack."""

from __future__ import annotations

import re

MOST_LEVELS = 100  # as protobuf's default; a tensor has one a dimension, and a schema for guided decoding is a string
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # to the end of the text where it is not closed
_OTHER_BYTES = bytes(set(range(256)) - set(b"[]{}"))


def is_too_deep(text: bytes, levels: int = MOST_LEVELS) -> bool:
    """Whether a parser of ``text`` would be inside more than ``levels`` arrays and objects before an error, if any."""
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    import numpy as np  # rarely needed, and it takes memory

    brackets = np.frombuffer(_STRING.sub(b"", text).translate(None, _OTHER_BYTES), np.uint8)
    opening = (brackets == ord("[")) | (brackets == ord("{"))
    depth = np.cumsum(np.where(opening, 1, -1), dtype=np.int32)
    return bool(depth.size) and int(depth.max()) > levels
