"""Errors of workloads (the tree of all errors is in ``bench_errors``)."""

from __future__ import annotations

from pathlib import Path

from bench_errors import BenchError, ExitStatus


class WorkloadError(BenchError):
    """A workload cannot be made from these options."""

    exit_status = ExitStatus.USAGE


class DatasetError(WorkloadError):
    """A dataset file cannot be used; the text names the file, the line or row, and what was expected."""

    def __init__(self, path: Path, problem: str, where: str | None = None) -> None:
        super().__init__(f"{path}, {where}: {problem}" if where else f"{path}: {problem}")
