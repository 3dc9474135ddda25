"""Numbers, findings and reports of recorded runs. For programs and notebooks: ``from reports import open_run``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports.run_data.run import Run

__all__ = ["open_run"]


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open the folder of a finished run, as ``reports.run_data.run.open_run``; imported here when it is called.

    Raises RunFolderError where ``path`` is no run, or the run has not ended.
    """
    from reports.run_data import run

    return run.open_run(path)
