"""A port for a server that a test starts, or one at which nothing ever listens."""

from __future__ import annotations

import socket

_held: list[socket.socket] = []


def free_port() -> int:
    """A port of 127.0.0.1 at which nothing listens now: for a server that the test starts."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        return port


def closed_port() -> int:
    """A port of 127.0.0.1 that refuses connections for as long as this process lives.

    A bound socket keeps it, so that no server of a test beside this one is given the same port.
    """
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    port: int = holder.getsockname()[1]
    return port
