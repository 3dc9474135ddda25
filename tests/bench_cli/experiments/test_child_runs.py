"""The processes of runs that belong to a search."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from functools import partial

from bench_cli.experiments.child_runs import _end_with

_STARTS_A_RUN = """
import os, subprocess, sys
from functools import partial
from bench_cli.experiments.child_runs import _end_with
run = subprocess.Popen(["sleep", "60"], preexec_fn=partial(_end_with, os.getpid()))
print(run.pid, flush=True)
run.wait()
"""


def test_a_run_ends_with_its_search() -> None:
    with subprocess.Popen([sys.executable, "-c", _STARTS_A_RUN], stdout=subprocess.PIPE, text=True) as search:
        assert search.stdout is not None
        run = os.pidfd_open(int(search.stdout.readline()))
        search.kill()
    readable, _, _ = select.select([run], [], [], 10.0)
    os.close(run)
    assert readable, "it runs on"


def test_a_run_whose_search_ended_before_it_could_follow_it_does_not_start() -> None:
    another = partial(_end_with, os.getpid() + 1)
    ended = subprocess.run(["echo", "load"], stdout=subprocess.PIPE, preexec_fn=another, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")
