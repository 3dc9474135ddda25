"""Excerpts of a server's log for a terminal, bounded in lines and in their length."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_TAIL_LINES = 12
_ERRORS = 5
_CRASHES = 3
_CRASH = re.compile(r"Signal \(\d+\) received|terminate called|\s+what\(\):|free\(\): |malloc\(\): |double free")
_LOGGED_ERROR = re.compile(r"E\d{4} ")  # Triton's severity letter and the date
_LONGEST_LINE = 400  # characters
_NEAR_END_BYTES = 65536  # a verbose log has gigabytes


def last_lines(log: Path, start: int, count: int) -> list[str]:
    """The last ``count`` lines after byte ``start``; none where the file cannot be read."""
    try:
        near_end = log.stat().st_size - _NEAR_END_BYTES
    except OSError:
        return []
    return list(deque(_lines(log, max(start, near_end)), maxlen=count))


def explain_end(log: Path, start: int) -> str:
    """The path of ``log``, and of it after byte ``start``: how the server crashed, its first errors, and its last lines."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    errors: list[str] = []
    crash: list[str] = []
    for line in _lines(log, start):
        if len(crash) < _CRASHES and _CRASH.match(line):
            crash.append(line)
        if len(tail) == _TAIL_LINES and len(errors) < _ERRORS and _LOGGED_ERROR.match(tail[0]):
            errors.append(tail[0])  # it leaves the last lines
        tail.append(line)
    first_errors = ["First errors:", *errors, "…"] if errors else []
    crashed = ["It crashed:", *crash] if crash else []
    return "\n".join([f"See its log, {log}.", *crashed, *first_errors, "Last lines:", *tail])


def _lines(log: Path, start: int) -> Iterator[str]:
    """Lines without their ends, cut at _LONGEST_LINE, blank ones left out. A character that steers a terminal is replaced."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            file.seek(start)
            for line in filter(str.strip, file):
                text = line.rstrip("\n")[:_LONGEST_LINE]
                yield text if text.isprintable() else "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text)
    except OSError:
        return
