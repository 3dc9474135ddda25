"""Distributed runs with strangers on the master's port, and workers and masters that lie: nothing hangs, no record is false.

    python -m benchmarks.hostile_workers [--only WORD]

Master and good workers are processes of ``bench``, against a null server. Beside them are connections that speak Locust's
protocol and send every type of message with wrong types, lengths, order and identity; workers with the run's token that send
what cannot be true; and a master of their kind for ``bench worker``. Then Ctrl-C in each state.

The exit status is 1 where a good worker's request is not done, a bad one's is, a message was not counted, a traceback was
printed, or the end took longer than it may. Takes 3 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec
import psutil
import pyarrow.parquet as pq
from msgspec.structs import replace
from tabulate import tabulate

from bench_records.record import Outcome
from benchmarks.hostile_peer import BEAT, HostileMaster, HostileWorker, closing, journal_bytes
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.distribution.admission import TOKEN_VARIABLE, Token, new_token
from harness.distribution.byte_streams import Piece, Received
from harness.distribution.envelopes import (
    ADMITTED,
    CHALLENGE,
    JOIN,
    MOST_BYTES,
    PAYLOAD,
    PING,
    PONG,
    PROOF,
    UNDECODABLE,
)
from harness.distribution.messages import (
    Dismissed,
    Finished,
    Hello,
    JournalProblem,
    PlanConfirmed,
    Progress,
    SetCommand,
    StartAt,
    WorkerReady,
    decode_from_worker,
    decode_to_worker,
    encode,
    encode_plan,
)
from harness.journal.run_identity import new_run_id
from harness.journal.worker_journal import Began, Ended
from harness.run.worker import WorkerPlan
from workloads.elements.request import Request
from workloads.schedule.schedule import OpenPart

_BENCH = [sys.executable, "-m", "bench_cli"]
_VERB = ["token_norm_dist", "--isl", "4", "--osl", "5", "--vocab_size", "100", "--warmup_requests", "2"]
_MOST_S = 120.0
_STRANGERS = 20
_FLOOD = 2_000


@dataclass
class Result:
    """A row of the table. ``problems`` is empty where all is well."""

    side: str
    name: str
    outcome: str
    seconds: float
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """Where a case takes place: the null server's address, a folder of its own, and a port for the master."""

    target: str
    folder: Path
    port: int
    token: Token

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.token.environment}


# ---- what is sent

_WRONG: tuple[Any, ...] = (None, "text", "x" * 20_000, -1, 1 << 63, 1.5, float("nan"), True, [], {}, [1], {"a": 1}, b"\xff\x00")
_WRONG_RUNS: tuple[Any, ...] = (new_run_id(), "../x", 5, [])
_STRANGE_FRAMES = (b"", b"\xc1", b"garbage", b"\x91" * 100_000, b"\x93\xa1\xff\xc0\xa1w", msgspec.msgpack.encode((1, 2)))
_GOOD_FROM_WORKER = (
    Hello(1, "0", "host", 1.0),
    PlanConfirmed("00", "11"),
    WorkerReady(("failed",), None),
    Progress(1),
    JournalProblem("disk full", Ended(1)),
    Finished(1, 0, None),
    Piece("journal", 0, b"x", 1, False),
    Received("plan", 0, False),
)
_GOOD_TO_WORKER = (StartAt(1), SetCommand(1), Dismissed("x"), Piece("plan", 0, b"x", 1, False), Received("journal", 0, False))


def wrong_messages(messages: Sequence[Any], decode: Callable[[bytes], object]) -> list[Any]:
    """Each field of each message left out, and with each wrong value, as far as it is then none of the protocol."""
    found: list[Any] = [None, 1, "text", [], {}, {"type": "unknown"}, {"type": 1}]
    for message in messages:
        data = msgspec.msgpack.decode(encode(message))
        for name in data:
            found.append({key: value for key, value in data.items() if key != name})
            found += [{**data, name: wrong} for wrong in _WRONG]
    return [data for data in found if not _is_message(data, decode)]


