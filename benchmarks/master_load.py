"""A real Locust master under the messages of 1,000 workers: its CPU, and how late it handles them.

    python -m benchmarks.master_load [--workers 1000] [--rates 0,500,1000,2000,4000] [--seconds 6] [--batch_kb 64] [--work_ms 0]

The master is ``Environment().create_master_runner`` with a listener for journal batches, in a process of its own on loopback.
Workers are ZeroMQ DEALER sockets in two more processes, which speak Locust's protocol: ``client_ready``, a heartbeat a second,
statistics every three, and batches at each of the rates in turn, all workers together. The listener checks a batch's hash and
number, and drops it: decoding comes on top (``python -m benchmarks.record_cost``), in a process of its own, or else in the
listener, as ``--work_ms`` for each batch.

For each rate: CPU of the master's thread and of ZeroMQ's thread as shares of a core; batches and bytes received a second; how
long after its sending a batch or a heartbeat was handled (one clock, CLOCK_MONOTONIC); time inside the listener; how late a
greenlet that sleeps 50 ms wakes up; and the workers that were marked missing because heartbeats were too late. Senders stop
while more than 256 MB are on their way, so an overloaded master fills no memory: the rate received is then its limit. Such a
master has no turn for anything but messages, so the parent ends the sending of a rate that does not end by itself.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import resource
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest

_SENDERS = 2
_HEARTBEAT_S, _STATISTICS_S = 1.0, 3.0
_PROBE_S = 0.05
_MOST_UNDERWAY_BYTES = 256 << 20
_PATIENCE_S = 60.0
_GRACE_S = 5.0


@dataclass
class Stage:
    """What the master saw while one rate was sent. Times in ms, CPU in seconds."""

    rate: float
    seconds: float = 0.0
    batches: int = 0
    received_bytes: int = 0
    heartbeats: int = 0
    thread_cpu_s: float = 0.0
    other_cpu_s: float = 0.0
    missing: int = 0
    out_of_order: int = 0
    batch_ms: list[float] = field(default_factory=list)
    heartbeat_ms: list[float] = field(default_factory=list)
    listener_ms: list[float] = field(default_factory=list)
    hub_ms: list[float] = field(default_factory=list)


# ---- the master: a process of its own, since importing locust replaces the standard library's blocking calls


class Listener:
    """Counts what the master's listeners get."""

    def __init__(self, control: Control, work_ms: float) -> None:
        self.stage = Stage(0.0)
        self._work_ns = int(work_ms * 1e6)
        self._control = control
        self._numbers: dict[str, int] = {}

    def on_batch(self, environment: Any, msg: Any, **_: Any) -> None:
        began_ns = time.monotonic_ns()
        data, stage = msg.data, self.stage
        if xxh3_64_intdigest(data["bytes"]) != data["hash"] or data["number"] != self._numbers.get(msg.node_id, 0):
            stage.out_of_order += 1
        self._numbers[msg.node_id] = data["number"] + 1
        while time.monotonic_ns() - began_ns < self._work_ns:
            pass
        stage.batches += 1
        stage.received_bytes += len(data["bytes"])
        self._control.received.value += len(data["bytes"])
        stage.batch_ms.append((began_ns - data["sent_ns"]) / 1e6)
        stage.listener_ms.append((time.monotonic_ns() - began_ns) / 1e6)

    def on_beat(self, environment: Any, msg: Any, **_: Any) -> None:
        """A message with a time that follows each heartbeat on its connection."""
        self.stage.heartbeats += 1
        self.stage.heartbeat_ms.append((time.monotonic_ns() - msg.data["sent_ns"]) / 1e6)


