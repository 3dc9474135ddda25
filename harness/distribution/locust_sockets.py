"""Locust's sockets, with bounds: whatever a frame holds, the next good message is returned, typed. It imports locust.

Locust's own raise for bytes that are no MessagePack, and the greenlet that reads ends with that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
import zmq
import zmq.error
from locust.exception import RPCError
from locust.rpc import zmqrpc

from harness.distribution.dropped_messages import BadMessageError
from harness.distribution.envelopes import MOST_BYTES, Envelope, from_master, from_worker

OnBad = Callable[[str, str], None]
"""Called with the network address of the sender (empty where unknown) and what is wrong."""
_MOST_QUEUED = 256  # messages of one connection


class GuardedServer(zmqrpc.Server):
    """The master's socket. It leaves out what ``on_bad`` is called with."""

    def __init__(self, on_bad: OnBad, host: str, port: int) -> None:
        zmqrpc.BaseSocket.__init__(self, zmq.ROUTER, self.ipv4_only(host, port))
        self._on_bad = on_bad
        _limit(self.socket)
        try:
            if port:
                self.socket.bind(f"tcp://{host}:{port}")
            self.port = port or self.socket.bind_to_random_port(f"tcp://{host}")
        except zmq.error.ZMQError as error:
            raise RPCError(f"Socket bind failure: {error}") from error

    def recv_from_client(self) -> tuple[str, Envelope]:
        while True:
            parts, address = _received(self.socket)
            try:
                envelope = from_worker(parts, address)
            except BadMessageError as error:
                self._on_bad(address, str(error))
                gevent.sleep(0)  # the socket does not yield while messages wait, and a flood would leave no turn to others
            else:
                return envelope.peer, envelope


class GuardedClient(zmqrpc.Client):
    """The worker's socket. It leaves out what ``on_bad`` is called with."""

    def __init__(self, on_bad: OnBad, host: str, port: int, identity: str) -> None:
        zmqrpc.BaseSocket.__init__(self, zmq.DEALER, self.ipv4_only(host, port))
        self._on_bad = on_bad
        _limit(self.socket)
        self.socket.setsockopt(zmq.IDENTITY, identity.encode())
        self.socket.connect(f"tcp://{host}:{port}")

    def recv(self) -> Envelope:
        while True:
            parts, address = _received(self.socket)
            try:
                return from_master(parts, address)
            except BadMessageError as error:
                self._on_bad(address, str(error))
                gevent.sleep(0)


def use_guarded_sockets(on_bad: OnBad) -> None:
    """Have Locust's runners make these sockets."""
    zmqrpc.Server = partial(GuardedServer, on_bad)  # type: ignore[misc, assignment]
    zmqrpc.Client = partial(GuardedClient, on_bad)  # type: ignore[misc, assignment]


def _received(socket: Any) -> tuple[list[bytes], str]:
    """The frames of the next message, and the IP address from which it came."""
    try:
        parts = socket.recv_multipart(copy=False)  # a copy has no address
    except zmq.error.ZMQError as error:
        raise RPCError("ZMQ network broken") from error
    try:
        address = str(parts[-1].get("Peer-Address"))
    except (zmq.error.ZMQError, ValueError):
        address = ""
    return [part.bytes for part in parts], address


def _limit(socket: Any) -> None:
    """Bound the memory that one connection can take: the length of a message, and the number that wait."""
    socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
    socket.setsockopt(zmq.RCVHWM, _MOST_QUEUED)
