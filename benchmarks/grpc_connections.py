"""How many HTTP/2 connections a worker should use, and whether requests should share a stream: what each way costs.

    python -m benchmarks.grpc_connections [--server null|triton] [--rate 200] [--requests 1000] [--tokens 20]
                                          [--connections 1 2 4 8] [--rounds 5]

Exponential arrivals from one client process that does what a worker does: precise sleep, exchange, journal. Each way and round
has a process of its own, and the ways take turns. Printed are medians over the rounds: CPU of the client a request, with one
token and with all, and from both a response's share; slip (sent - due); the time from the null server's stamp on a response to
ours; and when the last response came, from the send.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import uvloop

from benchmarks.shared_stream import SharedStreamClient
from harness.calibration.null_server.pacing import Pace
from harness.calibration.null_server.server import NullServerOptions, null_server
from harness.calibration.null_server.stamps import stamps_of_message
from harness.clients.protocol import Client
from harness.clients.transport.http2_pool import ConnectionLimits
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.host.clock import PreciseSleeper, now_ns
from harness.journal.worker_journal import JournalReader, JournalWriter
from harness.run.exchanges import ExchangeLimits, Exchanges
from harness.run.load_loops import send
from harness.run.routing import Payload, Router
from harness.run.shared_state import Control
from harness.run.turn_payloads import RecordedTurns
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.repository.pipeline import RepositorySpec
from workloads.elements.request import Request
from workloads.schedule.schedule import OpenPart

_PACE = Pace(first_token_ns=20_000_000, gap_ns=5_000_000)
_TIMEOUT_S = 60.0
_INPUT_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Way:
    """One way to speak to the server."""

    connections: int
    shares_stream: bool

    def __str__(self) -> str:
        streams = "one stream" if self.shares_stream else "a stream a request"
        return f"{self.connections} connection{'s' if self.connections > 1 else ' '}, {streams}"

    def client(self, address: str, responses: int) -> Client:
        limits = ConnectionLimits(self.connections, self.connections)
        model = inspect_model(address, "tensorrt_llm")
        if self.shares_stream:
            return SharedStreamClient(address, model, streaming=True, connections=limits, responses=responses)
        return TritonGrpcClient(address, model, streaming=True, connections=limits)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client process is to do."""

    way: Way
    address: str
    rate: float
    requests: int
    tokens: int
    counts_responses: bool  # one a token, where the server marks no last one
    seed: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What one process measured. Times in ms, except the CPU; the stamps are None for a server that has none."""

    cpu_us_a_request: float
    slip_p50: float
    slip_p99: float
    stamp_to_ours_p50: float | None
    stamp_to_ours_p99: float | None
    last_response_p99: float  # from the send


def measure(asked: Asked) -> Measured:
    """Drive the server; the entry of a process of its own."""
    client = asked.way.client(asked.address, asked.tokens if asked.counts_responses else -1)
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal.bin"
        start_ns, cpu_s = uvloop.run(_drive(client, asked, journal))
        exchanges = list(JournalReader(journal).read_new())
    assert len(exchanges) == asked.requests, f"{len(exchanges)} of {asked.requests} exchanges"
    for exchange in exchanges:
        assert exchange.failure is None, exchange.error
        tokens = sum(len(client.decode(body).token_ids or ()) for body in exchange.bodies)
        assert tokens == asked.tokens, f"{tokens} tokens instead of {asked.tokens}"
    slips = [(exchange.sent_ns - exchange.due_ns) / 1e6 for exchange in exchanges]
    lasts = [(exchange.response_ns[-1] - exchange.sent_ns) / 1e6 for exchange in exchanges]
    delays = [
        (start_ns + ours_ns - stamps.sent_ns) / 1e6
        for exchange in exchanges
        for ours_ns, body in zip(exchange.response_ns, exchange.bodies, strict=True)
        if (stamps := stamps_of_message(body)) is not None
    ]
    return Measured(
        cpu_us_a_request=cpu_s / asked.requests * 1e6,
        slip_p50=float(np.percentile(slips, 50)),
        slip_p99=float(np.percentile(slips, 99)),
        stamp_to_ours_p50=float(np.percentile(delays, 50)) if delays else None,
        stamp_to_ours_p99=float(np.percentile(delays, 99)) if delays else None,
        last_response_p99=float(np.percentile(lasts, 99)),
    )


async def _drive(client: Client, asked: Asked, path: Path) -> tuple[int, float]:
    """Send everything as a worker does; returns the start (ns of ``now_ns``) and the CPU seconds to the last answer."""
    random = np.random.default_rng(asked.seed)
    offsets_ns = (np.cumsum(random.exponential(1 / asked.rate, asked.requests)) * 1e9).astype(int).tolist()
    prompts = random.integers(3, 3072, (asked.requests, _INPUT_TOKENS)).tolist()
    payloads = [
        Payload(0, (client.encode(index, Request(asked.tokens, input_ids=tuple(ids), ignore_eos=True)),))
        for index, ids in enumerate(prompts)
    ]
    connection = await client.connect(10.0)
    sleeper = PreciseSleeper()
    control = Control(multiprocessing.get_context("spawn"), workers=1).of_worker(0)
    with JournalWriter(path) as journal:
        start_ns, cpu_s = now_ns() + 100_000_000, time.process_time()
        exchanges = Exchanges(Router([connection]), journal, control, start_ns, ExchangeLimits(_TIMEOUT_S), _raise)
        await send(
            OpenPart(tuple(range(asked.requests)), tuple(offsets_ns), None),
            payloads,
            exchanges,
            sleeper,
            RecordedTurns(payloads, [client]),
        )
        await exchanges.finish()
        cpu_s = time.process_time() - cpu_s
    sleeper.close()
    await connection.close()
    return start_ns, cpu_s


def _raise(error: OSError) -> None:
    raise error


@contextmanager
def null() -> Iterator[str]:
    with null_server(NullServerOptions(_PACE)) as addresses:
        yield addresses.grpc


@contextmanager
def triton() -> Iterator[str]:
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR)
    with tempfile.TemporaryDirectory() as folder, deploy(spec, choose_addresses(), Path(folder) / "log") as server:
        yield server.addresses.grpc


_SERVERS = {"null": null, "triton": triton}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", choices=list(_SERVERS), default="null")
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    ways = [Way(connections, shares) for shares in (False, True) for connections in arguments.connections]
    whole: dict[Way, list[Measured]] = {way: [] for way in ways}
    single: dict[Way, list[Measured]] = {way: [] for way in ways}
    with _SERVERS[arguments.server]() as address:
        for number in range(arguments.rounds):
            for way in ways:
                for tokens, into in ((1, single), (arguments.tokens, whole)):
                    asked = Asked(way, address, arguments.rate, arguments.requests, tokens, arguments.server == "null", number)
                    into[way].append(_in_a_process(asked))
            print(f"round {number + 1} of {arguments.rounds} done", flush=True)
    print(f"\n{arguments.server} server, {arguments.rate:g} requests/s, {arguments.tokens} tokens, {arguments.rounds} rounds")
    print(_row("", "CPU µs a request", "", "a response", "slip ms", "", "stamp to ours ms", "", "last response"))
    print(_row("", "1 token", f"{arguments.tokens} tokens", "", "p50", "p99", "p50", "p99", "p99 ms"))
    for way in ways:
        print(_figures(way, single[way], whole[way], arguments.tokens))


def _in_a_process(asked: Asked) -> Measured:
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, asked).result()


def _figures(way: Way, single: list[Measured], whole: list[Measured], tokens: int) -> str:
    one = statistics.median(measured.cpu_us_a_request for measured in single)
    many = statistics.median(measured.cpu_us_a_request for measured in whole)
    a_response = f"{(many - one) / (tokens - 1):.1f}" if tokens > 1 else "-"
    times = (
        [measured.slip_p50 for measured in whole],
        [measured.slip_p99 for measured in whole],
        [measured.stamp_to_ours_p50 for measured in whole],
        [measured.stamp_to_ours_p99 for measured in whole],
        [measured.last_response_p99 for measured in whole],
    )
    return _row(str(way), f"{one:.0f}", f"{many:.0f}", a_response, *(_median(values) for values in times))


def _median(values: list[float] | list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.2f}" if known else "-"


def _row(name: str, *cells: str) -> str:
    return f"{name:36}" + "".join(f"{cell:>17}" for cell in cells)


if __name__ == "__main__":
    main()
