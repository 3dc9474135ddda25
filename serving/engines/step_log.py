"""The log of an engine's steps: a CSV file with a row for each step, which survives the end of its process at any time.

A line of JSON after ``#`` comes first, ``HEAD_KEY`` with the version of the format among its keys; then the names of the
columns, then the rows. An empty cell is unknown. Each start of an engine appends a head and its rows. Rows are written in
batches, at least once a second and whenever the engine becomes idle. Times are ns of the monotonic clock of the engine's host.
docs/reference/step-log.md has the columns.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from pathlib import Path

from serving.errors import StepLogError

HEAD_KEY, VERSION = "step_log", 1
COLUMNS = (
    "start_ns",
    "duration_ns",
    "kind",
    "sequences",
    "waiting",
    "prefill_tokens",
    "decode_tokens",
    "first_tokens",
    "context_tokens",
    "kv_blocks",
)
CUT = ",cut"
_BATCH_ROWS = 512
_BATCH_NS = 1_000_000_000
_HEAD_START = b'#{"' + HEAD_KEY.encode()
_LOG = logging.getLogger(__name__)

Cell = int | str | None


def check_step_log(path: Path) -> None:
    """Raise StepLogError, naming the option, where no log can be written to ``path``, also since another engine writes to it.
    Creates the file where there is none.
    """
    os.close(_open(path))


class StepLog:
    """The log of one engine. A failure to write ends the log, with a line in the process's own log, and not the engine."""

    def __init__(self, path: Path, about: dict[str, int | str]) -> None:
        """Append a head with the facts ``about`` the engine. Raises StepLogError where the file cannot be written, or is
        another engine's or no step log.
        """
        self._path = path
        self._file: int | None = _open(path)
        _drop_cut_beginning(self._file)
        offset_ns = time.time_ns() - time.monotonic_ns()
        head = {HEAD_KEY: VERSION, "clock": "CLOCK_MONOTONIC", "realtime_minus_monotonic_ns": offset_ns, **about}
        self._rows = [*_end_of_cut_line(path), "#" + json.dumps(head), ",".join(COLUMNS)]
        self._due_ns = 0
        self.flush()

    def add(self, row: tuple[Cell, ...]) -> None:
        """A row with a cell for each of COLUMNS, the first two of which are the start and the duration; None is unknown."""
        self._rows.append(",".join(["" if cell is None else str(cell) for cell in row]))
        if len(self._rows) >= _BATCH_ROWS or time.monotonic_ns() >= self._due_ns:
            self.flush()

    def flush(self) -> None:
        """Write what was added since the last time."""
        self._due_ns = time.monotonic_ns() + _BATCH_NS
        if self._file is None or not self._rows:
            return
        text = "\n".join([*self._rows, ""]).encode()
        self._rows.clear()
        try:
            while text:
                text = text[os.write(self._file, text) :]
        except OSError as error:
            _LOG.error("--step_log %s: %s; the engine goes on without its step log", self._path, error.strerror)
            self.close()

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _open(path: Path) -> int:
    """A descriptor that appends to ``path``, and keeps other engines from it until it is closed. Raises StepLogError."""
    try:
        if path.exists() and not path.is_file():
            raise StepLogError(f"--step_log {path}: it is not a regular file; name another file")
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StepLogError(f"--step_log {path}: it cannot be written ({error.strerror}); name another file") from error
    start = os.pread(descriptor, len(_HEAD_START), 0)
    if start != _HEAD_START and not _is_cut_beginning(descriptor, start):
        os.close(descriptor)
        raise StepLogError(f"--step_log {path}: the file is no step log; name another file")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StepLogError(f"--step_log {path}: another engine writes to it; name another file") from error
    return descriptor


def _is_cut_beginning(descriptor: int, start: bytes) -> bool:
    """Whether the file is empty, or has the ``start`` of a log alone: a disk may be full after some bytes of the first head."""
    return _HEAD_START.startswith(start) and os.fstat(descriptor).st_size == len(start)


def _drop_cut_beginning(descriptor: int) -> None:
    """Empty a file that has too little of the first head to be known as a step log."""
    if os.fstat(descriptor).st_size < len(_HEAD_START):
        os.ftruncate(descriptor, 0)


def _end_of_cut_line(path: Path) -> tuple[str, ...]:
    """The end of the last line of an engine that was killed while it wrote: a mark that it is not whole."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return () if file.read(1) in (b"", b"\n") else (CUT,)
