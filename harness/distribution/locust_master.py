"""The process that runs Locust's master: connections, heartbeats, clock exchanges and the web page. It imports locust.

Run: python -m harness.distribution.locust_master FD BIND_HOST BIND_PORT [WEB_HOST WEB_PORT]
The page's token is in its environment.
"""

from __future__ import annotations

import locust  # isort: skip  # first, since it replaces what other modules import

import logging
import os
import socket
import sys
import time
from typing import Any, cast

import gevent
from flask import Flask, Response, request
from locust.env import Environment
from locust.event import Events
from locust.runners import STATE_MISSING, STATE_RUNNING, MasterRunner
from locust.stats import StatsEntry, StatsEntryDict, stats_history

from harness.distribution.clock_sync import ClockExchange
from harness.distribution.link import (
    ClockExchanged,
    Deliver,
    Delivered,
    FrameSocket,
    Heard,
    Left,
    LinkClosedError,
    Opened,
    Show,
    Silent,
    StopAsked,
    decode_order,
)
from harness.distribution.live_histograms import E2E, LiveHistogram, LiveUpdate
from harness.distribution.page_guard import TOKEN_VARIABLE, LiveAddress, PageGuard

PAYLOAD, PING, PONG = "bench", "bench_ping", "bench_pong"  # types of Locust's custom messages
_FIRST_PINGS, _FIRST_PERIOD_S, _PERIOD_S = 48, 0.02, 1.0
_WATCH_PERIOD_S = 0.5


class _Runner(MasterRunner):
    """Locust's master without users of its own: the page shows the run's requests in flight, and its button stops the run."""

    def __init__(self, environment: Environment, host: str, port: int, frames: FrameSocket) -> None:
        self.in_flight = 0
        self._frames = frames
        super().__init__(environment, host, port)

    @property
    def user_count(self) -> int:
        return self.in_flight

    def start(self, *arguments: object, **settings: object) -> None:
        """The run starts by itself: nothing to do for the page's form."""

    def stop(self, send_stop_to_client: bool = True) -> None:
        if self.worker_count > 0:  # Locust itself stops when the last worker has gone
            self._frames.send_if_open(StopAsked())


