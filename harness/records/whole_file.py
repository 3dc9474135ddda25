"""Files that appear whole or not at all, whatever interrupts their writing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a name to write to; when the block is left it becomes ``path``, after an error it is gone.

    The content is on the disk before the name is: what is given up afterwards (a journal) is not needed any more.
    Raises OSError.
    """
    temporary = path.with_suffix(".tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)  # half a file would keep a full disk full
        raise


def write_json(document: Mapping[str, Any], path: Path) -> None:
    """Write ``document`` to ``path``, for people and programs, whole or not at all. Raises OSError.

    A command line may hold bytes that are no text: Python has a lone surrogate for each, JSON writes that as an escape.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    with written_whole(path) as temporary:
        temporary.write_bytes(text.encode("utf-8", "backslashreplace"))
