"""Server-sent events that came one by one, each in an HTTP chunk and a piece of its own, cut out all at once."""

from __future__ import annotations

import re
from collections.abc import Sequence

_EVENT = re.compile(rb"([0-9a-fA-F]{1,3})\r\ndata: (.+)\n\n\r\n")
_BESIDE_HEAD_AND_DATA = len(b"\r\ndata: \n\n\r\n")
_BESIDE_DATA = len(b"data: \n\n")
_CHUNK_BYTES = {head % size: size for size in range(0x1000) for head in (b"%x", b"%X")}  # by the chunk's head


def cut_events(pieces: Sequence[bytes]) -> list[bytes] | None:
    """The data of the event in each of ``pieces``; None unless each of them is exactly one chunk with one event.

    A chunk is as RFC 9112, section 7.1, has it: less than 4,096 bytes, without extensions. An event is as WHATWG HTML, section
    9.2.6, has it: one line of data behind the usual space, all lines ended by LF.
    """
    joined = b"".join(pieces)
    found = _EVENT.findall(joined)
    if [len(head) + len(data) + _BESIDE_HEAD_AND_DATA for head, data in found] != [len(piece) for piece in pieces]:
        return None  # so each match begins where its piece does
    if joined.count(b"\r") != 2 * len(found):  # a CR in the data would end a line, too
        return None
    if [_CHUNK_BYTES.get(head) for head, _ in found] != [len(data) + _BESIDE_DATA for _, data in found]:
        return None
    return [data for _, data in found]