class _Master:
    def __init__(self, frames: FrameSocket, host: str, port: int) -> None:
        self._frames = frames
        self._environment = Environment(events=Events(), user_classes=[])
        self._runner = _Runner(self._environment, host, port, frames)
        self._environment.runner = self._runner
        self._silent: set[str] = set()
        self._left: set[str] = set()
        self._pinged: dict[str, int] = {}
        self._runner.register_message(PAYLOAD, self._on_payload)
        self._runner.register_message(PONG, self._on_pong)
        self._environment.events.worker_connect.add_listener(self._on_connect)

    def open_page(self, address: LiveAddress) -> None:
        page = self._environment.create_web_ui(address.host, address.port, delayed_start=True)
        assert page.app is not None
        _admit_only(PageGuard(address), page.app)
        page.start()
        gevent.spawn(stats_history, self._runner)

    def work(self) -> None:
        """Carry out orders until the process that gives them closes the pipe."""
        gevent.spawn(self._watch)
        gevent.spawn(self._ping_newcomers)
        gevent.spawn(self._ping_all)
        self._frames.send_if_open(Opened(self._runner.server.port))
        try:
            while True:
                data = self._frames.receive(None)
                assert data is not None
                match decode_order(data):
                    case Deliver(peer, payload):
                        self._runner.send_message(PAYLOAD, {"payload": payload}, peer)
                    case Show(update):
                        self._show(update)
        except LinkClosedError:
            for client in self._runner.clients.all:
                self._runner.send_message("quit", None, client.id)
            gevent.sleep(0.2)  # for the sockets to send it

    def _on_connect(self, client_id: str, **rest: Any) -> None:
        self._pinged.setdefault(client_id, 0)

    def _on_payload(self, environment: Environment, msg: Any, **rest: Any) -> None:
        self._frames.send_if_open(Delivered(msg.node_id, msg.data["payload"]))
        gevent.sleep(0)  # Locust's listener does not yield while messages wait, and heartbeats would be judged too late

    def _on_pong(self, environment: Environment, msg: Any, **rest: Any) -> None:
        returned_ns = time.monotonic_ns()
        exchange = ClockExchange(msg.data["sent_ns"], msg.data["received_ns"], msg.data["answered_ns"], returned_ns)
        self._frames.send_if_open(ClockExchanged(msg.node_id, exchange))

    def _ping_newcomers(self) -> None:
        """The exchanges before the start: in quick succession, so that some meet no other work."""
        while True:
            gevent.sleep(_FIRST_PERIOD_S)
            for peer, count in list(self._pinged.items()):  # a worker may connect meanwhile
                if count < _FIRST_PINGS and peer in self._runner.clients:
                    self._pinged[peer] += 1
                    self._ping(peer)

    def _ping_all(self) -> None:
        while True:
            gevent.sleep(_PERIOD_S)
            for peer in list(self._runner.clients):
                if peer not in self._silent:
                    self._ping(peer)

    def _ping(self, peer: str) -> None:
        self._runner.send_message(PING, {"sent_ns": time.monotonic_ns()}, peer)

    def _watch(self) -> None:
        """Report workers whose heartbeats fail, or that left, and those that are heard again."""
        while True:
            gevent.sleep(_WATCH_PERIOD_S)
            known = set(self._runner.clients)
            heard = {peer for peer in known if self._runner.clients[peer].state != STATE_MISSING}
            for peer in self._pinged.keys() - known - self._left:
                self._left.add(peer)
                self._frames.send_if_open(Left(peer))
            for peer in known - heard - self._silent:
                self._silent.add(peer)
                self._frames.send_if_open(Silent(peer))
            for peer in self._silent & heard:
                self._silent.discard(peer)
                self._frames.send_if_open(Heard(peer))

    def _show(self, update: LiveUpdate) -> None:
        self._runner.in_flight = update.in_flight
        self._runner.update_state(STATE_RUNNING)
        stats = self._environment.stats
        for histogram in update.histograms:
            entry = StatsEntry.unserialize(cast("StatsEntryDict", _entry(histogram)), stats)
            stats.entries[(histogram.name, "LLM")].extend(entry)
            if histogram.name == E2E:
                stats.total.extend(entry)
        for reason, count in update.failures.items():
            for _ in range(count):
                stats.log_error("LLM", E2E, reason)


def _admit_only(guard: PageGuard, app: Flask) -> None:
    """Refuse (403) the requests that ``guard`` refuses. The token of the URL becomes a cookie, for the page's own requests."""
    app.debug = False

    @app.before_request
    def refuse() -> Response | None:
        tokens = (request.args.get("token"), request.cookies.get(guard.cookie))
        refusal = guard.refusal(request.host, request.headers.get("Origin"), tokens)
        return None if refusal is None else Response(f"{refusal}\n", 403, content_type="text/plain")

    @app.after_request
    def remember(response: Response) -> Response:
        token = request.args.get("token")
        if guard.is_token(token) and token is not None and response.status_code < 400:
            response.set_cookie(guard.cookie, token, httponly=True, samesite="Strict")
        response.headers["Referrer-Policy"] = "no-referrer"
        return response


def _entry(histogram: LiveHistogram) -> dict[str, Any]:
    """What Locust's worker would send of its own requests."""
    now_s = int(time.time())
    count = histogram.count + histogram.failed
    return {
        "name": histogram.name,
        "method": "LLM",
        "last_request_timestamp": time.time(),
        "start_time": time.time(),
        "num_requests": count,
        "num_none_requests": histogram.failed,
        "num_failures": 0,
        "total_response_time": histogram.sum_ms,
        "max_response_time": histogram.most_ms or 0,
        "min_response_time": histogram.least_ms,
        "total_content_length": 0,
        "response_times": histogram.buckets,
        "num_reqs_per_sec": {now_s: count},
        "num_fail_per_sec": {},
    }


def main() -> None:
    descriptor, host, port, *page = sys.argv[1:]
    logging.getLogger("locust").setLevel(logging.CRITICAL)  # its words are about users; the run has its own
    frames = FrameSocket(socket.socket(fileno=int(descriptor)))
    master = _Master(frames, host, int(port))
    if page:
        master.open_page(LiveAddress(page[0], int(page[1]), os.environ.pop(TOKEN_VARIABLE)))
    master.work()
    os._exit(0)  # no greenlet has anything left to do


if __name__ == "__main__":
    assert locust is not None
    main()
