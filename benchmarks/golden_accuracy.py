"""Accuracy of TTFT, ICL and E2E latency: whole `bench` runs against the time stamps of the server itself.

    python -m benchmarks.golden_accuracy [--streams 50 200] [--protocols grpc openai] [--rounds 10] [--workers 1]
                                         [--cores apart]

Against the null server: first token after 20 ms, then one each 5 ms, 100 tokens; a closed loop of
as many users as streams. They start spread over the time of one answer, or all at once, and then stay in step: every 5 ms all
streams have a token in the same instant.

The null server has one core to itself and `bench` the others (``--cores apart``). Where both have all (``--cores shared``), a
request can wake the server on the worker's core while another is idle. There it lies unread for milliseconds, the kernel joins
it with those after it on its connection, and reports only the arrival of the last: then the truth is wrong.

Against the real Triton with the embedded engine, whose own trace stamps the start of each response's sending (GRPC_SEND_START)
and the end of each request's reading (GRPC_WAITREAD_END). A latency from the trace alone leaves out how long the request lay
unread while the engine had the cores. So the truth is the trace's sends, from our send, on the clock that both share; how it
would be from Triton's reading is printed, too, without a verdict.

An error is ours minus the truth (harness/calibration/accuracy.py). It passes where the mean is within 0.5 ms and the size's
p99 within 2 ms; with more than 50 streams also where the run has a finding on the client. Run it on an idle machine: "stolen"
is the share of its CPU time that its host gave to others.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import numpy as np
from tabulate import tabulate

from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolder
from bench_records.table import read_table
from benchmarks.open_loop import APART, SHARED, cpu_placement, stolen_share
from harness.calibration.accuracy import Errors, Truth, errors_of, spread, stamped_truths
from harness.calibration.calibrate import PACE
from harness.calibration.null_server.server import NullServerOptions, null_server
from harness.calibration.null_server.stamps import stamps_of_event, stamps_of_message
from harness.journal.worker_journal import JournalReader
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import embedded_plan
from serving.launch.run import running
from serving.repository.pipeline import RepositorySpec, write_repository

MEAN_MS = 0.5
P99_MS = 2.0
STRICT_STREAMS = 50  # with this many, a finding is no excuse
EXCUSES = ("schedule_slip", "client_saturated", "beyond_calibration")  # findings on the client as the limit
MODELS = {"grpc": "ensemble", "http": "ensemble", "openai": "null"}
PASSED, FLAGGED, FAILED, NOT_JUDGED = "passed", "flagged", "FAILED", "not judged"
SPREAD, AT_ONCE = "spread", "at once"  # how users come


@dataclass(frozen=True)
class Golden:
    """One run compared with the truth. ``findings`` are the findings of its own report that are more than notes."""

    name: str
    streams: int
    errors: Errors
    findings: tuple[str, ...]
    stolen: float
    is_judged: bool = True

    @property
    def verdict(self) -> str:
        if not self.is_judged:
            return NOT_JUDGED
        spreads = [spread(errors_ms) for errors_ms in (self.errors.ttft_ms, self.errors.icl_ms, self.errors.e2e_ms)]
        if all(s is not None and abs(s.mean_ms) <= MEAN_MS and s.size_p99_ms <= P99_MS for s in spreads):
            return PASSED
        return FLAGGED if set(EXCUSES) & set(self.findings) and self.streams > STRICT_STREAMS else FAILED


def against_null_server(protocol: str, streams: int, start: str, given: argparse.Namespace) -> Golden:
    rounds, tokens = given.rounds, given.tokens
    with tempfile.TemporaryDirectory() as temporary, null_server(NullServerOptions(PACE)) as addresses:
        url = addresses.grpc if protocol == "grpc" else f"http://{addresses.http}"
        folder = RunFolder(Path(temporary) / "run")
        with (
            kept_journals(folder.path, Path(temporary)) as journals,
            stolen_share() as stolen,
            cpu_placement(addresses.pid, given.cores),
        ):
            connections = given.connections if protocol == "grpc" else None
            target = BenchTarget(protocol, url, MODELS[protocol], connections, given.workers)
            bench(folder, target, streams, streams * rounds, tokens, answer_s(tokens) if start == SPREAD else 0.0)
        exchanges = [exchange for journal in journals for exchange in JournalReader(journal).read_new()]
        truths = stamped_truths(exchanges, stamps_of_message if protocol == "grpc" else stamps_of_event)
        return Golden(
            f"null server, {protocol}, {start}", streams, errors_of(records(folder), truths), findings(folder), stolen()
        )


def against_triton(streams: int, rounds: int, tokens: int) -> list[Golden]:
    with tempfile.TemporaryDirectory() as temporary:
        trace, repository = Path(temporary) / "trace.json", Path(temporary) / "repository"
        plan = embedded_plan(repository, choose_addresses(), Path(temporary) / "log", models=("tensorrt_llm",))
        settings = ("mode=triton", f"triton,file={trace}", "rate=1", "level=TIMESTAMPS")
        plan = replace(plan, command=(*plan.command, *(f"--trace-config={setting}" for setting in settings)))
        write_repository(RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR), repository)
        folder = RunFolder(Path(temporary) / "run")
        with running(plan) as server, stolen_share() as stolen:
            target = BenchTarget("grpc", server.addresses.grpc, "tensorrt_llm")
            bench(folder, target, streams, streams * rounds, tokens, answer_s(tokens))
        of_triton, ours = traced_truths(trace), records(folder)  # the trace is complete once the server has ended
        start_ns = started_ns(folder)
        from_our_send = {
            r.index: replace(of_triton[r.index], received_ns=start_ns + r.sent_ns) for r in ours if r.sent_ns is not None
        }
        return [
            Golden(name, streams, errors_of(ours, truths), findings(folder), stolen(), is_judged)
            for name, truths, is_judged in (
                ("Triton's sends, from ours", from_our_send, True),
                ("Triton's sends, from its reading", of_triton, False),
            )
        ]


def answer_s(tokens: int) -> float:
    """How long the null server takes for an answer: users that come spread over it stay spread."""
    return PACE.unstreamed(tokens).first_token_ns / 1e9


def started_ns(folder: RunFolder) -> int:
    """When the run began, in ns of the monotonic clock, to some microseconds: both are written as times of the wall clock."""
    manifest = json.loads(folder.manifest.read_text())
    since_epoch = datetime.fromisoformat(manifest["started_at"]) - datetime(1970, 1, 1, tzinfo=UTC)
    return since_epoch // timedelta(microseconds=1) * 1000 - int(manifest["clock"]["before"]["realtime_minus_monotonic_ns"])


def traced_truths(trace: Path) -> dict[int, Truth]:
    """By the index that our client sends as the request's id: when Triton had read it, and each GRPC_SEND_START."""
    index_of: dict[int, int] = {}
    received: dict[int, int] = {}
    sent: dict[int, list[int]] = {}
    for entry in json.loads(trace.read_text()):
        if "request_id" in entry:
            index_of[entry["id"]] = int(entry["request_id"])
        for stamp in entry.get("timestamps", ()):
            if stamp["name"] == "GRPC_WAITREAD_END":
                received[entry["id"]] = stamp["ns"]
            elif stamp["name"] == "GRPC_SEND_START":
                sent.setdefault(entry["id"], []).append(stamp["ns"])
    return {index: Truth(received[number], np.array(sorted(sent[number]), np.int64)) for number, index in index_of.items()}


