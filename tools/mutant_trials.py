"""Tries mutants, each in a fork of one process that has collected all tests; `tools.mutants` starts it in ``mutants/``.

A mutant takes the time of the tests that notice it: 0.06 s in the middle, where a pytest of its own takes 0.5 s. First come the
tests that killed the last mutants of the function, then those of the module's own file, then the others from the quickest on.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import Phase, settings

_PROFILE = "mutants"
_LONGEST_S = 20.0  # and 12 times what the tests took without a mutant
_KILLERS = 6  # of a function, remembered
_LOADED_LATE = (
    "scipy.stats",
    "scipy.optimize",
    "scipy.signal",
    "scipy.special",
    "pyarrow.parquet",
    "tokenizers",
    "transformers",
)
"""What the product imports in functions. Imported before the forks, it is not imported in each."""


class Outcome(StrEnum):
    """How the trial of a mutant ended."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    NOT_REACHED = "no test reaches it"

    @property
    def mutmut_code(self) -> int:
        """The exit code by which mutmut notes it."""
        return {Outcome.KILLED: 1, Outcome.TIMED_OUT: 36, Outcome.SURVIVED: 0, Outcome.NOT_REACHED: 33}[self]


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutant, how its trial ended, and the test that failed ("" if none did)."""

    name: str
    outcome: Outcome
    test: str

    @classmethod
    def of(cls, line: str) -> Trial:
        name, outcome, test = json.loads(line)
        return cls(name, Outcome(outcome), test)

    @property
    def line(self) -> str:
        return json.dumps([self.name, self.outcome, self.test])


def function_of(mutant: str) -> str:
    """The function that a mutant changes, by mutmut's name for it: "reports.criteria.x_parse_limit"."""
    return mutant.rpartition("__mutmut_")[0]


def in_order(tests: Collection[str], function: str, killers: Sequence[str], durations_s: Mapping[str, float]) -> list[str]:
    """``tests``, those first that probably notice a change of ``function``."""
    *folders, module = function.rpartition(".")[0].split(".")
    own = f"tests/{'/'.join(folders)}/test_{module.strip('_')}"
    return sorted(tests, key=lambda test: (test not in killers, not test.startswith(own), durations_s[test]))


@dataclass(slots=True)
class _Trials:
    """The plugin that runs mutants' tests in place of the tests."""

    statistics: Path
    mutants: Path
    results: Path
    killers: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("tests could not be collected")
        recorded = json.loads(self.statistics.read_text())
        durations_s = recorded["duration_by_test"]
        items = {item.nodeid: item for item in session.items}
        for module in _LOADED_LATE:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()  # a fork copies no page because its garbage was looked for
        with self.results.open("a", buffering=1) as results:
            for mutant in self.mutants.read_text().split():
                function = function_of(mutant)
                tests = recorded["tests_by_mangled_function_name"].get(function, ())
                ordered = in_order([t for t in tests if t in items], function, self.killers[function], durations_s)
                trial = self._tried(mutant, [items[t] for t in ordered], sum(durations_s[t] for t in ordered))
                results.write(f"{trial.line}\n")
        return True

    def _tried(self, mutant: str, tests: Sequence[pytest.Item], expected_s: float) -> Trial:
        if not tests:
            return Trial(mutant, Outcome.NOT_REACHED, "")
        reader, writer = os.pipe()
        folders = tests[0].session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        child = os.fork()
        if child == 0:
            os.close(reader)
            _try(mutant, tests, folders / f"fork{os.getpid()}", writer)
        os.close(writer)
        ended = _wait(child, _LONGEST_S + 12.0 * expected_s)
        with os.fdopen(reader) as pipe:
            failed = pipe.read()
        shutil.rmtree(folders / f"fork{child}", ignore_errors=True)
        if ended is None:
            return Trial(mutant, Outcome.TIMED_OUT, "")
        if ended == 0:
            return Trial(mutant, Outcome.SURVIVED, "")
        function = function_of(mutant)
        self.killers[function] = [failed, *(test for test in self.killers[function] if test != failed)][:_KILLERS]
        return Trial(mutant, Outcome.KILLED, failed)


def _try(mutant: str, tests: Sequence[pytest.Item], folder: Path, writer: int) -> None:
    """Runs ``tests`` on ``mutant`` up to the first failure, writes its name, and ends the process."""
    try:
        os.setpgid(0, 0)  # what the tests start ends with them
        folder.mkdir()
        tests[0].session.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        os.environ["MUTANT_UNDER_TEST"] = mutant
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
            if test.session.testsfailed:
                os.write(writer, test.nodeid.encode())
                os._exit(1)
        os._exit(0)
    except BaseException:
        os._exit(2)


def _wait(child: int, longest_s: float) -> int | None:
    """The exit code of ``child``, or None if it took more than ``longest_s`` and was killed. Its own processes end with it."""
    descriptor = os.pidfd_open(child)
    ready, _, _ = select.select([descriptor], [], [], longest_s)
    os.close(descriptor)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:  # it is not yet in a group of its own
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ready else None


def main() -> None:
    statistics, mutants, results, *arguments = sys.argv[1:]
    os.environ["MUTANT_UNDER_TEST"] = ""
    # A failure is not shrunk: that it fails is enough.
    settings.register_profile(
        _PROFILE, derandomize=True, max_examples=50, deadline=None, database=None, phases=[Phase.explicit, Phase.generate]
    )
    arguments = [a for a in arguments if not a.startswith("--hypothesis-profile")]
    # A native traceback: pytest's own reads the source, and mutants' sources are long.
    ours = ["--tb=native", "-q", "--rootdir=.", "-p", "no:xdist", f"--hypothesis-profile={_PROFILE}"]
    sys.path.insert(0, ".")
    sys.exit(pytest.main([*ours, *arguments], plugins=[_Trials(Path(statistics), Path(mutants), Path(results))]))


if __name__ == "__main__":
    main()
