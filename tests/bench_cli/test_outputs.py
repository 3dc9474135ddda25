"""The files of --output, where they cannot be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click
import pytest

from bench_cli.outputs import write_outputs
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