@dataclass(frozen=True)
class BenchTarget:
    """The options of ``bench`` that name a target, and how it is reached."""

    protocol: str
    url: str
    model: str
    connections: int | None = None
    workers: int | None = None


def bench(folder: RunFolder, target: BenchTarget, streams: int, requests: int, tokens: int, ramp_up_s: float) -> None:
    """One measurement, as a user makes it; without warm-up, whose requests would be in the server's trace, too."""
    row = {"input": "", "instruction": " ".join(["word"] * 32), "output": " ".join(["word"] * tokens)}
    prompts = folder.path.with_name("prompts.json")
    prompts.write_text(json.dumps([row] * requests))
    options: dict[str, object] = {
        **asdict(target),
        "dataset": prompts,
        "op_tokens_per_word": 1,
        "concurrency": streams,
        "warmup_requests": 0,
        "run_dir": folder.path,
    }
    if ramp_up_s:
        options["ramp_up"] = ramp_up_s
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    command = [sys.executable, "-c", "from bench_cli import main; main()", "dataset", "--ignore_eos", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"bench ended with status {done.returncode}: {done.stderr[-2000:]}")


@contextmanager
def kept_journals(run_dir: Path, keep_in: Path) -> Iterator[list[Path]]:
    """The run's journals, which hold the raw responses and which ``bench`` removes at its end: each gets a second name."""
    found: list[Path] = []
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(0.05):
            for journal in run_dir.glob("journal-*.bin"):
                with suppress(FileExistsError, FileNotFoundError):
                    os.link(journal, keep_in / f"kept-{journal.name}")

    watch = threading.Thread(target=keep)
    watch.start()
    try:
        yield found
    finally:
        ended.set()
        watch.join()
        found += sorted(keep_in.glob("kept-*"))


