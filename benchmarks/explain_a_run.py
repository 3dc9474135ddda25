"""``bench why``, and the section "Why" of a report, of a run of 100,000 requests with times of the server: at most 5 s.

A simulated engine works in steps, so that trtllm-serve's records are joined by their stamps. In one run the requests arrive by
chance and their answers have various lengths; in the other one 256 users send at once, and one step ends all of their answers.
Creates the runs (not measured). Prints the CPU seconds of each command, of all its processes, and of the section alone: other
work on the machine does not lengthen these, and each is also the wall time on an idle machine, as one thread works.

    python -m benchmarks.explain_a_run [--requests 100000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bench_records.manifest import ClockOffsets, ClockReadings
from bench_records.run_folder import RunFolder
from benchmarks.report_a_million import lists, manifest_of, write_run
from reports.metrics.request_phases import monotonic_start_ns
from reports.run_report import read_run
from reports.why.answer import METRICS, explain

MOST_SECONDS = 5.0
_STEP_MS, _SLOTS, _RATE_PER_S, _USERS = 8.0, 256, 1_000.0, 256
_SEED = 7


@dataclass(frozen=True)
class Served:
    """Requests in ms, shape [n]: sends, first and last tokens at the client; the engine's ``stamps``, shape [n, 4], are the
    arrival, the start, the first and the last token.
    """

    sent: NDArray[np.float64]
    first: NDArray[np.float64]
    last: NDArray[np.float64]
    tokens: NDArray[np.int64]
    stamps: NDArray[np.float64]


def by_chance(n: int) -> Served:
    """Exponential gaps, and 8 to 39 tokens."""
    rng = np.random.default_rng(_SEED)
    sent = np.cumsum(rng.exponential(1e3 / _RATE_PER_S, n))
    return served(sent, rng.integers(8, 40, n), rng)


def in_step(n: int) -> Served:
    """Users who all send within 20 ms, and who all get 20 tokens: the next time after the last answer."""
    rng = np.random.default_rng(_SEED)
    wave = np.arange(n) // _USERS
    sent = np.sort(300.0 * wave + rng.uniform(0.0, 20.0, n))
    return served(sent, np.full(n, 20), rng)


def served(sent: NDArray[np.float64], tokens: NDArray[np.int64], rng: np.random.Generator) -> Served:
    """By an engine of steps with ``_SLOTS``, first come, first served."""
    n = sent.size
    arrival = sent + 0.5 + rng.exponential(0.5, n)
    order = np.argsort(arrival).tolist()
    started, first, last = np.zeros(n), np.zeros(n), np.zeros(n)
    left, running, now, taken = tokens.copy(), np.empty(0, np.int64), 0.0, 0
    while taken < n or running.size:
        if not running.size:
            now = max(now, float(arrival[order[taken]]))
        begin = taken
        while taken < n and running.size + taken - begin < _SLOTS and arrival[order[taken]] <= now:
            taken += 1
        new = np.array(order[begin:taken], np.int64)
        started[new] = now
        now += _STEP_MS + rng.exponential(0.3)
        first[new] = now
        running = np.append(running, new)
        left[running] -= 1
        last[running[left[running] == 0]] = now
        running = running[left[running] > 0]
    seen_first, seen_last = (at + 0.3 + rng.exponential(0.4, n) for at in (first, last))
    return Served(sent, seen_first, np.maximum(seen_first, seen_last), tokens, np.column_stack([arrival, started, first, last]))


def write(folder: RunFolder, by_engine: Served) -> Path:
    """The run with its times of the server, and beside it the file with trtllm-serve's records, whose path is returned."""
    offsets = ClockOffsets(realtime_minus_monotonic_ns=10**18, boottime_minus_monotonic_ns=0)
    started = datetime.fromtimestamp(10**9 + 10**5, UTC).isoformat()
    manifest = msgspec.structs.replace(
        manifest_of(by_engine.sent.size), started_at=started, clock=ClockReadings(before=offsets)
    )
    start_ns = monotonic_start_ns(manifest)
    assert start_ns is not None
    stamps_ns = start_ns + np.round(by_engine.stamps * 1e6).astype(np.int64)
    write_run(folder, _columns(by_engine, stamps_ns), manifest)
    names = ("arrival_time", "first_scheduled_time", "first_token_time", "last_token_time")
    ended = stamps_ns[np.argsort(stamps_ns[:, 3], kind="stable")]
    times = [dict(zip(names, row, strict=True)) for row in (ended / 1e9).tolist()]
    path = folder.path.with_suffix(".json")
    path.write_text(json.dumps([_record(number, timing) for number, timing in enumerate(times)]))
    return path


