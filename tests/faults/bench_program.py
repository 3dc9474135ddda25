"""The command as a process of its own, that a test can disturb; and what must be true of the folder that it leaves."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench_cli import run
from bench_records.record import Outcome
from bench_records.run_folder import RunFolder
from harness.journal.worker_journal import JournalReader
from tests.harness.scripted_server import ScriptedServer
from tests.processes import words_of

BENCH = str(Path(sys.executable).parent / "bench")
LENGTHS = ["--input_mean", "4", "--input_stdev", "1", "--output_mean", "5", "--output_stdev", "0", "--vocab_size", "100"]
_MARK = "BENCH_TEST_MARK"


@dataclass(frozen=True)
class Program:
    """``bench`` at work. ``mark`` is in the environment of all its processes."""

    process: subprocess.Popen[str]
    folder: Path
    mark: str

    def end(self, timeout_s: float = 120.0) -> tuple[int, str, str]:
        """Exit status, standard output and standard error, when it has ended, and nothing of it is left; no traceback."""
        out, err = self.process.communicate(timeout=timeout_s)
        assert "Traceback" not in out + err, out + err
        wait_until(lambda: not processes_with(self.mark))
        return self.process.returncode, out, err

    def journals(self) -> list[JournalReader]:
        return [JournalReader(path) for path in RunFolder(self.folder).journals()]

    def exchanges(self) -> int:
        """The exchanges that are written down."""
        return sum(1 for journal in self.journals() for _ in journal.read_new())

    def wait_for_exchanges(self, count: int) -> None:
        """Return when this many exchanges were written down."""
        wait_until(lambda: self.exchanges() >= count, process=self.process)

    def wait_for_start(self, workers: int = 1) -> None:
        """Return when every worker has begun its journal, which it does just before the clock starts."""
        wait_until(lambda: len(self.journals()) == workers, process=self.process)

    def workers(self) -> list[psutil.Process]:
        """The worker processes, in the order of their start."""
        children = psutil.Process(self.process.pid).children()
        return sorted((child for child in children if "spawn_main" in " ".join(words_of(child))), key=lambda child: child.pid)


@contextmanager
def bench(folder: Path, *arguments: str, program: list[str] | None = None) -> Iterator[Program]:
    """Start ``bench ARGUMENTS --run_dir FOLDER`` (or another program with these arguments); what is left of it is killed."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [*(program or [BENCH]), *arguments, "--run_dir", str(folder)],
        cwd=folder.parent,
        env=os.environ | {_MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Program(process, folder, mark)
    finally:
        for left in processes_with(mark):
            left.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def token_norm_dist(server: ScriptedServer | str, model: str, requests: int, *options: str) -> list[str]:
    """A measurement of ``requests`` requests of 5 tokens, without warm-up: each id reaches the server once or never."""
    address = server if isinstance(server, str) else server.address
    target = ["--url", address, "--model", model, "--num_requests", str(requests), "--warmup_requests", "0"]
    return ["token_norm_dist", *LENGTHS, *target, *options]


@dataclass(frozen=True)
class Ran:
    """The exit status and the output of a command."""

    returncode: int
    stdout: str
    stderr: str


def run_bench(*arguments: str) -> Ran:
    """Run the command to its end, in this process: what it imports, it imports once."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(list(arguments))
    return Ran(status, out.getvalue(), err.getvalue())


def processes_with(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_until(condition: Callable[[], bool], timeout_s: float = 120.0, process: subprocess.Popen[str] | None = None) -> None:
    """Return when ``condition`` holds; fails after ``timeout_s``, or when ``process`` has ended without it."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


def check_whole(folder: Path, requests: int, server: ScriptedServer | None = None) -> Counter[str]:
    """Every request of the schedule has exactly one record, and all sums agree; returns the outcomes.

    With ``server``: every request that is recorded as done reached it, and none was sent twice.
    """
    left = RunFolder(folder)
    assert left.read_document()[0]["state"] == "done"
    rows = left.read_requests().to_pylist()
    assert [row["index"] for row in rows] == list(range(requests))
    outcomes = Counter(row["outcome"] for row in rows)
    assert set(outcomes) <= set(Outcome)
    for row in rows:
        _check_row(row)
    summary = json.loads(left.summary.read_text())
    by_kind = {kind: count for kind, count in outcomes.items() if kind not in ("done", "not_sent")}
    expected = {
        "scheduled": requests,
        "done": outcomes["done"],
        "failed": sum(by_kind.values()),
        "not_sent": outcomes["not_sent"],
        "by_kind": by_kind,
    }
    assert {key: summary["requests"][key] for key in expected} == expected
    assert not list(folder.glob("*.bin"))
    assert not list(folder.glob("*.tmp"))
    if server is not None:
        received = Counter(map(int, server.received()))
        assert set(received.values()) <= {1}
        assert {row["index"] for row in rows if row["outcome"] == "done"} <= set(received)
    return outcomes


def _check_row(row: dict[str, Any]) -> None:
    assert (row["error"] is None) == (row["outcome"] == "done"), row
    if row["outcome"] == "not_sent":
        assert row["sent_ns"] is None, row
    if row["outcome"] not in ("not_sent", "lost"):
        assert row["scheduled_ns"] <= row["sent_ns"] <= row["done_ns"], row
    if row["outcome"] == "done":
        assert row["output_tokens"] == sum(row["token_counts"]), row
    assert len(row["token_times_ns"]) == len(row["token_counts"] or row["token_times_ns"]), row
