"""Addresses of a server: host and ports, and the search for free ones."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from serving.errors import LaunchError

LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 -- a name only; nothing binds it unless --host does


@dataclass(frozen=True, slots=True)
class ServerAddresses:
    """Host and ports of a server's three endpoints. ``restricted_apis`` are Triton's protocols that need its admin key.

    ``openai_port`` is that of the OpenAI front end, None without one.
    """

    host: str
    http_port: int
    grpc_port: int
    metrics_port: int
    restricted_apis: tuple[str, ...] = ()
    openai_port: int | None = None

    @property
    def http(self) -> str:
        return f"{self.host}:{self.http_port}"

    @property
    def grpc(self) -> str:
        return f"{self.host}:{self.grpc_port}"

    @property
    def metrics(self) -> str:
        return f"{self.host}:{self.metrics_port}"

    @property
    def openai(self) -> str | None:
        """The base URL for OpenAI's clients."""
        return None if self.openai_port is None else f"http://{self.host}:{self.openai_port}/v1"


def choose_addresses(
    http_port: int | None = None,
    grpc_port: int | None = None,
    metrics_port: int | None = None,
    host: str = LOOPBACK,
    openai_port: int | None = None,
) -> ServerAddresses:
    """Addresses with a free port for each None; for ``openai_port`` 0 is a free port, and None no front end.

    Raises LaunchError for a host of another machine, or a port in use.
    """
    host = resolve_host(host)
    held: list[socket.socket] = []
    ports = []
    try:
        of_triton = (("--http_port", http_port), ("--grpc_port", grpc_port), ("--metrics_port", metrics_port))
        of_front_end = () if openai_port is None else (("--openai_port", openai_port),)
        for option, port in (*of_triton, *of_front_end):
            holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            held.append(holder)
            if port in ports:
                raise LaunchError(f"{option} {port}: the same port is given twice")
            if port:
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                holder.bind((host, port or 0))
            except (OSError, OverflowError) as error:
                raise LaunchError(f"{option} {port}: cannot listen on {host}:{port}: {error}") from error
            ports.append(holder.getsockname()[1])
    finally:
        for holder in held:
            holder.close()
    triton, front_end = ports[:3], ports[3:]
    return replace(ServerAddresses(host, *triton), openai_port=front_end[0] if front_end else None)


@contextmanager
def held_ports(places: Iterable[tuple[str, int]]) -> Iterator[None]:
    """Keep the ports at which a server is to listen, host and port each, from programs that look for a free one.

    The server can listen there nevertheless, if it sets SO_REUSEADDR, as Triton does: the sockets here do not listen
    (socket(7)). A port that is taken already is left to the server, which says so.
    """
    with ExitStack() as held:
        for place in places:
            holder = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError, OverflowError):
                holder.bind(place)
        yield


def is_loopback(host: str) -> bool:
    """Whether ``host`` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def resolve_host(host: str) -> str:
    """``host`` as a numeric IPv4 address of this machine, ``0.0.0.0`` for all of them. Raises LaunchError."""
    if not host:
        raise LaunchError("--host: give an address; 0.0.0.0 means all addresses of this machine")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
        try:
            bound.bind((host, 0))
        except (OSError, UnicodeError) as error:
            raise LaunchError(f"--host {host}: not an IPv4 address of this machine: {error}") from error
        numeric: str = bound.getsockname()[0]
        return numeric
