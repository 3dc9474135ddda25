"""A result as files, each of a format. Apart from what it writes, so that the command line imports no renderer at its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from bench_records.whole_file import written_whole

Result = TypeVar("Result")
Writers = Mapping[str, Callable[[Result, Path], None]]
"""The functions that write a result, by the suffix of the file; each may raise OSError."""


def write_formats(result: Result, page: Path, writers: Writers[Result]) -> Path:
    """Write ``result`` in every format, each file whole, beside ``page`` and named as it is; returns ``page``."""
    for suffix, write in writers.items():
        with written_whole(page.with_suffix(suffix)) as temporary:
            write(result, temporary)
    return page
