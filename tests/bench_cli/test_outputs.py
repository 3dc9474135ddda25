"""The files of --output, where they cannot be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import click
import pytest

from bench_cli.outputs import write_outputs


def test_a_full_disk_is_reported_with_the_option_and_the_file(tmp_path: Path) -> None:
    def write(result: str, path: Path) -> None:
        path.write_text(result)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(click.ClickException) as error:
        write_outputs("result", [tmp_path / "c.html"], {".html": write})
    assert error.value.message == f"--output {tmp_path}/c.html cannot be written: No space left on device"
    assert not list(tmp_path.iterdir())
