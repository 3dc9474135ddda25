"""A distributed run over hosts that are network namespaces of this machine, beside a local run of the same schedule.

One namespace is the master's, one the null server's, and one each for the workers, whose monotonic clocks a time namespace
sets apart by a known time. Between workers and master is a relay that delays each direction of the connection by itself, with
jitter: what netem does, which not every kernel has. It prints whether digest and record ids are equal, offered and achieved
rate, the Kolmogorov-Smirnov test of the merged arrivals, latencies side by side, and each worker's clock offset beside the
truth. With --kill one worker's host dies at half time. It needs root, Linux's namespaces and the ip program; about a minute.

Run: python -m benchmarks.distributed_hosts [--workers 4] [--delay_ms 2 30] [--jitter_ms 3] [--kill]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from bench_records.manifest import Manifest
from bench_records.run_folder import RunFolder
from harness.distribution.admission import new_token
from reports.statistics.probability import kolmogorov_smirnov

_NETWORK = "10.77.0"
_MASTER, _TARGET, _RELAY = f"{_NETWORK}.1", f"{_NETWORK}.2", f"{_NETWORK}.3"
_PORT, _GRPC_PORT = 5557, 8001
_APART_S = 100_000  # between one worker's clock and the next one's
_PREFIX = "bench-dist"
_RUN_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Host:
    """A network namespace with one address."""

    name: str
    address: str

    def command(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *command]


@contextmanager
def hosts(addresses: Sequence[str]) -> Iterator[list[Host]]:
    """Namespaces on a bridge that is in a namespace of its own, so that nothing of this machine's network is changed."""
    hub = f"{_PREFIX}-hub"
    made = [Host(f"{_PREFIX}-{number}", address) for number, address in enumerate(addresses)]
    try:
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        for number, host in enumerate(made):
            _ip("netns", "add", host.name)
            _ip("-n", hub, "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", host.name)
            _ip("-n", hub, "link", "set", f"port{number}", "master", "bridge", "up")
            _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", host.name, "link", "set", "eth0", "up")
            _ip("-n", host.name, "link", "set", "lo", "up")
        yield made
    finally:
        for name in (*(host.name for host in made), hub):
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


# ---- the relay


async def relay(delays_ms: tuple[float, float], jitter_ms: float) -> None:
    """Pass connections to the relay's port on to the master, each direction (to the master, from it) with its own delay."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_master_reader, to_master = await asyncio.open_connection(_MASTER, _PORT)
        except OSError:  # the master does not listen yet; the worker tries again
            writer.close()
            return
        await asyncio.gather(
            _pass_on(reader, to_master, delays_ms[0], jitter_ms), _pass_on(to_master_reader, writer, delays_ms[1], jitter_ms)
        )

    server = await asyncio.start_server(connected, _RELAY, _PORT)
    async with server:
        await asyncio.wait_for(server.serve_forever(), 4 * _RUN_TIMEOUT_S)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_ms: float, jitter_ms: float) -> None:
    """Bytes keep their order; each piece leaves a delay after it came, exponential jitter added."""
    loop, jitter = asyncio.get_running_loop(), random.Random(7)
    due_s = 0.0
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            # no two at the same time: the loop would not keep their order
            due_s = max(due_s + 1e-6, loop.time() + (delay_ms + jitter.expovariate(1 / max(jitter_ms, 1e-6))) / 1e3)
            loop.call_at(due_s, writer.write, data)
    loop.call_at(max(due_s, loop.time()), writer.close)


# ---- runs


def _bench(host: Host, options: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    verb = ["token_norm_dist", "--url", f"{_TARGET}:{_GRPC_PORT}", "--isl", "32", "--osl", "20", "--vocab_size", "1000"]
    command = [sys.executable, "-m", "bench_cli", *verb, "--run_dir", str(folder), *options]
    return subprocess.Popen(host.command(*command), stdout=subprocess.DEVNULL)


@contextmanager
def _worker(host: Host, number: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker whose monotonic clock is ahead of the master's."""
    clock = ["unshare", "--time", "--monotonic", str((number + 1) * _APART_S), "--fork", "--kill-child"]
    own = ["worker", "--master_host", _RELAY, "--master_port", str(_PORT), "--work_dir", str(folder)]
    command = host.command(*clock, sys.executable, "-m", "bench_cli", *own)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _running(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=40.0, help="requests/s")
    parser.add_argument("--requests", type=int, default=800)
    parser.add_argument("--delay_ms", type=float, nargs=2, default=[2.0, 2.0], metavar=("TO", "FROM"), help="of the relay")
    parser.add_argument("--jitter_ms", type=float, default=0.5, help="mean of the exponential jitter, in each direction")
    parser.add_argument("--kill", action="store_true", help="kill one worker's host at half time")
    parser.add_argument("--relay", action="store_true", help=argparse.SUPPRESS)  # this process is the relay
    options = parser.parse_args()
    if options.relay:
        asyncio.run(relay(tuple(options.delay_ms), options.jitter_ms))
        return
    if os.geteuid():
        raise SystemExit("network and time namespaces need root")
    os.environ |= new_token().environment
    addresses = [_MASTER, _TARGET, _RELAY, *(f"{_NETWORK}.{10 + number}" for number in range(options.workers))]
    with hosts(addresses) as made, tempfile.TemporaryDirectory() as name:
        _measure(options, made, Path(name))


