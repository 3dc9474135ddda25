"""What one request costs the process that records it, as that of many workers: µs of CPU and bytes, step by step.

    python -m benchmarks.record_cost [--exchanges 500] [--grpc HOST:PORT --http HOST:PORT]

Exchanges of 20 and 100 streamed tokens over gRPC and server-sent events are made once, with a null server or with the Triton
server at the two addresses. Then each step is repeated over them in one process: reading the journal (frame, hash,
MessagePack), decoding and recording, live statistics, writing ``requests.parquet``. Best of five passes, since other work on
the machine only adds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench_records.record import Record
from bench_records.table import write_table
from harness.calibration.null_server.server import NullServerAddresses, null_server
from harness.clients.protocol import Client
from harness.clients.transport.url import parse_origin
from harness.clients.triton import grpc as triton_grpc
from harness.clients.triton import http as triton_http
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.http import TritonHttpClient
from harness.host.clock import now_ns
from harness.journal.run_identity import new_run_id
from harness.journal.worker_journal import Began, Exchange, JournalReader, JournalWriter
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from harness.run.live_statistics import LiveStatistics
from workloads.elements.request import Request
from workloads.schedule.schedule import Schedule

TOKENS = (20, 100)
_PASSES = 5
_PROMPT = " ".join(["word"] * 100)
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Cost:
    """CPU of one request in µs, and its size in bytes."""

    read_us: float
    record_us: float
    live_us: float
    table_us: float
    journal_bytes: float
    memory_bytes: float
    table_bytes: float


def clients(addresses: NullServerAddresses) -> dict[str, Client]:
    origin = parse_origin(addresses.http, {"http": 8000})
    return {
        "gRPC": TritonGrpcClient(addresses.grpc, triton_grpc.inspect_model(addresses.grpc, "ensemble"), True),
        "SSE": TritonHttpClient(origin, triton_http.inspect_model(origin, "ensemble", {}), True),
    }


async def exchanges_of(client: Client, requests: tuple[Request, ...]) -> list[Exchange]:
    """Make one exchange after another."""
    connection = await client.connect(_TIMEOUT_S)
    exchanges = []
    for index, request in enumerate(requests):
        times: list[int] = []
        bodies: list[bytes] = []

        def on_responses(
            at: Sequence[int], arrived: Sequence[bytes], times: list[int] = times, bodies: list[bytes] = bodies
        ) -> None:
            times.extend(at)
            bodies.extend(arrived)

        sent_ns = now_ns()
        await connection.exchange(client.encode(index, request), on_responses, _TIMEOUT_S)
        exchanges.append(Exchange(index, sent_ns, sent_ns, sent_ns, now_ns(), times, bodies, None, None))
    await connection.close()
    return exchanges


def write_journal(path: Path, exchanges: list[Exchange]) -> None:
    path.unlink(missing_ok=True)  # of the case before; a journal is written once
    with JournalWriter(path) as writer:
        writer.append(Began(new_run_id(), "digest", 0, 0))
        for exchange in exchanges:
            writer.append(exchange)


def best_us(step: Callable[[], object], count: int) -> float:
    """CPU time of the quickest of some passes over ``count`` requests, in µs a request."""
    times_ns = []
    for _ in range(_PASSES):
        gc.collect()
        began_ns = time.process_time_ns()
        step()
        times_ns.append(time.process_time_ns() - began_ns)
    return min(times_ns) / count / 1e3


def memory_of(recorder: Recorder, exchanges: list[Exchange]) -> float:
    """Bytes that a record keeps."""
    tracemalloc.start()
    kept = [recorder.record(exchange, 0) for exchange in exchanges]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / len(kept)


def add_all(records: list[Record]) -> None:
    live = LiveStatistics(None, streamed=True)
    for record in records:
        live.add(record)


def measure(client: Client, tokens: int, count: int, folder: Path) -> Cost:
    requests = tuple(Request(output_tokens=tokens, prompt=_PROMPT, ignore_eos=True) for _ in range(count))
    exchanges = asyncio.run(exchanges_of(client, requests))
    journal, table = folder / "journal", folder / "requests.parquet"
    write_journal(journal, exchanges)
    recorder = Recorder(summarise_schedule(Schedule(requests, tuple(range(count)), 0)), client)
    records = [recorder.record(exchange, 0) for exchange in exchanges]
    got = sum(record.output_tokens or 0 for record in records)
    if got != tokens * count:
        raise SystemExit(f"{got} tokens came instead of {tokens * count}: {records[0]}")
    write_table(records, table)  # Arrow is imported here, not in the measurement
    return Cost(
        read_us=best_us(lambda: list(JournalReader(journal).read_new()), count),
        record_us=best_us(lambda: [recorder.record(exchange, 0) for exchange in exchanges], count),
        live_us=best_us(partial(add_all, records), count),
        table_us=best_us(partial(write_table, records, table), count),
        journal_bytes=journal.stat().st_size / count,
        memory_bytes=memory_of(recorder, exchanges),
        table_bytes=table.stat().st_size / count,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exchanges", type=int, default=500)
    parser.add_argument("--grpc", help="a running Triton server instead of the null server")
    parser.add_argument("--http")
    options = parser.parse_args()
    given = nullcontext(NullServerAddresses(options.grpc, options.http, 0)) if options.grpc and options.http else null_server()
    with given as addresses, tempfile.TemporaryDirectory() as folder:
        for protocol, client in clients(addresses).items():
            for tokens in TOKENS:
                cost = measure(client, tokens, options.exchanges, Path(folder))
                print(
                    f"{protocol}, {tokens} tokens: read {cost.read_us:.1f} µs, record {cost.record_us:.1f} µs, "
                    f"live {cost.live_us:.2f} µs, table {cost.table_us:.1f} µs; journal {cost.journal_bytes:,.0f} bytes, "
                    f"record {cost.memory_bytes:,.0f} bytes of memory, {cost.table_bytes:,.0f} bytes of Parquet",
                    flush=True,
                )


if __name__ == "__main__":
    main()
