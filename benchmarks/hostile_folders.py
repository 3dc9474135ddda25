"""Run folders that were damaged or made to do harm, through report, compare, trend, recover and config.

    python -m benchmarks.hostile_folders [--folders 1000] [--first 0]

A finished run and one that was cut, both real, against a null server; each folder is a copy with one to three mutations. Every
command must end with an exit status of its own: no traceback, no signal, at most 2 GB of memory and 60 s; where it is
refused (2), stderr ends with one sentence that names the file. A trend with a sound run beside it must show that run.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_records.run_folder import RunFolder
from benchmarks.folder_mutations import mutate
from harness.calibration.null_server.pacing import Pace
from harness.calibration.null_server.server import NullServerOptions, null_server

MOST_BYTES = 2 << 30
MOST_SECONDS = 60
_NORMAL = ["--input_mean", "8", "--input_stdev", "2", "--output_mean", "6", "--output_stdev", "1", "--vocab_size", "100"]
_STATUSES = (0, 1, 2, 3)


@dataclass(frozen=True)
class Outcome:
    """How one command ended; ``fault`` is what must not be, None where all is well."""

    verb: str
    status: int
    fault: str | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folders", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first folder, to repeat one")
    options = parser.parse_args()
    counts: collections.Counter[tuple[str, int]] = collections.Counter()
    faults = 0
    with tempfile.TemporaryDirectory() as temporary:
        whole, cut = make_runs(Path(temporary))
        load_libraries(whole)
        for number in range(options.first, options.first + options.folders):
            mutations, outcomes = try_folder(number, whole, cut, Path(temporary) / "mutant")
            counts.update((outcome.verb, outcome.status) for outcome in outcomes)
            for outcome in outcomes:
                if outcome.fault is not None:
                    faults += 1
                    print(f"folder {number} ({'; '.join(mutations)}), {outcome.verb}: {outcome.fault}", flush=True)
    for (verb, status), count in sorted(counts.items()):
        print(f"{verb:8} exit status {status}: {count:6,}")
    print(f"{options.folders:,} folders, {sum(counts.values()):,} commands, {faults} faults")
    sys.exit(1 if faults else 0)


def make_runs(parent: Path) -> tuple[Path, Path]:
    """A finished run, and one whose processes were killed while they sent."""
    whole, cut = parent / "whole", parent / "cut"
    with null_server(NullServerOptions(Pace(2_000_000, 1_000_000))) as server:
        command = [sys.executable, "-m", "bench_cli", "token_norm_dist", "--url", server.grpc, "--workers", "2", *_NORMAL]
        load = ["--model", "tensorrt_llm", "--request_rate", "100", "--num_requests"]
        subprocess.run([*command, "--run_dir", str(whole), *load, "60"], check=False, capture_output=True, timeout=120)
        with subprocess.Popen(
            [*command, "--run_dir", str(cut), *load, "6000"],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            wait_for_records(RunFolder(cut))
            os.killpg(process.pid, signal.SIGKILL)
    RunFolder(whole).read_requests()
    return whole, cut


def load_libraries(whole: Path) -> None:
    """Load what the verbs use, once, in the process that all others are forked from."""
    from bench_cli import run
    from bench_cli.measurement import measure, observe  # noqa: F401  for the verbs of a run, and recover
    from harness.recording import recovery, schedule_file, worker_copies  # noqa: F401

    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
        for arguments in (["report", str(whole)], ["trend", str(whole), "--output", str(whole.parent / "trend.html")]):
            run(arguments)


def wait_for_records(folder: RunFolder) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if len(folder.journals()) == 2 and all(path.stat().st_size > 20_000 for path in folder.journals()):
            return
        time.sleep(0.05)
    raise TimeoutError("the run to be cut wrote no journals")


def try_folder(number: int, whole: Path, cut: Path, mutant: Path) -> tuple[list[str], list[Outcome]]:
    """The mutations of folder ``number``, and the outcomes of the verbs on it. It is the same each time for the same runs."""
    rng = random.Random(number)
    is_whole = rng.random() < 0.7
    shutil.rmtree(mutant, ignore_errors=True)
    runs = mutant / "runs"
    shutil.copytree(whole, runs / "sound")
    shutil.copytree(whole if is_whole else cut, runs / "bad")
    mutations = [mutate(runs / "bad", rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    return mutations, list(outcomes_of(runs, is_whole=is_whole))


def outcomes_of(runs: Path, *, is_whole: bool) -> Iterator[Outcome]:
    """The verbs on ``runs/bad``, beside ``runs/sound``; those that change it come last."""
    sound, bad = str(runs / "sound"), str(runs / "bad")
    yield run_verb(["config", bad])
    yield run_verb(["compare", sound, bad, "--allow_different", "--output", str(runs / "compare.html")])
    trend = run_verb(["trend", str(runs), "--output", str(runs / "trend.html"), "--output", str(runs / "trend.json")])
    shown = runs / "trend.json"
    if trend.fault is None and not (shown.exists() and "sound" in shown.read_text(encoding="utf-8")):
        trend = Outcome("trend", trend.status, "the sound run is not shown")
    yield trend
    yield run_verb(["report", bad] if is_whole else ["recover", bad])
    if is_whole:
        yield run_verb(["recover", bad])


def run_verb(arguments: Sequence[str]) -> Outcome:
    """``bench`` with these arguments, in a process forked from this one, which has the libraries loaded."""
    receive, send = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(list(arguments), send))
    process.start()
    send.close()
    process.join(MOST_SECONDS)
    verb = arguments[0]
    if process.is_alive():
        process.kill()
        process.join()
        return Outcome(verb, -1, f"it did not end within {MOST_SECONDS} s")
    if process.exitcode or not receive.poll():
        return Outcome(verb, -1, f"it ended with exit code {process.exitcode}")
    status, err, raised, peak_bytes = receive.recv()
    return Outcome(verb, status, _fault(arguments, status, err, raised, peak_bytes))


def _child(arguments: list[str], send: multiprocessing.connection.Connection) -> None:
    from bench_cli import run

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out, err, raised, status = io.StringIO(), io.StringIO(), "", -1
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")), contextlib.redirect_stderr(err):
        try:
            status = run(arguments)
        except BaseException:
            raised = traceback.format_exc()
    del out
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    send.send((status, err.getvalue(), raised, grown))


def _fault(arguments: Sequence[str], status: int, err: str, raised: str, peak_bytes: int) -> str | None:
    if raised or "Traceback" in err:
        return raised or err
    if status not in _STATUSES:
        return f"exit status {status}: {err[:300]}"
    if peak_bytes > MOST_BYTES:
        return f"{peak_bytes / (1 << 30):.1f} GiB of memory"
    *_, last = err.splitlines() or [""]
    if status == 2 and not (last.startswith("Error: ") and "runs/bad" in last and err.count("Error: ") == 1):
        return f"stderr is not one sentence that names the file: {err[:300]!r}"
    return None


if __name__ == "__main__":
    main()
