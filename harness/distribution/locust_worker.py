"""The process that runs Locust's worker beside a worker of a run: connection, heartbeats, clock exchanges. It imports locust.

Run: python -m harness.distribution.locust_worker FD MASTER_HOST MASTER_PORT
"""

from __future__ import annotations

import locust  # isort: skip  # first, since it replaces what other modules import

import logging
import os
import socket
import sys
import time
from typing import Any

import gevent
import locust.runners
from locust.env import Environment
from locust.event import Events

from harness.distribution.link import (
    Deliver,
    Delivered,
    FrameSocket,
    Heard,
    Left,
    LinkClosedError,
    Opened,
    Silent,
    decode_order,
)
from harness.distribution.locust_master import PAYLOAD, PING, PONG

_CONNECT_ATTEMPTS = 800  # of 5 s each, so that a worker may be started an hour before its master
_SILENT_AFTER_S = 10.0
_WATCH_PERIOD_S = 0.2


class _Worker:
    def __init__(self, frames: FrameSocket, host: str, port: int) -> None:
        self._frames = frames
        self._heard_s = time.monotonic()
        self._is_silent = False
        environment = Environment(events=Events(), user_classes=[])
        environment.events.heartbeat_received.add_listener(self._on_heartbeat)
        self._runner = environment.create_worker_runner(host, port)  # returns when the master has answered
        self._runner.register_message(PAYLOAD, self._on_payload)
        self._runner.register_message(PING, self._on_ping)
        self._heard_s = time.monotonic()

    def work(self) -> None:
        """Carry out orders until the process that gives them closes the pipe."""
        gevent.spawn(self._watch)
        self._frames.send_if_open(Opened())
        try:
            while True:
                data = self._frames.receive(None)
                assert data is not None
                order = decode_order(data)
                if isinstance(order, Deliver):
                    self._runner.send_message(PAYLOAD, {"payload": order.payload})
        except LinkClosedError:
            self._runner.send_message("quit")
            gevent.sleep(0.2)  # for the socket to send it

    def _on_payload(self, environment: Environment, msg: Any, **rest: Any) -> None:
        self._frames.send_if_open(Delivered("", msg.data["payload"]))

    def _on_ping(self, environment: Environment, msg: Any, **rest: Any) -> None:
        received_ns = time.monotonic_ns()
        answer = {**msg.data, "received_ns": received_ns, "answered_ns": time.monotonic_ns()}
        self._runner.send_message(PONG, answer)

    def _on_heartbeat(self, **rest: Any) -> None:
        self._heard_s = time.monotonic()
        if self._is_silent:
            self._is_silent = False
            self._frames.send_if_open(Heard(""))

    def _watch(self) -> None:
        """Report a master that is silent, or has ended: Locust then ends the greenlets of its worker."""
        while True:
            gevent.sleep(_WATCH_PERIOD_S)
            if not len(self._runner.greenlet):
                self._frames.send_if_open(Left(""))
                return
            if not self._is_silent and time.monotonic() - self._heard_s > _SILENT_AFTER_S:
                self._is_silent = True
                self._frames.send_if_open(Silent(""))


def _exit_when_orphaned(parent: int) -> None:
    """End this process with the one that started it, also while it waits for a master."""
    while os.getppid() == parent:
        gevent.sleep(_WATCH_PERIOD_S)
    os._exit(1)


def main() -> None:
    descriptor, host, port = sys.argv[1:]
    logging.getLogger("locust").setLevel(logging.CRITICAL)
    locust.runners.CONNECT_RETRY_COUNT = _CONNECT_ATTEMPTS
    gevent.spawn(_exit_when_orphaned, os.getppid())
    frames = FrameSocket(socket.socket(fileno=int(descriptor)))
    _Worker(frames, host, int(port)).work()
    os._exit(0)  # no greenlet has anything left to do


if __name__ == "__main__":
    assert locust is not None
    main()
