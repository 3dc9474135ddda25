"""What a short run costs beside its schedule: seconds before and after it, and CPU of all processes of bench.

    python -m benchmarks.startup_cost [--python PYTHON] [--rounds 5] [--rate 50] [--requests 200]

Chat completions of 128 to 20 tokens from a null server, whose CPU is not counted, with the shipped tokenizer. ``--python``
names the Python of another environment with inflight-bench, such as one in which torch can be imported. Limits that hold where
torch is installed: the command ends within 4 s of its schedule's end, and costs 6 s of CPU at most.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness.calibration.null_server.server import NullServerOptions, null_server
from serving.engines.openvino.folder import DEMO_ENGINE_DIR

LENGTHS = ["--input_mean", "128", "--input_stdev", "5", "--output_mean", "20", "--output_stdev", "2"]


@dataclass(frozen=True)
class Cost:
    """Seconds: of CPU, from the command to the first arrival, and from the last arrival of the schedule to the end."""

    cpu_s: float
    before_s: float
    after_s: float


def measure(python: str, url: str, load: list[str], folder: Path) -> Cost:
    """One run. Raises CalledProcessError where it fails."""
    command = [python, "-m", "bench_cli", "token_norm_dist", *LENGTHS, *load, "-i", "openai", "--url", url]
    options = ["--time_delay_dist", "constant", "--tokenizer_dir", str(DEMO_ENGINE_DIR), "--run_dir", str(folder)]
    used, started_s = sum(os.times()[2:4]), time.monotonic()
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    total_s, cpu_s = time.monotonic() - started_s, sum(os.times()[2:4]) - used
    assert done.returncode in (0, 3), done.stderr
    times = json.loads((folder / "run.json").read_text())["times"]
    summary = json.loads((folder / "summary.json").read_text())
    scheduled_s = (summary["requests"]["scheduled"] - 1) / summary["metrics"]["offered_rate"]["value"]
    return Cost(cpu_s, times["set_up_s"], total_s - times["set_up_s"] - scheduled_s)


def has_torch(python: str) -> bool:
    """Whether torch is installed there; it is not imported."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", default="50")
    parser.add_argument("--requests", default="200")
    options = parser.parse_args()
    load = ["--request_rate", options.rate, "--num_requests", options.requests]
    print(f"torch: {'installed' if has_torch(options.python) else 'not installed'}")
    costs = []
    with tempfile.TemporaryDirectory() as folder, null_server(NullServerOptions()) as server:
        for number in range(options.rounds):
            cost = measure(options.python, f"http://{server.http}", load, Path(folder) / str(number))
            print(
                f"run {number}: {cost.before_s:.2f} s before, {cost.after_s:.2f} s after, {cost.cpu_s:.2f} s of CPU", flush=True
            )
            costs.append(cost)
    for name in ("before_s", "after_s", "cpu_s"):
        values = [getattr(cost, name) for cost in costs]
        print(f"{name}: median {statistics.median(values):.2f}, max {max(values):.2f}")


if __name__ == "__main__":
    main()