def _record(number: int, timing: dict[str, float]) -> dict[str, object]:
    """One of ``/perf_metrics``, with all keys (``get_perf_metrics`` in tensorrt_llm/serve/openai_server.py)."""
    beside = {"server_arrival_time": 0.0, "server_first_token_time": 0.0, "kv_cache_size": 0}
    blocks = dict.fromkeys((f"num_{kind}_blocks" for kind in ("total_allocated", "new_allocated", "reused", "missed")), 3)
    drafts = {"acceptance_rate": 0.0, "total_accepted_draft_tokens": 0, "total_draft_tokens": 0}
    metrics = {"timing_metrics": {**timing, **beside}, "kv_cache_metrics": blocks, "speculative_decoding": drafts}
    return {"request_id": number, "perf_metrics": {"first_iter": 1, "last_iter": 30, **metrics}}


def _columns(by_engine: Served, stamps_ns: NDArray[np.int64]) -> dict[str, pa.Array]:
    sent, first, last = (np.round(ms * 1e6).astype(np.int64) for ms in (by_engine.sent, by_engine.first, by_engine.last))
    n = sent.size
    spans_ns = np.diff(stamps_ns, axis=1)
    return {
        "index": pa.array(np.arange(n)),
        "outcome": pa.array(np.full(n, "done")),
        "scheduled_ns": pa.array(sent - 50_000),
        "released_ns": pa.array(sent - 50_000),
        "requested_output_tokens": pa.array(by_engine.tokens),
        "sent_ns": pa.array(sent),
        "done_ns": pa.array(last + 100_000),
        "token_times_ns": lists(np.column_stack([first, last])),
        "token_counts": lists(np.column_stack([np.ones(n, np.int64), by_engine.tokens - 1])),
        "input_tokens": pa.array(np.full(n, 128)),
        "output_tokens": pa.array(by_engine.tokens),
        "output_tokens_source": pa.array(np.full(n, "ids")),
        "prompt_echoed": pa.array(np.zeros(n, dtype=np.bool_)),
        "ignore_eos": pa.array(np.ones(n, dtype=np.bool_)),
        "worker": pa.array(np.zeros(n, np.int64)),
        "server_arrival_ns": pa.array(stamps_ns[:, 0]),
        "server_queue_ns": pa.array(spans_ns[:, 0]),
        "server_prefill_ns": pa.array(spans_ns[:, 1]),
        "server_decode_ns": pa.array(spans_ns[:, 2]),
    }


def cpu_of(command: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of ``bench`` with these arguments, processes that it started included."""
    start_s = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", "from bench_cli import main; main()", *command], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        sys.exit(f"bench {command[0]} ended with status {process.returncode}")
    return used.ru_utime + used.ru_stime, time.monotonic() - start_s


def cpu_of_section(folder: RunFolder) -> tuple[float, float]:
    """The same of what a report's section adds to a report."""
    report = read_run(folder)
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    explain([report], METRICS, 0.99)
    return time.process_time() - start_cpu_s, time.monotonic() - start_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    options = parser.parse_args()
    slowest_s = 0.0
    print(f"{options.requests:,} requests on {len(os.sched_getaffinity(0))} cores; at most {MOST_SECONDS:.0f} s of CPU each")
    with tempfile.TemporaryDirectory() as temporary:
        for name, by_engine in (("by chance", by_chance(options.requests)), ("256 in step", in_step(options.requests))):
            folder = RunFolder(Path(temporary) / name.replace(" ", "-"))
            records = write(folder, by_engine)
            path = str(folder.path)
            measured = {
                "bench why": cpu_of(["why", path]),
                "bench why --over_time 10 --slowest 20": cpu_of(["why", path, "--over_time", "10", "--slowest", "20"]),
                "bench why --server_times": cpu_of(["why", path, "--server_times", str(records)]),
                "section of a report": cpu_of_section(folder),
            }
            for what, (cpu_s, wall_s) in measured.items():
                print(f"  {name:11}  {what:38} {cpu_s:5.2f} s of CPU, {wall_s:5.2f} s of wall time", flush=True)
                slowest_s = max(slowest_s, cpu_s)
    sys.exit(0 if slowest_s <= MOST_SECONDS else 1)


if __name__ == "__main__":
    main()