def records(folder: RunFolder) -> list[Record]:
    columns = ("index", "outcome", "scheduled_ns", "requested_output_tokens", "sent_ns", "token_times_ns")
    rows = read_table(folder.requests, columns).to_pylist()
    return [
        Record(**(row | {"outcome": Outcome(row["outcome"]), "token_times_ns": tuple(row["token_times_ns"])})) for row in rows
    ]


def findings(folder: RunFolder) -> tuple[str, ...]:
    found = json.loads(folder.summary.read_text())["findings"]
    return tuple(finding["code"] for finding in found if finding["severity"] != "note")


def table(results: Sequence[Golden]) -> str:
    rows = []
    for golden in results:
        errors = golden.errors
        for metric, errors_ms in (("TTFT", errors.ttft_ms), ("ICL", errors.icl_ms), ("E2E", errors.e2e_ms)):
            s = spread(errors_ms)
            if s is not None:
                numbers = (f"{value:.3f}" for value in (s.mean_ms, s.size_mean_ms, s.size_p50_ms, s.size_p99_ms))
                verdict = f"{golden.verdict} ({', '.join(golden.findings) or 'no finding'})" if metric == "TTFT" else ""
                rows.append((golden.name, golden.streams, metric, f"{s.n:,}", *numbers, f"{golden.stolen:.1%}", verdict))
    headers = (
        "truth",
        "streams",
        "error of",
        "n",
        "mean ms",
        "mean size",
        "p50 size",
        "p99 size",
        "stolen",
        "verdict (findings)",
    )
    return tabulate(rows, headers=headers, disable_numparse=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--protocols", nargs="+", choices=list(MODELS), default=["grpc", "openai"])
    parser.add_argument("--rounds", type=int, default=10, help="requests of each user")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--connections", type=int, help="of each worker over gRPC; as many as bench opens by itself")
    parser.add_argument("--workers", type=int, help="of the client against the null server; as many as bench starts by itself")
    parser.add_argument("--cores", choices=(APART, SHARED), default=APART, help="of the null server and the client")
    parser.add_argument("--no_triton", action="store_true", help="leave the real server out")
    parser.add_argument("--triton_streams", type=int, default=16)
    arguments = parser.parse_args()
    results = []
    for protocol in arguments.protocols:
        for streams, start in product(arguments.streams, (SPREAD, AT_ONCE)):
            print(f"null server, {protocol}, {streams} streams, {start} …", file=sys.stderr, flush=True)
            results.append(against_null_server(protocol, streams, start, arguments))
    if not arguments.no_triton:
        print("Triton …", file=sys.stderr, flush=True)
        results += against_triton(arguments.triton_streams, arguments.rounds, arguments.tokens)
    print(table(results))
    return 1 if any(golden.verdict == FAILED for golden in results) else 0


if __name__ == "__main__":
    sys.exit(main())
