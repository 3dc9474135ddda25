"""Where the client's CPU time of a streamed token goes, beside what it costs merely to read the same packets.

    python -m benchmarks.reading_floor [--requests 5000] [--tokens 100] [--in_flight 50] [--rounds 3]

The null server paces its responses as for ``client_cpu``, so that each token is a packet of its own. The same requests are sent
by the same number of connections in each way:

- ``python`` and ``compiled``: an epoll, and a read for each readable socket, whose bytes are dropped; in Python, and in a
  language without an interpreter (``bare_reader.pyx``, which is compiled when this starts). With ``stamps`` a read gets the
  kernel's arrival time, too. Nothing is parsed or kept, so no client can read these packets for less.
- ``thread``: the client's own compiled thread, with the parsing of frames, and each message as a Python object.
- ``bench``: the whole command, by its parts: the worker's event loop, its reading thread, the records that the parent makes
  meanwhile, and the rest of the parent (reading prompts, statistics, report). Start-up, that of a run of one token, is
  subtracted from the last, and is that of ``client_cpu``.

User and system time are µs a token. Ways alternate; medians of the rounds are printed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from benchmarks.client_cpu import BENCH, PACE, PROMPT_WORDS, arguments_of, protocols, traffic, write_prompts
from harness.calibration.null_server.server import NullServerAddresses, NullServerOptions, null_server
from harness.clients.transport.event_reader import EventReader
from harness.clients.transport.http2_frames import LARGEST_WINDOW, PREFACE, Flag, FrameType, Setting, frame, literal_headers
from harness.clients.transport.url import Origin
from harness.clients.triton import grpc, http
from harness.clients.triton.service import SERVICE
from harness.host.clock import now_ns
from tools.compile_reader import compiled
from workloads.elements.request import Request

_QUIET_MS = 100  # without a byte: all answers have ended
_ALL_STARTED_S = 0.0225  # after the requests: each answer has started, and no second token has come
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_GRPC_CONNECTIONS = 8  # as the client's
_BARE_ROUNDS = 10  # of answers to requests that are sent at once
_BENCH = "bench, "
_SO_TIMESTAMPNS = 35
_LAST_ID = 2**31 - 1
GRPC, SSE = "gRPC, ModelStreamInfer", "SSE, generate_stream"


@dataclass(frozen=True)
class Spent:
    """CPU seconds."""

    user_s: float
    system_s: float

    def __sub__(self, earlier: Spent) -> Spent:
        return Spent(self.user_s - earlier.user_s, self.system_s - earlier.system_s)

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.user_s + other.user_s, self.system_s + other.system_s)


class Peers:
    """Connections to the null server, and the bytes that ask for an answer on each."""

    def __init__(self, protocol: str, addresses: NullServerAddresses, tokens: int, in_flight: int) -> None:
        request = Request(tokens, prompt=" ".join(["word"] * PROMPT_WORDS))
        self.is_grpc = protocol == GRPC
        self._next_id = 1
        if self.is_grpc:
            model = grpc.inspect_model(addresses.grpc, "ensemble")
            self._body = grpc.TritonGrpcClient(addresses.grpc, model, True).encode(0, request)
            self._streams = in_flight
            self.sockets = [_connected(addresses.grpc) for _ in range(min(_GRPC_CONNECTIONS, in_flight))]
            window = (LARGEST_WINDOW - 65_535).to_bytes(4)
            settings = int(Setting.INITIAL_WINDOW_SIZE).to_bytes(2) + LARGEST_WINDOW.to_bytes(4)
            for end in self.sockets:
                end.sendall(PREFACE + frame(FrameType.SETTINGS, 0, 0, settings) + frame(FrameType.WINDOW_UPDATE, 0, 0, window))
        else:
            host, port = addresses.http.split(":")
            origin = Origin("http", host, int(port))
            model = http.inspect_model(origin, "ensemble", {})
            self._body = http.TritonHttpClient(origin, model, True).encode(0, request)
            self.sockets = [_connected(addresses.http) for _ in range(in_flight)]
        time.sleep(0.1)
        for end in self.sockets:
            _drop(end)

    def ask(self) -> None:
        """Ask for ``in_flight`` answers at once."""
        if not self.is_grpc:
            for end in self.sockets:
                end.sendall(self._body)
            return
        headers = [(":method", "POST"), (":scheme", "http"), (":path", f"{SERVICE}/ModelStreamInfer"), (":authority", "null")]
        block = literal_headers([*headers, ("te", "trailers"), ("content-type", "application/grpc")])
        message = b"\0" + len(self._body).to_bytes(4) + self._body
        for number in range(self._streams):
            stream_id = self._next_id + 2 * (number // len(self.sockets))
            self.sockets[number % len(self.sockets)].sendall(
                frame(FrameType.HEADERS, Flag.END_HEADERS, stream_id, block)
                + frame(FrameType.DATA, Flag.END_STREAM, stream_id, message)
            )
        self._next_id += 2 * (1 + self._streams // len(self.sockets))

    def close(self) -> None:
        for end in self.sockets:
            end.close()


def _connected(address: str) -> socket.socket:
    host, port = address.split(":")
    end = socket.create_connection((host, int(port)))
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return end


def _drop(end: socket.socket) -> None:
    with suppress(BlockingIOError):
        while end.recv(65536, socket.MSG_DONTWAIT):
            pass


Read = Callable[[Peers, int], None]
"""Reads all answers to the requests that were just sent, each of this many tokens."""


def by_python(stamped: bool) -> Read:
    def read(peers: Peers, tokens: int) -> None:
        ends = {end.fileno(): end for end in peers.sockets}
        with select.epoll() as epoll:
            for descriptor in ends:
                epoll.register(descriptor, select.EPOLLIN)
            while ready := epoll.poll(_QUIET_MS / 1000):
                for descriptor, _ in ready:
                    if stamped:
                        ends[descriptor].recvmsg(65536, 64, socket.MSG_DONTWAIT)
                    else:
                        ends[descriptor].recv(65536, socket.MSG_DONTWAIT)

    return read


def by_compiled_loop(module: Any, stamped: bool) -> Read:
    def read(peers: Peers, tokens: int) -> None:
        module.read_until_quiet([end.fileno() for end in peers.sockets], _QUIET_MS, stamped)

    return read


def by_thread(peers: Peers, tokens: int) -> None:
    """The thread gets the connections when all answers have started, as from the client's event loop."""
    reader = EventReader()
    time.sleep(_ALL_STARTED_S)
    for end in peers.sockets:
        _drop(end)
        if peers.is_grpc:
            reader.follow_messages(end.fileno(), now_ns(), _LAST_ID)
        else:
            reader.follow(end.fileno(), now_ns())
    time.sleep(tokens * PACE.gap_ns / 1e9 + _QUIET_MS / 1000)
    release = reader.release_messages if peers.is_grpc else reader.release
    for end in peers.sockets:
        release(end.fileno())
    reader.close()


