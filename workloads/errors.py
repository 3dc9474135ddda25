"""What can be wrong with a workload.

WorkloadError
└── DatasetError        a dataset file: names the file, and the line or row
"""

from __future__ import annotations

from pathlib import Path


class WorkloadError(Exception):
    """A workload cannot be made as asked; the text is fit to be shown to a user."""


class DatasetError(WorkloadError):
    """A dataset file cannot be used; the text names the file, where in it, and what was expected."""

    def __init__(self, path: Path, problem: str, where: str | None = None) -> None:
        super().__init__(f"{path}, {where}: {problem}" if where else f"{path}: {problem}")
