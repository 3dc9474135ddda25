"""Files that others made are read up to a number of bytes, and not at all if they are longer."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from bench_records.regular_file import read_bounded


def _file(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _pipe(path: Path, content: bytes) -> None:
    os.mkfifo(path)
    Thread(target=path.write_bytes, args=(content,)).start()


@pytest.mark.parametrize("make", [_file, _pipe])
def test_as_many_bytes_as_allowed_are_read_and_more_are_refused(tmp_path: Path, make: Callable[[Path, bytes], None]) -> None:
    make(tmp_path / "whole", b"12345")
    assert read_bounded(tmp_path / "whole", 5) == b"12345"
    make(tmp_path / "longer", b"123456")
    with pytest.raises(ValueError, match="longer than 5 bytes"):
        read_bounded(tmp_path / "longer", 5)


def test_a_file_that_is_known_to_be_longer_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)  # more than there is memory for
    with pytest.raises(ValueError, match="longer than"):
        read_bounded(tmp_path / "sparse", (1 << 40) - 1)