def read_bare(protocol: str, read: Read, addresses: NullServerAddresses, given: argparse.Namespace, stamped: bool) -> Spent:
    """CPU time of reading the answers to ``given.in_flight`` requests at once, several times."""
    peers = Peers(protocol, addresses, given.tokens, given.in_flight)
    spent = Spent(0.0, 0.0)
    for end in peers.sockets:
        end.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, int(stamped))
    for _ in range(_BARE_ROUNDS):
        peers.ask()
        before = _own()
        read(peers, given.tokens)
        spent += _own() - before
    peers.close()
    return spent


def _own() -> Spent:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Spent(used.ru_utime, used.ru_stime)


def run_bench(options: Sequence[str], folder: Path, requests: int, tokens: int, in_flight: int) -> Mapping[str, Spent]:
    """CPU time of a whole command, by its parts, which are read from ``/proc`` while it runs."""
    prompts = write_prompts(folder / "prompts.json", requests, tokens)
    with tempfile.TemporaryDirectory(dir=folder) as run:
        shape = ["--dataset", str(prompts), "--op_tokens_per_word", "1", "--run_dir", f"{run}/run", "--warmup_requests", "1"]
        command = [BENCH, "dataset", *options, *shape, *traffic(requests, tokens, in_flight)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        threads: dict[tuple[int, int], Spent] = {}
        while process.poll() is None:
            for pid in (process.pid, *_children(process.pid)):
                threads.update(_threads(pid))
            time.sleep(0.05)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = json.loads((Path(run) / "run" / "summary.json").read_text())["requests"]["done"]
    if process.returncode not in (0, 3) or done != requests:
        raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}, {done} of {requests} requests done")
    whole = Spent(used.ru_utime - before.ru_utime, used.ru_stime - before.ru_stime)
    parts: dict[str, Spent] = defaultdict(lambda: Spent(0.0, 0.0))
    for (pid, thread), spent in threads.items():
        parts[_part(process.pid, pid, thread)] += spent
    named = sum(parts.values(), Spent(0.0, 0.0))
    return {**parts, "unseen": whole - named, "whole": whole}


