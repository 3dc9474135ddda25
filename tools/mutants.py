"""``make mutants``: changes the code in one place at a time, and finds the changes that no test notices.

mutmut makes the mutants and records which tests reach which function; `tools.mutant_trials` tries them, in several processes.
What mutmut itself shows (``mutmut results``, ``mutmut show NAME``) follows from the same files.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from reports.statistics.percentiles import share_limits
from tools.mutant_trials import Outcome, Trial, function_of

_ROOT = Path(__file__).parents[1]
_MUTANTS = _ROOT / "mutants"
_STATISTICS = _MUTANTS / "mutmut-stats.json"


def main() -> None:
    arguments = _parser().parse_args()
    _make_mutants(arguments.processes)
    files = {path: json.loads(path.read_text()) for path in sorted(_MUTANTS.rglob("*.meta"))}
    names = sorted(name for file in files.values() for name in file["exit_code_by_key"])
    if arguments.patterns:
        names = [name for name in names if any(fnmatchcase(name, pattern) for pattern in arguments.patterns)]
    if arguments.sample is not None and arguments.sample < len(names):
        names = sorted(random.Random(arguments.seed).sample(names, arguments.sample))
    if not names:
        sys.exit("no mutant has such a name; write, for example, 'reports.metrics.goodput.*'")
    print(f"trying {len(names):,} mutants in {arguments.processes} processes", flush=True)
    trials = _tried(names, arguments.processes)
    for path, file in files.items():
        file["exit_code_by_key"] |= {t.name: t.outcome.mutmut_code for t in trials if t.name in file["exit_code_by_key"]}
        path.write_text(json.dumps(file, indent=4))
    _print(trials)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools.mutants", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="of mutants' names, as reports.metrics.goodput.*; all unless given")
    parser.add_argument("--sample", type=int, metavar="N", help="try N of them, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser


def _make_mutants(processes: int) -> None:
    """Has mutmut make the mutants and record which tests reach them. It tries none, for want of one with that name."""
    print("making mutants, and recording which tests reach them: 3 minutes, less if little has changed", flush=True)
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(processes), "none"]
    ran = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if "nothing matches" not in ran.stderr:
        sys.exit(f"{ran.stdout}\n{ran.stderr}\nmutmut made no mutants")


def _tried(names: Sequence[str], processes: int) -> list[Trial]:
    with tempfile.TemporaryDirectory() as folder:
        shards = [Path(folder, str(number)) for number in range(processes)]
        for shard, chosen in zip(shards, sharded(names, processes), strict=True):
            shard.with_suffix(".txt").write_text("\n".join(chosen))
        workers = [_started(shard) for shard in shards]
        for shard, worker in zip(shards, workers, strict=True):
            if worker.wait():
                sys.exit(f"{shard.with_suffix('.log').read_text()}\na process ended early")
        return [Trial.of(line) for shard in shards for line in shard.with_suffix(".jsonl").read_text().splitlines()]


def _started(shard: Path) -> subprocess.Popen[bytes]:
    module: tuple[str | Path, ...] = (sys.executable, "-m", "tools.mutant_trials")
    files = (_STATISTICS, shard.with_suffix(".txt"), shard.with_suffix(".jsonl"))
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "OPENBLAS_NUM_THREADS": "1"}
    with shard.with_suffix(".log").open("wb") as log:
        return subprocess.Popen([*module, *files, *_tests()], cwd=_MUTANTS, env=environment, stdout=log, stderr=log)


def sharded(names: Sequence[str], shards: int) -> list[list[str]]:
    """Sorted ``names`` in as many lists of about the same length. The mutants of a function are in one list: the tests that
    kill one kill the next.
    """
    lists: list[list[str]] = [[] for _ in range(shards)]
    for _, of_function in itertools.groupby(names, function_of):
        min(lists, key=len).extend(of_function)
    return lists


def _tests() -> list[str]:
    """The arguments of pytest that mutmut runs the tests with, too."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    return [*settings["pytest_add_cli_args"], *settings["pytest_add_cli_args_test_selection"]]


def _print(trials: Sequence[Trial]) -> None:
    for trial in trials:
        if trial.outcome in (Outcome.SURVIVED, Outcome.NOT_REACHED):
            print(f"{trial.name}: {trial.outcome}")
    counts = Counter(trial.outcome for trial in trials)
    killed, tried = counts[Outcome.KILLED] + counts[Outcome.TIMED_OUT], len(trials)
    low, high = share_limits(killed / tried, tried)
    print(f"killed {killed:,} of {tried:,}, {killed / tried:.1%} (95 %: {low:.1%} to {high:.1%})")
    print("; ".join(f"{outcome}: {counts[outcome]:,}" for outcome in Outcome))


if __name__ == "__main__":
    main()
