"""Files that appear whole or not at all, whatever interrupts their writing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