def _part(parent: int, pid: int, thread: int) -> str:
    if pid == parent:
        return "parent: prompts, report" if thread == pid else "parent: records"
    return "worker: event loop" if thread == pid else "worker: reading thread"


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _threads(pid: int) -> Iterator[tuple[tuple[int, int], Spent]]:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                yield (pid, int(task.name)), Spent(int(fields[11]) / _TICKS_A_SECOND, int(fields[12]) / _TICKS_A_SECOND)


@contextmanager
def compiled_module() -> Iterator[Any]:
    """``bare_reader.pyx``, compiled into a folder of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        [path] = compiled({"bare_reader": Path(__file__).with_name("bare_reader.pyx")}, scratch)
        spec = importlib.util.spec_from_file_location("bare_reader", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def main() -> None:
    parser = arguments_of(__doc__.splitlines()[0], requests=5000)
    parser.add_argument("--protocols", nargs="+", choices=[GRPC, SSE], default=[GRPC, SSE])
    given = parser.parse_args()
    with (
        compiled_module() as module,
        tempfile.TemporaryDirectory() as folder,
        null_server(NullServerOptions(PACE)) as addresses,
    ):
        bare = {
            "python, recv": (by_python(False), False),
            "python, recvmsg with stamps": (by_python(True), True),
            "compiled, recv": (by_compiled_loop(module, False), False),
            "compiled, recvmsg with stamps": (by_compiled_loop(module, True), True),
            "thread": (by_thread, True),
        }
        found: dict[tuple[str, str], list[Spent]] = defaultdict(list)
        for number, protocol in ((number, protocol) for number in range(given.rounds) for protocol in given.protocols):
            for name, (read, stamped) in bare.items():
                found[protocol, name].append(read_bare(protocol, read, addresses, given, stamped))
            options = protocols(addresses)[protocol]
            start = run_bench(options, Path(folder), 1, 1, 1)
            for part, spent in run_bench(options, Path(folder), given.requests, given.tokens, given.in_flight).items():
                found[protocol, _BENCH + part].append(spent - start.get(part, Spent(0.0, 0.0)))
            print(f"round {number + 1}: {protocol} done", file=sys.stderr, flush=True)
    print(table(found, given.requests * given.tokens, _BARE_ROUNDS * given.in_flight * given.tokens))


def table(found: Mapping[tuple[str, str], Sequence[Spent]], bench_tokens: int, bare_tokens: int) -> str:
    """Medians; ``found`` has the rounds of each protocol and way."""
    rows = []
    for (protocol, name), spent in found.items():
        user_us, system_us, whole_us = (
            statistics.median(1e6 * seconds / (bench_tokens if name.startswith(_BENCH) else bare_tokens) for seconds in values)
            for values in (
                [each.user_s for each in spent],
                [each.system_s for each in spent],
                [each.user_s + each.system_s for each in spent],
            )
        )
        rows.append((protocol, name, f"{user_us:.1f}", f"{system_us:.1f}", f"{whole_us:.1f}"))
    return tabulate(rows, headers=("protocol", "way", "user µs", "system µs", "both"), disable_numparse=True)


if __name__ == "__main__":
    main()
