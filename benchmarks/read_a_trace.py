"""Time and memory of reading traces: 20,000 rows of Azure's shape, and 1.4 million of BurstGPT's, both generated.

``python -m benchmarks.read_a_trace`` prints a line for each; every file is read by a process of its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

_AZURE_ROWS = 20_000
_BURSTGPT_ROWS = 1_400_000
_FAILED_SHARE = 0.02


def main() -> None:
    """Write each file and read it."""
    if len(sys.argv) > 1:
        read(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        for write, rows in ((write_azure, _AZURE_ROWS), (write_burstgpt, _BURSTGPT_ROWS)):
            path = Path(folder) / f"{write.__name__.removeprefix('write_')}.csv"
            write(path, rows)
            print(f"{rows:,} rows, {path.stat().st_size / 2**20:.0f} MiB: ", end="", flush=True)
            subprocess.run([sys.executable, "-m", "benchmarks.read_a_trace", str(path)], check=True)


def read(path: Path) -> None:
    """Read ``path`` and print what it took."""
    from workloads.readers.detect import read_workload_file

    start = time.perf_counter()
    reading = read_workload_file(path)
    seconds = time.perf_counter() - start
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(reading.workload):,} read, {reading.rejects.count:,} left out, {seconds:.2f} s, peak {peak_mib:,.0f} MiB")


def write_azure(path: Path, rows: int) -> None:
    """Arrivals at 5 a second with 7 digits of a fraction, and no newline at the end."""
    generator = np.random.default_rng(0)
    moments = np.datetime64("2023-11-16T18:15:46", "ns") + np.cumsum(generator.exponential(2e8, rows)).astype("m8[ns]")
    inputs, outputs = generator.integers(1, 4_000, rows), generator.integers(1, 1_000, rows)
    lines = (f"{str(moment).replace('T', ' ')[:27]},{inputs[row]},{outputs[row]}" for row, moment in enumerate(moments))
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(lines))


def write_burstgpt(path: Path, rows: int) -> None:
    """The 8 columns of release 1.2: a third of the rows are turns of conversations, one in fifty failed."""
    generator = np.random.default_rng(0)
    times = np.cumsum(generator.integers(0, 8, rows))
    sessions = np.where(generator.random(rows) < 1 / 3, generator.integers(0, rows // 10, rows), -1)
    inputs, outputs = generator.integers(1, 4_000, rows), generator.integers(1, 1_000, rows)
    outputs[generator.random(rows) < _FAILED_SHARE] = 0
    with path.open("w") as file:
        file.write("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n")
        for at, session, given, taken in zip(times.tolist(), sessions.tolist(), inputs.tolist(), outputs.tolist(), strict=True):
            name, log = ("", "API log") if session < 0 else (f"00000000-0000-4000-8000-{session:012d}", "Conversation log")
            file.write(f"{at},{name},{taken / 50},ChatGPT,{given},{taken},{given + taken},{log}\n")


if __name__ == "__main__":
    main()
