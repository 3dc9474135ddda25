"""Whether searches for the capacity of the embedded pipeline agree with each other, and with long runs at fixed rates.

Each search is one of ``bench capacity`` with a limit of 500 ms on p99 TTFT. After it follow a run at 0.95 of the rate that it
certified and one at 1.1 of the rate that it refused.

Required, with 60,000 requests a search: overlapping brackets, refused over certified at most 1.25, at most 1 % of the requests
at 0.95 of the certified rates beyond the limit, and more at 1.1 of the refused ones.

With ``--min_step_time 25ms --max_num_sequences 32`` the capacity does not follow the machine's speed, which changes within such
a sitting.

Run: python -m benchmarks.embedded_searches FOLDER [--searches 5] [--budget 10m] [--requests 20000] [--seed 31] [--isl 64]
[--osl 16] [--min_step_time TIME] [--max_num_sequences N]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from bench_records.run_folder import RunFolder
from reports.run_report import read_run

_BENCH = [sys.executable, "-m", "bench_cli"]
_LIMIT_MS = 500.0
_BELOW, _ABOVE = 0.95, 1.1
_MEASURED = (0, 1, 3)  # a run beyond its capacity is not valid


@dataclass(frozen=True)
class Beyond:
    """How many of the requests of a run failed, or took longer than the limit to their first token."""

    beyond: int
    requests: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="new folder of the searches and runs")
    parser.add_argument("--searches", type=int, default=5)
    parser.add_argument("--budget", default="10m", help="time of a search")
    parser.add_argument("--requests", type=int, default=20_000, help="of a run at a fixed rate")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--isl", default="64", help="input tokens")
    parser.add_argument("--osl", default="16", help="output tokens")
    parser.add_argument("--min_step_time", help="as of bench serve")
    parser.add_argument("--max_num_sequences", default="256", help="that the engine runs concurrently")
    options = parser.parse_args()
    engine = ["--max_num_sequences", options.max_num_sequences]
    if options.min_step_time:
        engine += ["--min_step_time", options.min_step_time]
    load = ["token_norm_dist", "--isl", options.isl, "--osl", options.osl, *engine]
    options.folder.mkdir(parents=True)
    below, above = list[Beyond](), list[Beyond]()
    for number in range(options.searches):
        seed = options.seed + 1_000 * number
        certified, refused = search(options.folder / f"search-{number}", options.budget, seed, load)
        for name, rates, rate, factor in (("below", below, certified, _BELOW), ("above", above, refused, _ABOVE)):
            if rate is not None:
                rates.append(at_rate(options.folder / f"{name}-{number}", factor * rate, options.requests, seed + 500, load))
    for name, runs in (("below", below), ("above", above)):
        beyond, requests = sum(run.beyond for run in runs), sum(run.requests for run in runs)
        print(f"{name}: {beyond} of {requests} beyond the limit, {100 * beyond / max(1, requests):.2f} %")


def search(folder: Path, budget: str, seed: int, load: Sequence[str]) -> tuple[float | None, float | None]:
    """The rate that a search certifies, and the one that it refuses."""
    started_s = time.monotonic()
    limits = ["--slo", f"p99_ttft<={_LIMIT_MS:g}ms", "--budget", budget, "--seed", str(seed)]
    command = [*_BENCH, "capacity", *limits, "--experiment_dir", str(folder), *load]
    ended = subprocess.run(command, capture_output=True)
    assert (folder / "capacity.json").exists(), ended.stderr.decode()
    answer = msgspec.json.decode((folder / "capacity.json").read_bytes())
    (tier,) = answer["tiers"]
    took = f"{answer['requests']} requests, {time.monotonic() - started_s:.0f} s"
    print(f"{folder.name}: certified {tier['certified']}, refused {tier['refused']}, ratio {tier['ratio']}, {took}", flush=True)
    return tier["certified"], tier["refused"]


def at_rate(folder: Path, rate: float, requests: int, seed: int, load: Sequence[str]) -> Beyond:
    """A run of this many requests at a fixed rate."""
    sending = ["--request_rate", str(rate), "--num_requests", str(requests), "--seed", str(seed)]
    ended = subprocess.run([*_BENCH, *load, *sending, "--run_dir", str(folder)], capture_output=True)
    assert ended.returncode in _MEASURED, ended.stderr.decode()
    measured = read_run(RunFolder(folder)).requests
    ttft_ms = (measured.first_token_ns - measured.scheduled_ns) / 1e6
    beyond = int(np.count_nonzero(~(measured.done & (ttft_ms <= _LIMIT_MS))))
    median, p99 = np.nanquantile(ttft_ms, (0.5, 0.99))
    ttft = f"TTFT p50 {median:.0f}, p99 {p99:.0f} ms"
    print(f"{folder.name}: {rate:.1f}/s, {beyond} of {ttft_ms.size} beyond the limit, {ttft}", flush=True)
    return Beyond(beyond, ttft_ms.size)


if __name__ == "__main__":
    main()