def _measure(options: argparse.Namespace, made: list[Host], folder: Path) -> None:
    master, target, relay_host, *worker_hosts = made
    server = [sys.executable, "-m", "harness.calibration.null_server.server", "--host", _TARGET]
    pace = ["--grpc_port", str(_GRPC_PORT), "--first_token_ms", "20", "--gap_ms", "5"]
    delays = ["--delay_ms", *map(str, options.delay_ms), "--jitter_ms", str(options.jitter_ms)]
    load = ["--request_rate", str(options.rate), "--num_requests", str(options.requests)]
    with ExitStack() as running:
        running.enter_context(_running(target.command(*server, *pace)))
        relay_command = [sys.executable, "-m", "benchmarks.distributed_hosts", "--relay", *delays]
        running.enter_context(_running(relay_host.command(*relay_command)))
        time.sleep(2.0)
        if not options.kill:
            _bench(master, [*load, "--workers", str(options.workers)], folder / "local").wait(_RUN_TIMEOUT_S)
        distribution = ["--distributed", "--expect_workers", str(options.workers), "--master_bind_host", _MASTER]
        process = _bench(master, [*load, *distribution], folder / "distributed")
        workers = [
            running.enter_context(_worker(host, number, folder / f"w{number}")) for number, host in enumerate(worker_hosts)
        ]
        if options.kill:
            _await_half(folder / "distributed", options)
            os.killpg(workers[0].pid, signal.SIGKILL)
        process.wait(_RUN_TIMEOUT_S)
    if not RunFolder(folder / "distributed").summary.exists():
        raise SystemExit(f"the distributed run ended with status {process.returncode}")
    _print(folder, options, process.returncode)


def _await_half(folder: Path, options: argparse.Namespace) -> None:
    """Wait until the run has gone on for half of its requests."""
    deadline_s = time.monotonic() + _RUN_TIMEOUT_S
    while not any(journal.stat().st_size for journal in folder.glob("journal-*.bin")) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    time.sleep(options.requests / options.rate / 2)


def _print(folder: Path, options: argparse.Namespace, status: int) -> None:
    names = ["distributed"] if options.kill else ["local", "distributed"]
    runs = {name: RunFolder(folder / name) for name in names}
    manifests = {name: run.read_manifest() for name, run in runs.items()}
    summaries: dict[str, Any] = {name: json.loads(run.summary.read_text()) for name, run in runs.items()}
    tables = {
        name: run.read_requests(["index", "outcome", "sent_ns", "scheduled_ns"]).to_pydict() for name, run in runs.items()
    }
    if not options.kill:
        equal = manifests["local"].schedule == manifests["distributed"].schedule
        print(f"Schedules equal: {equal}; record ids equal: {tables['local']['index'] == tables['distributed']['index']}")
    rows = [_row(name, summaries[name], tables[name], options.rate) for name in names]
    headers = ("run", "offered/s", "achieved/s", "KS p", "TTFT p50", "p99", "E2E p50", "p99", "slip p99", "valid", "outcomes")
    print(tabulate(rows, headers=headers, floatfmt=".2f"))
    print(
        tabulate(
            _clock_rows(manifests["distributed"]),
            headers=("worker", "true offset − found (ms)", "± (ms)", "drift (ppm)", "lost"),
        )
    )
    codes = [finding["code"] for finding in summaries["distributed"]["findings"]]
    print(f"Exit status of the distributed run: {status}. Findings: {codes}")


def _row(name: str, summary: dict[str, Any], table: dict[str, list[Any]], rate: float) -> tuple[Any, ...]:
    metrics = summary["metrics"]
    sent_s = np.sort([ns / 1e9 for ns in table["sent_ns"] if ns is not None])
    shares = -np.expm1(-np.diff(sent_s) * rate)
    ttft, e2e = metrics["ttft_ms"]["scheduled"], metrics["e2e_ms"]["scheduled"]
    return (
        name,
        metrics["offered_rate"]["value"],
        metrics["achieved_rate"]["value"],
        kolmogorov_smirnov(shares)[1],
        ttft["p50"],
        ttft["p99"],
        e2e["p50"],
        e2e["p99"],
        metrics["slip_ms"]["p99"] if "p99" in metrics["slip_ms"] else metrics["slip_ms"]["scheduled"]["p99"],
        summary["validity"],
        dict(Counter(table["outcome"])),
    )


def _clock_rows(manifest: Manifest) -> list[tuple[Any, ...]]:
    """Each worker's offset beside the truth. A worker is identified by the nearest of the clocks that were set apart."""
    rows = []
    assert manifest.distribution is not None
    for worker in manifest.distribution.workers or ():
        assert worker.clock is not None
        assert worker.clock.start is not None
        start = worker.clock.start
        true_ns = round(start.offset_ns / (_APART_S * 1e9)) * _APART_S * 1_000_000_000
        rows.append(
            (
                worker.number,
                f"{(true_ns - start.offset_ns) / 1e6:.3f}",
                f"{start.uncertainty_ns / 1e6:.3f}",
                f"{worker.clock.drift_ppm or 0:.2f}",
                worker.lost or "",
            )
        )
    return rows


if __name__ == "__main__":
    main()
