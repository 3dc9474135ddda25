"""The tree of errors in ``bench_errors`` is complete, and each exit status in it is the class's own."""

from __future__ import annotations

import importlib
import pkgutil
import re

import bench_cli
import bench_errors
import harness
import reports
import serving
import simulator
import workloads
from bench_errors import BenchError

# Models run in Triton, which turns their errors into responses. The import of Locust would replace the blocking calls of this
# process, too.
_OUTSIDE_BENCH = re.compile(r"serving\.models\.|distribution\.locust_|\.__main__$|event_reader$|message_reader$")


def _all_errors() -> dict[str, type[BenchError]]:
    for package in (workloads, harness, serving, reports, simulator, bench_cli):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not _OUTSIDE_BENCH.search(module.name):
                importlib.import_module(module.name)
    found: dict[str, type[BenchError]] = {}
    waiting = list(BenchError.__subclasses__())
    while waiting:
        error = waiting.pop()
        if not _OUTSIDE_BENCH.search(error.__module__):
            found[error.__name__] = error
        waiting += error.__subclasses__()
    return found


def test_the_tree_lists_every_error_with_its_exit_status() -> None:
    assert bench_errors.__doc__ is not None
    listed = {name: int(status) for name, status in re.findall(r"(\w+Error)\s+(\d)", bench_errors.__doc__)}
    errors = _all_errors()
    assert len(errors) > 15
    assert listed == {name: int(error.exit_status) for name, error in errors.items()} | {"BenchError": 1}
