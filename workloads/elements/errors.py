"""Errors of workloads (the tree of all errors is in ``bench_errors``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bench_errors import BenchError, ExitStatus


class Field(str):
    """The name of a field in the sentence of an error."""

    __slots__ = ()


class WorkloadError(BenchError):
    """A workload cannot be made from these values. The parts of its sentence are ``args``: texts, and the fields to change."""

    exit_status = ExitStatus.USAGE

    def __init__(self, *parts: str | Field) -> None:
        super().__init__(*parts)

    def __str__(self) -> str:
        return self.spelt(str)

    def spelt(self, spell: Callable[[Field], str]) -> str:
        """The sentence with each field as ``spell`` writes it: the command line has options for fields."""
        return "".join(spell(part) if isinstance(part, Field) else part for part in self.args)


class DatasetError(WorkloadError):
    """A dataset file cannot be used; the text names the file, the line or row, and what was expected."""

    def __init__(self, path: Path, problem: str | Sequence[str | Field], where: str | None = None) -> None:
        """``problem`` may be parts of a sentence, as those of WorkloadError."""
        parts = (problem,) if isinstance(problem, str) else tuple(problem)
        super().__init__(f"{path}, {where}: " if where else f"{path}: ", *parts)
