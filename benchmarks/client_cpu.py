"""CPU time of ``bench`` per streamed token, report included, over gRPC and over server-sent events.

    python -m benchmarks.client_cpu [--requests 5000] [--tokens 100] [--in_flight 50] [--rounds 3]

A null server paces its responses (first token after 20 ms, then one every 5 ms), so that each token is a packet of its own,
and all protocols get the same work. The result is the CPU time, user and system, of the whole command and all its processes
(parent, workers, records, statistics, report with pictures), minus that of the same command for one request of one token
(start-up, imports, an empty report), divided by the tokens. Costs per request and per report are thus spread over the tokens;
their share shrinks with more requests. The protocols alternate; the median of the rounds is printed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.calibration.null_server.pacing import Pace
from harness.calibration.null_server.server import NullServerAddresses, NullServerOptions, null_server

PROMPT_WORDS = 100
BENCH = str(Path(sys.executable).parent / "bench")
PACE = Pace(20_000_000, 5_000_000)
_PR_SET_CHILD_SUBREAPER = 36


def protocols(addresses: NullServerAddresses) -> dict[str, list[str]]:
    """Command line options of each protocol."""
    return {
        "gRPC, ModelStreamInfer": ["-i", "grpc", "--model", "ensemble", "--url", addresses.grpc],
        "SSE, generate_stream": ["-i", "http", "--model", "ensemble", "--url", addresses.http],
        "SSE, chat/completions": ["-i", "openai", "--url", addresses.http],
    }


def write_prompts(path: Path, requests: int, tokens: int) -> Path:
    """Write a dataset with ``tokens`` output tokens per request."""
    row = {"input": "", "instruction": " ".join(["word"] * PROMPT_WORDS), "output": " ".join(["word"] * tokens)}
    path.write_text(json.dumps([row] * requests))
    return path


def traffic(requests: int, tokens: int, in_flight: int) -> list[str]:
    """A closed loop if this ``bench`` supports it, else arrivals at the rate that keeps as many in flight."""
    if "--concurrency" in subprocess.run([BENCH, "dataset", "--help"], capture_output=True, text=True, check=True).stdout:
        return ["--concurrency", str(in_flight)]
    latency_s = (PACE.first_token_ns + (tokens - 1) * PACE.gap_ns) / 1e9
    return ["--request_rate", f"{min(in_flight, requests) / latency_s:.3f}", "--time_delay_dist", "constant"]


def cpu_of(command: Sequence[str], allowed: Sequence[int] = (0,)) -> float:
    """CPU seconds, user and system, of a command and all processes that it started, orphans included."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for _ in range(20):  # orphans are reparented to this process; wait for their end
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        time.sleep(0.1)
    if done.returncode not in allowed:
        output = done.stdout.decode(errors="replace")[-3000:]
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}:\n{output}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_bench(protocol: Sequence[str], folder: Path, requests: int, tokens: int, in_flight: int) -> float:
    """CPU seconds of one run of ``bench``. An invalid run (exit status 3) has done the same work."""
    prompts = write_prompts(folder / "prompts.json", requests, tokens)
    with tempfile.TemporaryDirectory(dir=folder) as run:
        shape = ["--dataset", str(prompts), "--op_tokens_per_word", "1", "--run_dir", f"{run}/run", "--warmup_requests", "1"]
        seconds = cpu_of([BENCH, "dataset", *protocol, *shape, *traffic(requests, tokens, in_flight)], allowed=(0, 3))
        summary = json.loads((Path(run) / "run" / "summary.json").read_text())
    done = summary["requests"]["done"]
    if done != requests or not summary["metrics"]["output_token_throughput"]["value"]:
        raise SystemExit(f"only {done} of {requests} requests were done")
    return seconds


def per_token_us(
    protocols: Mapping[str, Sequence[str]], folder: Path, requests: int, tokens: int, in_flight: int, rounds: int
) -> dict[str, list[float]]:
    """CPU time per token in µs, by protocol and round."""
    times_us: dict[str, list[float]] = {name: [] for name in protocols}
    for number in range(1, rounds + 1):
        for name, protocol in protocols.items():
            start_up_s = measure_bench(protocol, folder, 1, 1, 1)
            whole_s = measure_bench(protocol, folder, requests, tokens, in_flight)
            times_us[name].append((whole_s - start_up_s) / (requests * tokens) * 1e6)
            print(
                f"round {number}: {name}: {whole_s:.2f} s, start-up {start_up_s:.2f} s: {times_us[name][-1]:.1f} µs", flush=True
            )
    return times_us


def arguments_of(description: str, requests: int) -> argparse.ArgumentParser:
    """Options that ``peer_cpu`` has in common."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--requests", type=int, default=requests)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--in_flight", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    return parser


def main() -> None:
    arguments = arguments_of(__doc__.splitlines()[0], requests=5000).parse_args()
    with tempfile.TemporaryDirectory() as folder, null_server(NullServerOptions(PACE)) as addresses:
        times_us = per_token_us(
            protocols(addresses), Path(folder), arguments.requests, arguments.tokens, arguments.in_flight, arguments.rounds
        )
    for name, values in times_us.items():
        print(f"{name:24} {statistics.median(values):6.1f} µs of CPU per token ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    main()
