"""The process that runs Locust's master: connections, heartbeats, clock exchanges and the web page. It imports locust.

Run: python -m harness.distribution.locust_master FD BIND_HOST BIND_PORT [WEB_HOST WEB_PORT]
The tokens of the run and of the page are in its environment.
"""

from __future__ import annotations

import locust  # isort: skip  # first, since it replaces what other modules import

import logging
import os
import socket
import sys
import time
from collections import deque
from typing import cast

import gevent
from flask import Flask, Response, request
from locust.env import Environment
from locust.event import Events
from locust.runners import HEARTBEAT_LIVENESS, STATE_MISSING, STATE_RUNNING, MasterRunner, WorkerNode
from locust.stats import StatsEntry, StatsEntryDict, stats_history

from harness.distribution.admission import Admission, Handshake, token_of_environment
from harness.distribution.clock_sync import ClockExchange
from harness.distribution.dropped_messages import BadMessageError, DroppedMessages, printable
from harness.distribution.envelopes import (
    ADMITTED,
    CHALLENGE,
    PAYLOAD,
    PING,
    PONG,
    REFUSED,
    Admitted,
    Challenge,
    ClientReady,
    Content,
    Envelope,
    Heartbeat,
    Join,
    Ping,
    Proof,
    Quit,
    Refused,
    Sealed,
    encoded,
    fields,
    sealed_pong,
)
from harness.distribution.link import (
    ClockExchanged,
    Deliver,
    Delivered,
    Dropped,
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
from harness.distribution.locust_sockets import use_guarded_sockets
from harness.distribution.page_guard import TOKEN_VARIABLE, LiveAddress, PageGuard

_FIRST_PINGS, _FIRST_PERIOD_S, _PERIOD_S = 48, 0.02, 1.0
_WATCH_PERIOD_S = 0.5
_MOST_PEERS = 4_096
_MOST_UNANSWERED = 64  # pings of one worker


class _Bad:
    """Counts the messages that are dropped, and passes the counts on."""

    def __init__(self, frames: FrameSocket) -> None:
        self._frames = frames
        self._counts: DroppedMessages[tuple[str, str]] = DroppedMessages()

    def add(self, address: str, reason: str, peer: str = "") -> None:
        self._counts.add((peer, address), printable(reason))

    def pass_on(self) -> None:
        """To be called now and then: a flood of messages makes no flood of events."""
        counts, self._counts = self._counts, DroppedMessages()
        rest = counts.total
        for (peer, address), reason, count in counts:
            self._frames.send_if_open(Dropped(peer, address, reason, count))
            rest -= count
        if rest:
            self._frames.send_if_open(Dropped("", "", "more senders and reasons than are kept apart", rest))


class _Peer:
    """An admitted worker: how its messages are signed, and the pings that it has not answered."""

    def __init__(self, handshake: Handshake) -> None:
        self.handshake = handshake
        self.of_worker, self.of_master = handshake.of_worker, handshake.of_master
        self.pinged = 0
        self.unanswered: deque[int] = deque(maxlen=_MOST_UNANSWERED)

    def opened(self, kind: str, sealed: Sealed) -> bytes:
        """Raises BadMessageError where the worker did not sign it."""
        if not self.of_worker.is_valid(kind, sealed.data, sealed.signature):
            raise BadMessageError(f"{kind}: not signed by the worker")
        return sealed.data


class _Runner(MasterRunner):
    """Locust's master without users of its own, for workers that prove that they are expected.

    The page shows the run's requests in flight, and its button stops the run.
    """

    def __init__(
        self, environment: Environment, host: str, port: int, frames: FrameSocket, admission: Admission, bad: _Bad
    ) -> None:
        self.in_flight = 0
        self.peers: dict[str, _Peer] = {}
        self._frames = frames
        self._admission = admission
        self._bad = bad
        super().__init__(environment, host, port)

    @property
    def user_count(self) -> int:
        return self.in_flight

    def start(self, *arguments: object, **settings: object) -> None:
        """The run starts by itself: nothing to do for the page's form."""

    def stop(self, send_stop_to_client: bool = True) -> None:
        if self.worker_count > 0:  # Locust itself stops when the last worker has gone
            self._frames.send_if_open(StopAsked())

    def handle_message(self, client_id: str, msg: Envelope) -> None:  # type: ignore[override]  # the guarded socket returns it
        """Whatever happens here, the greenlet that receives goes on."""
        try:
            self._handle(msg)
        except BadMessageError as error:
            self._bad.add(msg.address, str(error), client_id if client_id in self.peers else "")
        except Exception as error:
            self._bad.add(msg.address, f"{msg.kind} cannot be handled: {error!r}", client_id if client_id in self.peers else "")
        gevent.sleep(0)  # the socket does not yield while messages wait, and heartbeats would be judged too late

    def say(self, kind: str, content: Content, peer: str) -> None:
        self.send_message(kind, fields(content), peer)

    def say_sealed(self, kind: str, data: bytes, peer: str) -> None:
        """Send a message of bench to an admitted worker; nothing to one that is gone."""
        if peer in self.peers:
            self.say(kind, Sealed(data, self.peers[peer].of_master.sign(kind, data)), peer)

    def ping(self, peer: str) -> None:
        sent_ns = time.monotonic_ns()
        self.peers[peer].pinged += 1
        self.peers[peer].unanswered.append(sent_ns)
        self.say_sealed(PING, encoded(Ping(sent_ns)), peer)

    def _handle(self, message: Envelope) -> None:
        peer = message.peer
        match message.content:
            case ClientReady():
                self.send_message("ack", None, peer)
            case Join(nonce):
                self.say(CHALLENGE, Challenge(self._admission.challenge(peer, nonce)), peer)
            case Proof(nonce, proof):
                self._admit(peer, nonce, proof)
            case Heartbeat() as heartbeat if peer in self.clients:
                self._take_heartbeat(peer, heartbeat)
            case Quit() if peer in self.clients:
                del self.clients[peer]
                self.check_stopped()
            case Sealed() as sealed:
                self._take_sealed(message, sealed)
            case _:
                pass  # a heartbeat before the admission, or what has no use here

    def _admit(self, peer: str, nonce: bytes, proof: bytes) -> None:
        handshake = self._admission.admit(peer, nonce, proof)
        if handshake is None:
            self.say(REFUSED, Refused(self._admission.refusal), peer)
            raise BadMessageError(self._admission.refusal)
        if peer not in self.peers and len(self.peers) >= _MOST_PEERS:
            self.say(REFUSED, Refused("the master has too many connections"), peer)
            raise BadMessageError(f"more than {_MOST_PEERS} connections")
        if peer not in self.peers or self.peers[peer].handshake != handshake:
            self.peers[peer] = _Peer(handshake)
            self.clients[peer] = WorkerNode(peer, heartbeat_liveness=HEARTBEAT_LIVENESS)
        self.say(ADMITTED, Admitted(handshake.master_proof), peer)

    def _take_sealed(self, message: Envelope, sealed: Sealed) -> None:
        known = self.peers.get(message.peer)
        if known is None:
            raise BadMessageError(f"{message.kind}: from a connection that has not proved that it is expected")
        data = known.opened(message.kind, sealed)
        if message.kind == PAYLOAD:
            self._frames.send_if_open(Delivered(message.peer, data))
        else:
            self._take_pong(message.peer, known, data, message.received_ns)

    def _take_heartbeat(self, peer: str, heartbeat: Heartbeat) -> None:
        node = self.clients[peer]
        node.heartbeat, node.state = HEARTBEAT_LIVENESS, heartbeat.state
        node.cpu_usage, node.memory_usage = round(heartbeat.current_cpu_usage), heartbeat.current_memory_usage
        self.send_message("heartbeat", None, peer)

    def _take_pong(self, peer: str, known: _Peer, data: bytes, returned_ns: int) -> None:
        pong = sealed_pong(data)
        if pong.sent_ns not in known.unanswered:
            raise BadMessageError(f"{PONG}: the answer to a ping that was not sent, or is answered already")
        known.unanswered.remove(pong.sent_ns)
        if pong.received_ns > pong.answered_ns:
            raise BadMessageError(f"{PONG}: answered before it was received")
        exchange = ClockExchange(pong.sent_ns, pong.received_ns, pong.answered_ns, returned_ns)
        self._frames.send_if_open(ClockExchanged(peer, exchange))


class _Master:
    def __init__(self, frames: FrameSocket, host: str, port: int) -> None:
        self._frames = frames
        self._bad = _Bad(frames)
        self._environment = Environment(events=Events(), user_classes=[])
        use_guarded_sockets(self._bad.add)
        admission = Admission(token_of_environment())
        self._runner = _Runner(self._environment, host, port, frames, admission, self._bad)
        self._environment.runner = self._runner
        self._silent: set[str] = set()
        self._left: set[str] = set()

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
                        self._runner.say_sealed(PAYLOAD, payload, peer)
                    case Show(update):
                        self._show(update)
        except LinkClosedError:
            for client in self._runner.clients.all:
                self._runner.send_message("quit", None, client.id)
            gevent.sleep(0.2)  # for the sockets to send it

    def _ping_newcomers(self) -> None:
        """The exchanges before the start: in quick succession, so that some meet no other work."""
        while True:
            gevent.sleep(_FIRST_PERIOD_S)
            for name, peer in list(self._runner.peers.items()):  # a worker may connect meanwhile
                if peer.pinged < _FIRST_PINGS and name in self._runner.clients:
                    self._runner.ping(name)

    def _ping_all(self) -> None:
        while True:
            gevent.sleep(_PERIOD_S)
            for name in list(self._runner.clients):
                if name not in self._silent and name in self._runner.peers:
                    self._runner.ping(name)

    def _watch(self) -> None:
        """Report workers whose heartbeats fail, or that left, and those that are heard again."""
        while True:
            gevent.sleep(_WATCH_PERIOD_S)
            self._bad.pass_on()  # before the look at the workers: one may connect while this waits for the pipe
            known = set(self._runner.clients)
            heard = {peer for peer in known if self._runner.clients[peer].state != STATE_MISSING}
            for peer in self._runner.peers.keys() - known - self._left:
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


def _entry(histogram: LiveHistogram) -> dict[str, object]:
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
