"""The example of the Python interface: what the documentation shows is what it is and prints."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench_records.record import Outcome, Record
from reports.run_report import RunReport

_ROOT = Path(__file__).parents[3]
_EXAMPLE = _ROOT / "docs" / "examples" / "read_a_run.py"
_PAGE = _ROOT / "docs" / "how-to" / "read-a-run-in-python.md"
# Our own packages, strictly; of others' the types that a line shows alone: mypy would read 700 more files.
_MYPY = """
[mypy]
strict = true
[mypy-pandas,pandas.core,pandas.core.api,pandas.core.frame]
follow_imports = normal
[mypy-pandas.*,numpy.*,scipy.*,pyarrow.*,matplotlib.*,optype.*]
follow_imports = skip
follow_imports_for_stubs = true
"""


def _fence(language: str) -> str:
    """The only code block of a language in the guide."""
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(block)


def test_the_guide_shows_the_example() -> None:
    assert _fence("python") == _EXAMPLE.read_text(encoding="utf-8")


def test_the_example_prints_what_the_guide_shows(
    tmp_path: Path,
    make_report: Callable[..., RunReport],
    queued_run: Callable[..., list[Record]],
    failed: Callable[..., Record],
) -> None:
    before, after = queued_run(20.0, 1, 20.0), queued_run(20.0, 1, 24.0)
    before[-1] = failed(699, before[-1].scheduled_ns / 1e6, Outcome.SERVER_ERROR, sent=before[-1].scheduled_ns / 1e6)
    (tmp_path / "runs").mkdir()
    for name, records in (("before", before), ("after", after)):
        make_report(records).folder.path.rename(tmp_path / "runs" / name)
    done = subprocess.run([sys.executable, _EXAMPLE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == _fence("text")


def test_the_types_reach_a_program_outside_the_repository(tmp_path: Path) -> None:
    """Strictly checked by mypy, which sees the packages as installed; two of its lines are wrong."""
    pytest.importorskip("mypy")  # the environment of `make test-numpy2` has none
    lines = [
        "from reports import open_run",
        "from reports.compare import compare",
        'run = open_run("runs/before")',
        "reveal_type(run.requests)",
        "reveal_type(run.summary.e2e_ms.scheduled)",
        "reveal_type(compare(run, run).verdict)",
        "run.request",
        "compare(run)",
    ]
    (tmp_path / "program.py").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(_MYPY, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line.split(":", 1)[1].split("  [")[0] for line in done.stdout.splitlines()] == [
        '4: note: Revealed type is "pandas.core.frame.DataFrame"',
        '5: note: Revealed type is "reports.statistics.percentiles.Distribution | None"',
        '6: note: Revealed type is "str"',
        '7: error: "Run" has no attribute "request"; maybe "requests"?',
        '8: error: Missing positional argument "b" in call to "compare"',
    ]
