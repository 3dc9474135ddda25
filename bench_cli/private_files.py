"""The modes of the files that bench makes: the user's alone, unless they are to be shared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path


@contextmanager
def private_files(shared: bool = False) -> Iterator[None]:
    """Files that are made meanwhile, by this process and those that it starts, are the user's alone unless ``shared``."""
    before = os.umask(0o077)
    if shared:
        os.umask(before)
    try:
        yield
    finally:
        os.umask(before)


def files_as_private_as(folder: Path) -> AbstractContextManager[None]:
    """Files that are made meanwhile are the user's alone where ``folder`` is."""
    return private_files(shared=folder.stat().st_mode & 0o077 != 0)
