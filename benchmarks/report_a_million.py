"""``bench report`` of a run of one million requests with 20 tokens each: at most 60 s and 2 GiB on 2 cores.

Creates the run's folder (not measured), runs ``bench report``, and prints its wall-clock time and the peak resident memory of
the process and all its children together.

Run: python benchmarks/report_a_million.py [--requests 1000000] [--keep DIR]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bench_records.manifest import DrawnSchedule, GapLaw, LawOfArrivals, LoadFacts, Manifest, TargetFacts, Workload
from bench_records.run_folder import RunFolder
from bench_records.table import write_table

TOKENS = 20
RATE_PER_S = 1_000.0
MOST_SECONDS = 60.0
MOST_BYTES = 2 << 30
_POLL_S = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="create the run in this new folder and keep it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = RunFolder(options.keep or Path(temporary) / "run")
        make_in_child(folder, options.requests)
        seconds, peak = measure(folder)
        size = {path.name: path.stat().st_size for path in sorted(folder.path.iterdir())}
    print(f"{options.requests:,} requests of {TOKENS} tokens, on {len(os.sched_getaffinity(0))} cores")
    print("  " + ", ".join(f"{name} {bytes_ / 1e6:,.1f} MB" for name, bytes_ in size.items()))
    print(f"  bench report took {seconds:.1f} s (at most {MOST_SECONDS:.0f})")
    print(f"  peak resident memory, children included: {peak / (1 << 30):.2f} GiB (at most {MOST_BYTES / (1 << 30):.0f})")
    sys.exit(0 if seconds <= MOST_SECONDS and peak <= MOST_BYTES else 1)


def measure(folder: RunFolder) -> tuple[float, int]:
    """Seconds, and peak resident bytes of all processes together."""
    command = [sys.executable, "-c", "from bench_cli import main; main()", "report", str(folder.path)]
    start_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        watched, peak = psutil.Process(process.pid), 0
        while process.poll() is None:
            peak = max(peak, resident(watched))
            time.sleep(_POLL_S)
    seconds = time.monotonic() - start_s
    if process.returncode not in (0, 3):
        sys.exit(f"bench report ended with status {process.returncode}")
    return seconds, peak


def resident(process: psutil.Process) -> int:
    total = 0
    try:
        for member in (process, *process.children(recursive=True)):
            total += member.memory_info().rss
    except psutil.NoSuchProcess:
        pass  # the process ended between two calls
    return total


def make_in_child(folder: RunFolder, requests: int) -> None:
    """Create the run in a child process, so that its memory is freed before the measurement."""
    pid = os.fork()
    if pid == 0:
        make_run(folder, requests)
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        sys.exit("the run could not be created")


def make_run(folder: RunFolder, requests: int) -> None:
    """Write a steady open-loop run at 1,000 requests/s: first token after about 20 ms, then one every 5 ms, some failures."""
    write_run(folder, request_columns(requests), manifest_of(requests))


def write_run(folder: RunFolder, columns: Mapping[str, pa.Array], manifest: Manifest) -> None:
    """Write a run with these ``columns`` of ``requests.parquet``; others are null."""
    folder.path.mkdir(parents=True)
    write_table([], folder.requests)
    schema = pq.read_schema(folder.requests)
    requests = len(columns["index"])
    known = {field.name: pa.nulls(requests, field.type) for field in schema if field.nullable} | dict(columns)
    table = pa.table([known[field.name] for field in schema], schema=schema)
    pq.write_table(table, folder.requests, compression="zstd")
    folder.write_manifest(manifest)


def manifest_of(requests: int) -> Manifest:
    """The manifest of an open-loop run at 1,000 requests/s."""
    law = f"exponential arrivals at {RATE_PER_S:g} requests/s"
    return Manifest(
        workload=Workload(description=f"{requests} simulated requests", dropped_too_long=0),
        arrivals=law,
        load=LoadFacts(
            mode="open",
            asked_arrivals=LawOfArrivals(law=law, unit="requests", rate_per_s=RATE_PER_S, gap_cv=1.0, law_gap_cv=1.0),
            law=GapLaw(name="exponential"),
        ),
        schedule=DrawnSchedule(digest="0" * 64, seed=0),
        target=TargetFacts(model="none", protocol="grpc", streaming=True),
        interrupted=False,
    )


def request_columns(requests: int) -> dict[str, pa.Array]:
    """Simulated columns of ``requests.parquet``."""
    rng = np.random.default_rng(0)
    scheduled = np.round(np.cumsum(rng.exponential(1e9 / RATE_PER_S, requests))).astype(np.int64)
    sent = scheduled + rng.integers(10_000, 300_000, requests)
    first = sent + np.round(20e6 * rng.lognormal(0.0, 0.3, requests)).astype(np.int64)
    gaps = np.round(5e6 * rng.lognormal(0.0, 0.1, (requests, TOKENS))).astype(np.int64)
    gaps[:, 0] = 0
    times = first[:, None] + np.cumsum(gaps, axis=1)
    failed = rng.random(requests) < 0.001
    return {
        "index": pa.array(np.arange(requests)),
        "outcome": pa.array(np.where(failed, "server_error", "done")),
        "scheduled_ns": pa.array(scheduled),
        "released_ns": pa.array(scheduled),
        "requested_output_tokens": pa.array(np.full(requests, TOKENS)),
        "sent_ns": pa.array(sent),
        "done_ns": pa.array(times[:, -1] + 100_000),
        "token_times_ns": lists(times),
        "token_counts": lists(np.ones_like(times)),
        "input_tokens": pa.array(np.full(requests, 128)),
        "output_tokens": pa.array(np.full(requests, TOKENS)),
        "output_tokens_source": pa.array(np.full(requests, "ids")),
        "prompt_echoed": pa.array(np.zeros(requests, dtype=np.bool_)),
        "ignore_eos": pa.array(np.ones(requests, dtype=np.bool_)),
        "error": pa.array(['queue, "full"' if did_fail else None for did_fail in failed]),
        "worker": pa.array(np.arange(requests) % 2),
        "session": pa.nulls(requests, pa.string()),
    }


def lists(values: NDArray[np.int64]) -> pa.ListArray:
    offsets = np.arange(values.shape[0] + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel()))


if __name__ == "__main__":
    main()
