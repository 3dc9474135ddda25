"""What the proxy's process is given: where it listens, where Triton does, and the bounds of a request."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import msgspec

PROCESS_NAME = "bench-proxy"  # 15 characters at most: prctl(2)
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ProxyBounds:
    """The most that a client may ask of the proxy.

    ``body_bytes`` bounds an HTTP body, after decompression, and a gRPC message; ``connections`` those of one port, and the
    gRPC calls at a time. ``receive_timeout_s`` is the time for the head of a request, for its body, for a client that does not
    read, and until an idle connection is closed. ``allowed_hosts`` are names of this server in a Host header, beyond numeric
    addresses and names without a dot. Above ``memory_bytes`` of the process, calls end whose message is long in coming.
    """

    body_bytes: int = 32 * MIB
    connections: int = 4096
    receive_timeout_s: float = 60.0
    allowed_hosts: tuple[str, ...] = ()
    memory_bytes: int = 1024 * MIB


@dataclass(frozen=True, slots=True)
class PortPair:
    """``listen`` on the proxy's host, forwarded to ``server`` on loopback."""

    listen: int
    server: int


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """``host`` is a numeric address; Triton listens at ``server_host``."""

    host: str
    http: PortPair
    grpc: PortPair
    metrics: PortPair
    server_host: str = "127.0.0.1"
    bounds: ProxyBounds = field(default_factory=ProxyBounds)


def proxy_command(settings: ProxySettings) -> tuple[str, ...]:
    """The command of the proxy's process."""
    return sys.executable, "-m", "serving.proxy", msgspec.json.encode(settings).decode()


def read_settings(text: str) -> ProxySettings:
    """The settings in an argument of ``proxy_command``."""
    return msgspec.json.decode(text, type=ProxySettings)
