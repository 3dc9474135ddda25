"""A port for a server that a test starts, or one at which nothing ever listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from serving.launch.addresses import ServerAddresses

_held: list[socket.socket] = []
_PORTS = range(10_000, 32_768)
_OF_THE_KERNEL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port of 127.0.0.1 for a server that the test starts, and may stop and start again.

    For as long as this process lives, neither another test gets it nor a program that lets the kernel choose a port: it lies
    outside of the range that the kernel chooses from, and a test claims it by a socket with a name, of which a host has one.
    Where that range leaves none, it is a port at which nothing listens now.
    """
    for port in _ports():
        if _is_claimed(port) and _is_free(port):
            return port
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        given: int = holder.getsockname()[1]
        return given


def free_addresses() -> ServerAddresses:
    """Addresses with such ports: for a server that the test starts itself, or kills."""
    return ServerAddresses("127.0.0.1", free_port(), free_port(), free_port())


def closed_port() -> int:
    """A port of 127.0.0.1 that refuses connections for as long as this process lives.

    A bound socket keeps it, so that no server of a test beside this one is given the same port.
    """
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    port: int = holder.getsockname()[1]
    return port


def _ports() -> Iterator[int]:
    """The ports that the kernel never chooses by itself; none where it does not say which these are."""
    with suppress(OSError):
        lowest, highest = map(int, _OF_THE_KERNEL.read_text(encoding="ascii").split())
        yield from (port for port in _PORTS if not lowest <= port <= highest)


def _is_claimed(port: int) -> bool:
    """Claim the port among all tests of this host; False where one has it. The claim ends with this process."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0inflight-bench, port {port} of a test")
    except OSError:
        claim.close()
        return False
    _held.append(claim)
    return True


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
        return True
    return False