def run_master(plan: Plan, control: Control, results: Connection) -> None:
    """Run the master; send the number of workers when all are there, or none more come, and then a Stage for each rate."""
    import gevent
    from locust.env import Environment

    environment = Environment()
    runner = environment.create_master_runner("127.0.0.1", plan.port)
    listener = Listener(control, plan.work_ms)
    runner.register_message("journal", listener.on_batch)
    runner.register_message("beat", listener.on_beat)

    def probe() -> None:
        while True:
            due_s = time.monotonic() + _PROBE_S
            gevent.sleep(_PROBE_S)
            listener.stage.hub_ms.append((time.monotonic() - due_s) * 1e3)

    gevent.spawn(probe)
    until_s = time.monotonic() + _PATIENCE_S
    while len(runner.clients.ready) < plan.workers and time.monotonic() < until_s:
        gevent.sleep(0.1)
    results.send(len(runner.clients.ready))
    for rate in plan.rates:
        control.rate.value = rate
        listener.stage = stage = Stage(rate)
        began_s, thread_s, all_s = time.monotonic(), time.thread_time(), time.process_time()
        while time.monotonic() - began_s < plan.seconds:
            gevent.sleep(0.2)
            stage.missing = max(stage.missing, len(runner.clients.missing))
        stage.seconds = time.monotonic() - began_s
        stage.thread_cpu_s = time.thread_time() - thread_s
        stage.other_cpu_s = time.process_time() - all_s - stage.thread_cpu_s
        results.send(stage)
    os._exit(0)  # quitting in order would send a message to every worker, and wait


# ---- the workers


