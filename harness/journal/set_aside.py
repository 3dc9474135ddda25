"""Files that are in the way of a new run: renamed, never deleted, truncated or continued."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path


def set_aside(path: Path, note: Callable[[str], object]) -> None:
    """Rename what is at ``path``, a file or a folder, to ``<name>.aside-<number>``, and call ``note`` with a sentence that says
    so. Raises OSError.
    """
    if not os.path.lexists(path):
        return
    kept = next(one for number in count(1) if not os.path.lexists(one := path.with_name(f"{path.name}.aside-{number}")))
    path.rename(kept)
    note(f"{path} of an earlier run was in the way: it is kept as {kept.name} beside it.")
