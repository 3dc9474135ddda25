"""Files that options name, where they cannot be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click
import pytest

from bench_cli import run
from bench_cli.outputs import write_outputs
from bench_errors import ExitStatus
from reports.capacity.formats import CAPACITY
from reports.capacity.result import Capacity
from tests.reports.capacity.searches import capacity


def test_a_full_disk_is_reported_with_the_option_and_the_file(tmp_path: Path) -> None:
    def rows(found: Capacity) -> Iterator[Sequence[object]]:
        yield [found.measured]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(click.ClickException) as error:
        write_outputs(capacity(), [tmp_path / "c.csv"], replace(CAPACITY, rows=rows))
    assert error.value.message == f"--output {tmp_path}/c.csv cannot be written: No space left on device"
    assert not list(tmp_path.iterdir())


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:00:00,1,1\n" * 3)
    return path


_WRITES = pytest.mark.parametrize(
    ("verb", "option", "name"),
    [
        (["show"], "--html", "page.html"),
        (["import"], "--output", "w.parquet"),
        (["synthesize"], "--output", "w.parquet"),
        (["write", "--format", "azure"], "-o", "trace.csv"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)


@_WRITES
def test_a_file_in_no_folder_is_refused_before_the_workload_is_read(
    trace: Path, capsys: pytest.CaptureFixture[str], verb: list[str], option: str, name: str
) -> None:
    path = trace.parent / "nowhere" / name
    assert run(["workload", *verb, str(trace), option, str(path)]) == ExitStatus.USAGE
    printed = capsys.readouterr()
    assert f"Invalid value for {option}: {path}: there is no folder {path.parent}" in " ".join(printed.err.split())
    assert printed.out == ""


@_WRITES
def test_a_file_that_cannot_be_written_is_named_with_its_option(
    trace: Path, capsys: pytest.CaptureFixture[str], verb: list[str], option: str, name: str
) -> None:
    path = trace.parent / ("a" * 300 + name)
    assert run(["workload", *verb, str(trace), option, str(path)]) == ExitStatus.FAILED
    assert f"{option} {path} cannot be written: File name too long" in capsys.readouterr().err