def _is_message(value: Any, decode: Callable[[bytes], object]) -> bool:
    try:
        decode(encode(value))
    except UNDECODABLE:
        return False
    return True


def strange_locust_messages() -> Iterator[tuple[Any, Any]]:
    """Types and data that a stranger sends in its own name, each of which is wrong."""
    for wrong in _WRONG:
        yield "heartbeat", wrong
        yield "heartbeat", {**BEAT, "current_cpu_usage": [wrong]}
        yield "heartbeat", {**BEAT, "state": [wrong]}
        for kind in (JOIN, PROOF, PAYLOAD, PONG):
            yield kind, wrong
        yield JOIN, {"nonce": wrong}
        yield PROOF, {"nonce": bytes(16), "proof": wrong}
        yield PAYLOAD, {"data": [wrong], "signature": bytes(32)}
        yield PAYLOAD, {"data": b"", "signature": wrong}
        yield PONG, {"data": b"", "signature": wrong}
    yield PROOF, {"nonce": bytes(16), "proof": bytes(32)}
    for kind in (PAYLOAD, PONG):
        yield kind, {"data": encode(_GOOD_FROM_WORKER[0]), "signature": bytes(32)}
    unknown: tuple[Any, ...] = ("spawn", "stop", "reconnect", "exception", "locustfile", CHALLENGE, ADMITTED, PING, "", 7, None)
    for other in unknown:
        yield other, {"msg": "x", "timestamp": "y"}


# ---- processes


@dataclass
class Running:
    """A process of bench with its standard error in a file."""

    process: subprocess.Popen[bytes]
    errors: Path
    began_s: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        return self.errors.read_text(errors="replace")

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def await_text(self, text: str, limit_s: float = _MOST_S) -> bool:
        end_s = time.monotonic() + limit_s
        while text not in self.text and time.monotonic() < end_s and not self.is_over:
            time.sleep(0.05)
        return text in self.text

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def wait(self, limit_s: float = _MOST_S) -> float:
        """Wait for the end; returns its seconds from now, and kills the process where it does not come."""
        began_s = time.monotonic()
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
        return time.monotonic() - began_s

    def kill(self) -> None:
        with suppress(psutil.NoSuchProcess):
            tree = psutil.Process(self.process.pid)
            for process in (*tree.children(recursive=True), tree):
                process.kill()
        self.process.wait()


@contextmanager
def running(command: Sequence[str], errors: Path, environment: dict[str, str]) -> Iterator[Running]:
    with errors.open("wb") as file:
        made = Running(subprocess.Popen([*_BENCH, *command], stdout=subprocess.DEVNULL, stderr=file, env=environment), errors)
    try:
        yield made
    finally:
        if not made.is_over:
            made.kill()


def _master(place: Place, workers: int, requests: int, rate: float = 20.0) -> list[str]:
    load = ["--url", place.target, "--num_requests", str(requests), "--request_rate", str(rate)]
    distribution = ["--distributed", "--expect_workers", str(workers), "--master_bind_port", str(place.port)]
    return [*_VERB, *load, *distribution, "--run_dir", str(place.folder / "run")]


def _worker(place: Place, name: str, port: int | None = None) -> list[str]:
    return ["worker", "--master_port", str(port or place.port), "--work_dir", str(place.folder / name)]


@contextmanager
def _hostile(place: Place, master: Running, behaviour: Callable[[HostileWorker], None]) -> Iterator[HostileWorker]:
    """A hostile worker in a thread, until the master has ended."""
    worker = HostileWorker(place.port, place.token, lambda: master.is_over)

    def work() -> None:
        with closing(worker):
            behaviour(worker)
            worker.is_done = True
            worker.wait(lambda: False, _MOST_S)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        thread.join(10)


def _outcomes(folder: Path) -> list[str]:
    path = folder / "run" / "requests.parquet"
    return pq.read_table(path, columns=["outcome"])["outcome"].to_pylist() if path.exists() else []


