"""The processes of runs end with the experiment or the search that they belong to."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench_errors import ExitStatus

_EXPERIMENT = """
import sys
from bench_cli import run
from bench_cli.experiments import child_runs
child_runs._command = lambda arguments, path: ["sh", "-c", sys.argv[1]]
arms = ["--repeats", "1", "--arm", "a=", "--arm", "b=--workers 2"]
sys.exit(run(["experiment", "--experiment_dir", "e", *arms, "token_norm_dist", "--url", "localhost:8001"]))
"""


@contextmanager
def _experiment(folder: Path, run: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """An experiment, as in a terminal of its own, whose runs are this shell command, and the process id of the first run."""
    command = [sys.executable, "-c", _EXPERIMENT, f"{run} echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.05; done"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True) as experiment:
        until = time.monotonic() + 100.0
        while not (folder / "pid").exists():
            assert experiment.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        yield experiment, int((folder / "pid").read_text())


def _has_ended(pidfd: int) -> bool:
    readable, _, _ = select.select([pidfd], [], [], 30.0)
    os.close(pidfd)
    return bool(readable)


def test_a_run_ends_with_an_experiment_that_is_killed(tmp_path: Path) -> None:
    with _experiment(tmp_path, "") as (experiment, pid):
        run = os.pidfd_open(pid)
        experiment.kill()
    assert _has_ended(run)


@pytest.mark.parametrize("by", ["Ctrl-C at a terminal", "a scheduler of jobs"])
def test_a_run_is_stopped_once_and_has_the_time_to_save(by: str, tmp_path: Path) -> None:
    with _experiment(tmp_path, "trap 'echo stopped >> stopped; sleep 1; echo saved > saved; exit 130' INT;") as (experiment, _):
        if by == "a scheduler of jobs":
            experiment.terminate()  # which comes to it alone
        else:
            os.killpg(experiment.pid, signal.SIGINT)
        _, said = experiment.communicate(timeout=120)
    assert experiment.returncode == ExitStatus.INTERRUPTED
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "stopped").read_text() == "stopped\n"
    assert "Stopped; recorded: 0 of 2 runs. To go on, give the same command with --experiment_dir e" in said


_INTERRUPTED_AT_START = """
import os, signal, subprocess
from pathlib import Path
from bench_cli.experiments import child_runs
from bench_cli.signals import signals_as_interrupt

class Interrupted(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        while not Path("ready").exists():
            pass
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # in which Python raises what has come
            pass

subprocess.Popen = Interrupted
run = "trap 'echo saved > saved; exit 130' INT; echo > ready; while :; do sleep 0.05; done"
child_runs._command = lambda arguments, path: ["sh", "-c", run]
try:
    with signals_as_interrupt():  # as the commands do; else a shell's & would have it ignored
        child_runs.make_run((), Path("run"), Path("log"))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_run_that_is_interrupted_while_it_starts_saves_too(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _INTERRUPTED_AT_START]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout) == (0, "interrupted\n"), ended.stderr
    assert (tmp_path / "saved").exists()


def test_a_run_whose_search_ended_before_it_could_follow_it_does_not_start() -> None:
    child = "import os; from bench_cli.experiments.child_runs import _end_with; _end_with(os.getppid() + 1); print('load')"
    ended = subprocess.run([sys.executable, "-c", child], stdout=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")


_DRAWN_BEFORE = """
import os, sys
from pathlib import Path
from bench_cli.experiments import child_runs
from bench_cli.tokenizers import shipped_tokenizer
child_runs._command = lambda arguments, path: ["sh", "-c", 'echo "run $TOKENIZERS_PARALLELISM" >&2']
shipped_tokenizer().encode_many(["one text", "another"] * 50)
assert child_runs.make_run((), Path("run"), Path("log")) == 0
assert child_runs.make_quiet_run((), Path("run"), Path("log"), {}) == (0, f"run {sys.argv[1]}".strip())
assert os.environ.get("TOKENIZERS_PARALLELISM", "") == sys.argv[1]
"""


@pytest.mark.parametrize("given", [None, "true"])
def test_a_run_starts_without_a_warning_of_tokenizers_and_with_the_user_s_own_setting(
    given: str | None, tmp_path: Path
) -> None:
    own = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    environment = {**own, "RAYON_NUM_THREADS": "2", **({} if given is None else {"TOKENIZERS_PARALLELISM": given})}
    command = [sys.executable, "-c", _DRAWN_BEFORE, given or ""]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", f"run {given or ''}\n")
