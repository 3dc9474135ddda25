"""Atomic writing of files: a file appears whole or not at all, whatever interrupts its writing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to. When the block is left it is renamed to ``path``; after an error it is deleted.

    The content is synced to the disk before the rename, so a journal with the same content may be deleted afterwards.
    Raises OSError.
    """
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)  # of an earlier attempt; a link there would be written through, a FIFO waited for
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)  # half a file would fill a disk that is full already
        raise


def write_json(document: Mapping[str, Any], path: Path) -> None:
    """Write ``document`` to ``path`` as indented JSON, whole or not at all. Raises OSError.

    A command line may contain bytes that are not text: Python holds a lone surrogate for each, and JSON gets an escape.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    with written_whole(path) as temporary:
        temporary.write_bytes(text.encode("utf-8", "backslashreplace"))
