"""What the libraries log, in few short lines: a hostile client could fill the disk with it."""

from __future__ import annotations

import logging

_MOST_LINES = 100
_LINE_CHARACTERS = 300


class ShortLog(logging.Handler):
    """Prints the first lines, each cut, without tracebacks and with the type of an exception."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._lines += 1
        if self._lines > _MOST_LINES:
            return
        kind = record.exc_info[0] if record.exc_info else None
        text = record.getMessage() if kind is None else f"{record.getMessage()}: {kind.__name__}"
        line = "".join(character if character.isprintable() else " " for character in text[:_LINE_CHARACTERS])
        print(f"proxy: {line}", flush=True)  # noqa: T201  to the log
        if self._lines == _MOST_LINES:
            print("proxy: more is not logged", flush=True)  # noqa: T201