def _distribution(folder: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads((folder / "run" / "run.json").read_text()).get("distribution") or {}
        return found
    return {}


def _common(running: Running, limit_s: float, seconds: float) -> Iterator[str]:
    if "Traceback" in running.text:
        yield f"a traceback: {running.text[-600:]}"
    if running.process.returncode == -signal.SIGKILL or seconds > limit_s:
        yield f"it did not end within {limit_s:g} s"


# ---- strangers


def strangers(place: Place) -> Result:
    """Everything that a program without the token can send, before and during a run of one good worker."""
    sent = list(strange_locust_messages())
    with ExitStack() as cleaning:
        master = cleaning.enter_context(running(_master(place, 1, 40), place.folder / "master", place.environment))
        master.await_text("Waiting for")
        threads = [threading.Thread(target=partial(_attack, place, master, sent), daemon=True) for _ in range(_STRANGERS // 10)]
        for thread in threads:
            thread.start()
        other = {**place.environment, TOKEN_VARIABLE: "another token than the run's"}
        wrong = cleaning.enter_context(running(_worker(place, "wrong"), place.folder / "wrong_errors", other))
        wrong.wait()
        good = cleaning.enter_context(running(_worker(place, "good"), place.folder / "good_errors", place.environment))
        seconds = master.wait()
        good.wait(15)
        for thread in threads:
            thread.join(10)
    outcomes, dropped = _outcomes(place.folder), _distribution(place.folder).get("dropped_messages", 0)
    problems = [*_common(master, _MOST_S, seconds)]
    least = len(threads) * (len(sent) + len(_STRANGE_FRAMES) + _FLOOD)
    if outcomes != [Outcome.DONE] * 40 or good.process.returncode:
        problems.append(f"the good worker's requests: {outcomes}: {master.text[-500:]}")
    if dropped < least:
        problems.append(f"{dropped} messages dropped, of {least}")
    if "its token is not this run's" not in wrong.text or wrong.process.returncode != 1:
        problems.append(f"a worker with another token: {wrong.text}")
    outcome = f"40 of 40 done; {dropped:,} messages dropped and counted; a worker with another token refused"
    name = f"{len(sent)} messages of 17 types and {len(_STRANGE_FRAMES)} malformed frames, a flood, other names, HTTP, 8 MB"
    return Result("strangers", name, outcome, time.monotonic() - master.began_s, problems)


def _attack(place: Place, master: Running, sent: Sequence[tuple[Any, Any]]) -> None:
    stranger = HostileWorker(place.port, place.token, lambda: master.is_over)
    with closing(stranger):
        stranger.locust("client_ready", "2.47.0")
        stranger.wait(lambda: False, 0.5)
        for kind, data in sent:
            stranger.locust(kind, data)
        for frame in _STRANGE_FRAMES:
            stranger.raw(frame)
        stranger.raw(b"two", b"frames")
        stranger.locust("quit", None, "good")
        for number in range(_FLOOD):
            stranger.raw(b"flood" if number % 2 else msgspec.msgpack.encode((JOIN, {"nonce": 1}, stranger.name)))
        stranger.wait(lambda: False, 1.0)
        _shout(place.port)
        for _ in range(_STRANGERS):  # each with a name of its own
            with closing(HostileWorker(place.port, place.token, lambda: False)) as _:
                pass
        while not master.is_over:
            stranger.raw(b"flood")
            stranger.wait(lambda: False, 0.05)


def _shout(port: int) -> None:
    """What is not even ZeroMQ, and a frame that is too long for this port."""
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 1_000, os.urandom(1_000)):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 2) as plain:
            plain.sendall(data)
    long = HostileWorker(port, new_token(), lambda: False)
    with closing(long):
        long.raw(bytes(16 * MOST_BYTES))
        long.wait(lambda: False, 0.3)


# ---- workers with the token


def _bad_messages(worker: HostileWorker) -> None:
    """Every wrong message of bench, in every state, and what is right in no state but another."""
    wrong = wrong_messages(_GOOD_FROM_WORKER, decode_from_worker)

    def send() -> None:
        for message in (*wrong, *_GOOD_TO_WORKER[:3]):
            worker.say(message)
        for wrong_run in _WRONG_RUNS:
            worker.sealed(PAYLOAD, encode((wrong_run, Progress(1))))
        for data in (b"", b"\xc1", encode({"sent_ns": "5"}), encode({"sent_ns": 5, "received_ns": 1, "answered_ns": 0})):
            worker.sealed(PONG, data)
        worker.wait(lambda: False, 0.2)

    worker.join()
    send()
    worker.say(Progress(1))  # before its hello
    worker.greet()
    send()
    worker.greet()
    worker.take_plan()
    for early in (WorkerReady(), Piece("journal", 0, b"x", 0, False), Progress(1 << 40), Received("plan", 1 << 40, True)):
        worker.say(early)
    worker.confirm()
    send()
    worker.say(WorkerReady())
    worker.wait(lambda: worker.start is not None)
    send()
    began = Began(_run_id(worker), _digest(worker), _number(worker), time.time_ns())
    worker.send_journal(journal_bytes(began, Ended(0, "this worker sends nothing")))
    worker.finish()
    worker.finish(1)
    send()


def _run_id(worker: HostileWorker) -> str:
    assert worker.plan is not None
    return worker.plan.run_id


def _digest(worker: HostileWorker) -> str:
    assert worker.plan is not None
    return worker.plan.schedule_digest


def _number(worker: HostileWorker) -> int:
    assert worker.plan is not None
    return worker.plan.worker


def _exchange(index: Any, **other: Any) -> list[Any]:
    """An Exchange as MessagePack has it."""
    names = ("due_ns", "released_ns", "sent_ns", "done_ns", "response_ns", "bodies", "failure", "error")
    values = {"due_ns": 0, "released_ns": 0, "sent_ns": 1, "done_ns": 2, "response_ns": [], "bodies": []}
    return [1, index, *({**values, "failure": "timeout", "error": None, **other}[name] for name in names)]


def _journal(make: Callable[[WorkerPlan, Began], bytes], worker: HostileWorker) -> None:
    plan = worker.get_ready()
    worker.send_journal(make(plan, Began(plan.run_id, plan.schedule_digest, plan.worker, time.time_ns())))
    worker.finish(len(plan.requests))


def _foreign(plan: WorkerPlan) -> int:
    return next(index for index in range(1_000) if index not in plan.part.indices)


_JOURNALS: dict[str, Callable[[WorkerPlan, Began], bytes]] = {
    "timestamps that are texts": lambda plan, began: journal_bytes(began, _exchange(plan.part.indices[0], sent_ns="5")),
    "times beyond 104 days": lambda plan, began: journal_bytes(began, _exchange(plan.part.indices[0], done_ns=1 << 60)),
    "responses without times": lambda plan, began: journal_bytes(began, _exchange(plan.part.indices[0], bodies=[b"x"])),
    "a request of another worker": lambda plan, began: journal_bytes(began, _exchange(_foreign(plan))),
    "a request beyond the schedule": lambda plan, began: journal_bytes(began, _exchange(1 << 40)),
    "a request twice": lambda plan, began: journal_bytes(began, *[_exchange(plan.part.indices[0])] * 2),
    "of another run": lambda plan, began: journal_bytes(replace(began, run_id=new_run_id()), _exchange(plan.part.indices[0])),
    "entries of no type": lambda plan, began: journal_bytes(began, {"a": 1}, [9], "text"),
    "zeros": lambda plan, began: bytes(100_000),
    "random bytes": lambda plan, began: os.urandom(100_000),
}


def insiders(place: Place) -> Result:
    """Workers with the token that lie, in one run with a good one."""
    behaviours: list[Callable[[HostileWorker], None]] = [
        _bad_messages,
        *(partial(_journal, make) for make in _JOURNALS.values()),
    ]
    count = 1 + len(behaviours)
    requests = 10 * count
    with ExitStack() as cleaning:
        command = _master(place, count, requests, 40.0)
        master = cleaning.enter_context(running(command, place.folder / "master", place.environment))
        master.await_text("Waiting for")
        hostile = [cleaning.enter_context(_hostile(place, master, behaviour)) for behaviour in behaviours]
        good = cleaning.enter_context(running(_worker(place, "good"), place.folder / "good_errors", place.environment))
        seconds = master.wait()
        good.wait(15)
    outcomes, found = _outcomes(place.folder), _distribution(place.folder)
    done, lost = outcomes.count(Outcome.DONE), sum(worker["lost"] is not None for worker in found.get("workers", ()))
    dropped = found.get("dropped_messages", 0)
    problems = [*_common(master, _MOST_S, seconds)]
    least = 4 * len(wrong_messages(_GOOD_FROM_WORKER, decode_from_worker))
    if len(outcomes) != requests or done != 10 or good.process.returncode:
        problems.append(f"{len(outcomes)} records, {done} done: {master.text[-800:]}")
    if dropped < least:
        problems.append(f"{dropped} messages dropped, of {least}")
    if lost < len(_JOURNALS) - 1:  # of zeros nothing is a frame, so that this journal has no end
        problems.append(f"{lost} workers lost: {master.text[-800:]}")
    if not all(worker.is_done for worker in hostile):
        problems.append("a hostile worker did not come to its end")
    outcome = (
        f"the good worker's 10 requests done, no other; {requests} records; {dropped:,} messages dropped; {lost} workers lost"
    )
    name = f"8 message types with wrong types, lengths, order and run in 6 states; journals: {', '.join(_JOURNALS)}"
    return Result("workers with the token", name, outcome, time.monotonic() - master.began_s, problems)


# ---- Ctrl-C on the master


def _never_ready(worker: HostileWorker) -> None:
    worker.join()
    worker.greet()
    worker.take_plan()


def _never_confirming(worker: HostileWorker) -> None:
    worker.join()
    worker.greet()
    worker.wait(lambda: False)


def _never_ending(worker: HostileWorker) -> None:
    worker.get_ready()


def _never_passing_on(worker: HostileWorker) -> None:
    worker.get_ready()
    worker.finish()


@dataclass(frozen=True)
class Interrupt:
    """Ctrl-C this many times, 1 s apart, once the hostile worker is so far; the end may take ``limit_s`` from the last one."""

    name: str
    behaviour: Callable[[HostileWorker], None] | None
    times: int
    limit_s: float
    has_records: bool


_INTERRUPTS = (
    Interrupt("workers are awaited", None, 1, 10, False),
    Interrupt("a worker does not take its plan", _never_confirming, 1, 10, False),
    Interrupt("a worker is never ready", _never_ready, 1, 10, False),
    Interrupt("in the run, a worker ignores drain and abort", _never_ending, 2, 25, True),
    Interrupt("the same, once more", _never_ending, 3, 10, True),
    Interrupt("collecting, a worker passes on no journal", _never_passing_on, 3, 10, True),
)


def interrupted(case: Interrupt, place: Place) -> Result:
    """The master with a good worker and a hostile one."""
    with ExitStack() as cleaning:
        workers = 1 if case.behaviour is None else 2
        master = cleaning.enter_context(running(_master(place, workers, 40), place.folder / "master", place.environment))
        master.await_text("Waiting for")
        if case.behaviour is not None:
            cleaning.enter_context(running(_worker(place, "good"), place.folder / "good_errors", place.environment))
            hostile = cleaning.enter_context(_hostile(place, master, case.behaviour))
            _await(lambda: hostile.is_done or master.is_over or "Worker 2 of 2" in master.text)
            _await(lambda: hostile.is_done or master.is_over or case.behaviour is _never_confirming)
        time.sleep(3.0 if case.has_records else 0.5)
        for number in range(case.times):
            time.sleep(1.0 if number else 0.0)
            master.interrupt()
        seconds = master.wait()
    outcomes = _outcomes(place.folder)
    problems = [*_common(master, case.limit_s, seconds)]
    if case.has_records != bool(outcomes) or (case.has_records and outcomes.count(Outcome.DONE) == 0):
        problems.append(f"{len(outcomes)} records: {master.text[-600:]}")
    records = f", {len(outcomes)} records" if outcomes else ""
    outcome = f"exit status {master.process.returncode} after {seconds:.1f} s{records}"
    return Result(f"{case.times} × Ctrl-C on the master", case.name, outcome, time.monotonic() - master.began_s, problems)


def _await(is_enough: Callable[[], object]) -> None:
    end_s = time.monotonic() + _MOST_S
    while not is_enough() and time.monotonic() < end_s:
        time.sleep(0.1)


def _link_of(running: Running) -> psutil.Process:
    below = psutil.Process(running.process.pid).children(recursive=True)
    return next(child for child in below if "harness.distribution.locust_master" in child.cmdline())


def dead_link(place: Place) -> Result:
    """The process that runs Locust is killed in mid-run: the run ends by itself, with its records."""
    return _with_link(place, psutil.Process.kill, 0, "Locust's process is killed in mid-run")


def hung_link(place: Place) -> Result:
    """It is stopped in mid-run: the third Ctrl-C ends the run with what is recorded."""
    return _with_link(place, psutil.Process.suspend, 3, "Locust's process hangs in mid-run")


def _with_link(place: Place, act: Callable[[psutil.Process], object], interrupts: int, name: str) -> Result:
    with ExitStack() as cleaning:
        master = cleaning.enter_context(running(_master(place, 1, 100), place.folder / "master", place.environment))
        master.await_text("Waiting for")
        cleaning.enter_context(running(_worker(place, "good"), place.folder / "good_errors", place.environment))
        _await(lambda: any(path.stat().st_size for path in (place.folder / "run").glob("journal-*.bin")) or master.is_over)
        time.sleep(2)
        act(_link_of(master))
        for _ in range(interrupts):
            time.sleep(1)
            master.interrupt()
        seconds = master.wait()
    outcomes = _outcomes(place.folder)
    problems = [*_common(master, 20, seconds)]
    if len(outcomes) != 100 or not outcomes.count(Outcome.DONE):
        problems.append(f"{len(outcomes)} records, {outcomes.count(Outcome.DONE)} done: {master.text[-600:]}")
    outcome = f"exit status {master.process.returncode} after {seconds:.1f} s, 100 records"
    side = f"{interrupts} × Ctrl-C on the master" if interrupts else "master"
    return Result(side, name, outcome, time.monotonic() - master.began_s, problems)


# ---- masters that lie to a worker


@dataclass(frozen=True)
class Master:
    """What a master does with a worker, and how the worker ends: by Ctrl-C this many times, or with a text."""

    name: str
    behaviour: Callable[[HostileMaster, Place], None]
    interrupts: int
    said: str
    knows_token: bool = True


def _silent(master: HostileMaster, place: Place) -> None:
    time.sleep(3)


def _absent(master: HostileMaster, place: Place) -> None:
    master.close()
    time.sleep(3)


def _acknowledging(master: HostileMaster, place: Place) -> None:
    master.serve(5, lambda: master.handshake is not None)
    master.serve(2)


def _wrong_words(master: HostileMaster, place: Place) -> None:
    """Every wrong message, then a plan that is malformed."""
    master.serve(10, lambda: bool(master.received))
    for wrong in _WRONG:
        for kind in ("spawn", "stop", "update_user_class", "reconnect", PAYLOAD, PING, CHALLENGE, ADMITTED):
            master.locust(kind, wrong)
    for frame in _STRANGE_FRAMES:
        master.raw(frame)
    for message in (*wrong_messages(_GOOD_TO_WORKER, decode_to_worker), *_GOOD_FROM_WORKER[:6], StartAt(1), SetCommand(1)):
        master.say(message)
    master.say(Piece("journal", 0, b"x", 0, True))
    for wrong_run in _WRONG_RUNS:
        master.sealed(encode((wrong_run, SetCommand(2))))
    master.send_plan(b"garbage" * 100)
    master.serve(3)


def _plan(place: Place, run_id: str) -> bytes:
    client = TritonGrpcClient(place.target, inspect_model(place.target, "ensemble"), streaming=True)
    request = Request(5, "text", input_ids=(1, 2, 3, 4), input_tokens=4)
    journal = Path("journal-0.bin")
    return encode_plan(
        WorkerPlan(0, client, OpenPart((0, 1), (0, 0), None), [request] * 2, [], 5.0, journal, journal, "digest", run_id)
    )


def _starting(delay_ns: int, master: HostileMaster, place: Place) -> None:
    master.serve(10, lambda: bool(master.received))
    assert master.run_id is not None
    master.send_plan(_plan(place, master.run_id))
    master.serve(20, lambda: any(message.get("type") == "ready" for message in master.received))
    master.say(StartAt(time.monotonic_ns() + delay_ns))
    master.serve(3)


def _never_acknowledging(master: HostileMaster, place: Place) -> None:
    master.is_acknowledging = False
    _starting(0, master, place)


_MASTERS = (
    Master("there is none", _absent, 1, ""),
    Master("it accepts connections and says nothing", _silent, 1, ""),
    Master("it does not know the token", _acknowledging, 0, "it is not this run's master", knows_token=False),
    Master("it sends no plan", _acknowledging, 1, ""),
    Master("wrong messages of every type, then a malformed plan", _wrong_words, 0, "the master's plan cannot be read"),
    Master("it starts the run in an hour", partial(_starting, 3_600_000_000_000), 2, ""),
    Master("it acknowledges no record", _never_acknowledging, 1, "Its journal is kept"),
)


def lied_to(case: Master, place: Place) -> Result:
    """``bench worker`` with a master that misbehaves."""
    hostile = HostileMaster(place.token if case.knows_token else new_token())
    with ExitStack() as cleaning:
        worker = cleaning.enter_context(
            running(_worker(place, "kept", hostile.port), place.folder / "worker", place.environment)
        )
        worker.await_text("Waiting for a run")
        cleaning.callback(hostile.close)
        case.behaviour(hostile, place)
        for number in range(case.interrupts):
            time.sleep(1.0 if number else 0.0)
            worker.interrupt()
        seconds = worker.wait()
    problems = [*_common(worker, 12, seconds)]
    if case.said not in worker.text:
        problems.append(f"no word of {case.said!r}: {worker.text}")
    said = worker.text.strip().splitlines()[-1] if case.said else ""
    outcome = f"exit status {worker.process.returncode} after {seconds:.1f} s" + (
        f": {said.partition(str(place.folder))[0]}" if said else ""
    )
    side = f"{case.interrupts} × Ctrl-C on a worker" if case.interrupts else "a worker's master"
    return Result(side, f"master: {case.name}", outcome, time.monotonic() - worker.began_s, problems)


# ---- all of it


def cases() -> Iterator[tuple[str, Callable[[Place], Result]]]:
    yield "strangers", strangers
    yield "insiders", insiders
    for interrupt in _INTERRUPTS:
        yield f"interrupt {interrupt.name}", partial(interrupted, interrupt)
    yield "dead link", dead_link
    yield "hung link", hung_link
    for master in _MASTERS:
        yield f"master {master.name}", partial(lied_to, master)


@contextmanager
def _target() -> Iterator[str]:
    """The address of a null server: 5 ms to the first token, then 2 ms each."""
    port = _free_port()
    command = [sys.executable, "-m", "harness.calibration.null_server.server", "--grpc_port", str(port)]
    pace = ["--first_token_ms", "5", "--gap_ms", "2", "--until_stdin_closes"]
    process = subprocess.Popen([*command, *pace], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def main() -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    only = parser.parse_args().only
    results: list[Result] = []
    with _target() as target:
        for name, case in cases():
            if only not in name:
                continue
            with tempfile.TemporaryDirectory() as folder:
                result = case(Place(target, Path(folder), _free_port(), Token(token_hex(16).encode())))
            results.append(result)
            print(result.side, result.name, result.outcome, *result.problems, sep=" | ", file=sys.stderr)
    rows = [(result.side, result.name, result.outcome, f"{result.seconds:.0f}") for result in results]
    print(tabulate(rows, ("who", "what", "outcome", "seconds"), tablefmt="github"))
    broken = [f"{result.side}, {result.name}: {problem}" for result in results for problem in result.problems]
    print(*broken, sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