@dataclass
class Sender:
    """One simulated worker: its socket and the number of its next batch."""

    name: str
    socket: Any
    number: int = 0

    def send(self, kind: str, data: object) -> bool:
        """Send as a worker of Locust would; False where the connection's queue is full."""
        import msgpack
        import zmq

        try:
            self.socket.send(msgpack.dumps((kind, data, self.name)), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True


def run_workers(port: int, names: Sequence[str], batch: bytes, control: Control) -> None:
    """Connect the workers, keep them alive, and send batches at the rate that ``control`` holds, in turn."""
    import zmq

    context = zmq.Context()
    senders = [Sender(name, _connected(context, port, name)) for name in names]
    for sender in senders:
        sender.send("client_ready", _locust_version())
    began_s = time.monotonic()
    digest = xxh3_64_intdigest(batch)
    turn = beats = reports = 0
    credit, then_s = 0.0, began_s
    while not control.ended.value:
        now_s = time.monotonic()
        credit, then_s = min(credit + (now_s - then_s) * control.rate.value / _SENDERS, 200.0), now_s
        while credit >= 1.0 and control.may_send(len(batch)):
            sender = senders[turn % len(senders)]
            data = {"number": sender.number, "hash": digest, "bytes": batch, "sent_ns": time.monotonic_ns()}
            if sender.send("journal", data):
                sender.number += 1
            turn, credit = turn + 1, credit - 1.0
        due = int((now_s - began_s) / _HEARTBEAT_S * len(senders))  # evenly over the second
        for place in range(beats, due):
            _beat(senders[place % len(senders)])
        beats = max(beats, due)
        due = int((now_s - began_s) / _STATISTICS_S * len(senders))
        for place in range(reports, due):
            senders[place % len(senders)].send("stats", _statistics())
        reports = max(reports, due)
        time.sleep(0.002)
    context.destroy(linger=0)


def _beat(sender: Sender) -> None:
    import zmq

    state = {"state": "ready", "current_cpu_usage": 12.0, "current_memory_usage": 80_000_000}
    sender.send("heartbeat", state)
    sender.send("beat", {"sent_ns": time.monotonic_ns()})
    while True:  # the master's answers
        try:
            sender.socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return


def _connected(context: Any, port: int, name: str) -> Any:
    import zmq

    connection = context.socket(zmq.DEALER)
    connection.setsockopt(zmq.IDENTITY, name.encode())
    connection.setsockopt(zmq.SNDHWM, 16)
    connection.connect(f"tcp://127.0.0.1:{port}")
    return connection


def _statistics() -> dict[str, object]:
    """The report that a worker of Locust without requests of its own sends."""
    total: dict[str, object] = {
        "name": "Aggregated",
        "method": "",
        "last_request_timestamp": None,
        "start_time": time.time(),
        "num_requests": 0,
        "num_none_requests": 0,
        "num_failures": 0,
        "total_response_time": 0,
        "max_response_time": 0,
        "min_response_time": None,
        "total_content_length": 0,
        "response_times": {},
        "num_reqs_per_sec": {},
        "num_fail_per_sec": {},
    }
    return {"stats": [], "stats_total": total, "errors": {}, "user_classes_count": {}, "user_count": 0}


def _locust_version() -> str:
    from importlib.metadata import version

    return version("locust")


# ---- both together


@dataclass(frozen=True)
class Plan:
    """``rates`` in batches/s, each for ``seconds``; ``work_ms`` is spent on each batch in the listener."""

    port: int
    workers: int
    rates: tuple[float, ...]
    seconds: float
    work_ms: float


@dataclass(frozen=True)
class Control:
    """What the processes share: the rate in batches/s, the bytes sent and received (by the master alone), and the end."""

    rate: Any
    sent: Synchronized[int]
    received: Any
    ended: Any

    def may_send(self, size: int) -> bool:
        if self.sent.value - self.received.value > _MOST_UNDERWAY_BYTES:
            return False
        with self.sent.get_lock():
            self.sent.value += size
        return True


def _percentiles(values: Sequence[float]) -> str:
    if not values:
        return "–"
    return " / ".join(f"{value:.2f}" for value in (*np.percentile(values, (50, 99)), max(values)))


def _show(stage: Stage, workers: int) -> None:
    per_s = 1.0 / stage.seconds
    lines = (
        f"{stage.rate:,.0f} batches/s offered {stage.seconds:.1f} s: {stage.batches * per_s:,.0f} received, "
        f"{stage.received_bytes * per_s / 1e6:,.1f} MB/s, {stage.heartbeats * per_s:,.0f} heartbeats/s",
        f"  CPU: {stage.thread_cpu_s * per_s:.1%} in the master's thread, {stage.other_cpu_s * per_s:.1%} ZeroMQ's",
        f"  of {workers:,} workers marked missing: {stage.missing}; batches out of order or damaged: {stage.out_of_order}",
        f"  p50 / p99 / max in ms: batch {_percentiles(stage.batch_ms)}, heartbeat {_percentiles(stage.heartbeat_ms)}, "
        f"listener {_percentiles(stage.listener_ms)}, hub {_percentiles(stage.hub_ms)}",
    )
    print("\n".join(lines), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--rates", default="0,500,1000,2000,4000", help="batches a second, one after another")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each rate")
    parser.add_argument("--batch_kb", type=float, default=64.0)
    parser.add_argument("--work_ms", type=float, default=0.0, help="spent in the listener on each batch")
    options = parser.parse_args()
    _raise_file_limit()
    plan = Plan(_free_port(), options.workers, tuple(map(float, options.rates.split(","))), options.seconds, options.work_ms)
    batch = np.random.default_rng(0).bytes(int(options.batch_kb * 1000))
    run(plan, batch)


def run(plan: Plan, batch: bytes) -> None:
    """Start all processes, print a line for each rate, and stop them."""
    context = mp.get_context("spawn")
    shared = partial(context.Value, lock=False)
    control = Control(shared("d", 0.0), context.Value("q", 0), shared("q", 0), shared("i", 0))
    results, written = context.Pipe(duplex=False)
    names = [f"worker_{number}" for number in range(plan.workers)]
    master = context.Process(target=run_master, args=(plan, control, written))
    senders = [
        context.Process(target=run_workers, args=(plan.port, names[place::_SENDERS], batch, control))
        for place in range(_SENDERS)
    ]
    for process in (master, *senders):
        process.start()
    try:
        came = results.recv()
        if came < plan.workers:
            raise SystemExit(f"only {came} of {plan.workers} workers came within {_PATIENCE_S:g} s")
        for _ in plan.rates:
            if not results.poll(plan.seconds + _GRACE_S):
                control.rate.value = 0.0
            _show(results.recv(), plan.workers)
    finally:
        control.ended.value = 1
        for process in (*senders, master):
            process.join(_PATIENCE_S)
            process.kill()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
