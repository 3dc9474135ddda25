"""Rows that could not be read: counted, and the first few kept with their place and reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workloads.elements.errors import DatasetError

KEPT = 5


class RowError(Exception):
    """What is wrong with one row. Readers count it; it never leaves ``workloads.readers``."""


@dataclass(frozen=True)
class Reject:
    """One row that is not in the workload: its place, for example "line 7", and the reason."""

    where: str
    reason: str


@dataclass(frozen=True)
class Rejects:
    """``count`` rows of the file ``path`` are not in the workload; ``first`` are the first few that were found.

    ``with_media`` rows are in it without their images or videos.
    """

    path: Path
    count: int
    first: tuple[Reject, ...]
    with_media: int = 0

    def sentences(self) -> Iterator[str]:
        """What is to be said of the file; nothing where all of it was read."""
        if self.count:
            yield str(self)
        if self.with_media:
            has = "1 row has" if self.with_media == 1 else f"{self.with_media:,} rows have"
            yield f"{self.path}: {has} images or videos, which are not sent"

    def __str__(self) -> str:
        rows = "1 row was" if self.count == 1 else f"{self.count:,} rows were"
        example = "".join(f"; for example {reject.where}: {reject.reason}" for reject in self.first[:1])
        return f"{self.path}: {rows} not read{example}"


@dataclass
class RejectCounter:
    """The rejects of one file while it is read. ``strict`` makes a malformed row an error.

    A row that is well formed and holds no request, as one of a failed request, is left out: counted, and never an error.
    ``with_media`` counts rows that are read without their images or videos.
    """

    path: Path
    strict: bool = False
    count: int = 0
    with_media: int = 0
    _first: list[Reject] = field(default_factory=list)

    def malformed(self, where: str, reason: str) -> None:
        """Count a malformed row. Raises DatasetError if ``strict``."""
        if self.strict:
            raise DatasetError(self.path, reason, where)
        self.left_out(where, reason)

    def left_out(self, where: str, reason: str) -> None:
        """Count a row that holds no request."""
        self.count += 1
        if len(self._first) < KEPT:
            self._first.append(Reject(where, reason))

    def malformed_lines(self, rows: Sequence[int], describe: Callable[[int], tuple[str, str]]) -> None:
        """Count the malformed ``rows``; ``describe`` gives a row's place and reason. Raises DatasetError if ``strict``."""
        if self.strict and rows:
            self.malformed(*describe(rows[0]))
        self.left_out_lines(rows, describe)

    def left_out_lines(self, rows: Sequence[int], describe: Callable[[int], tuple[str, str]]) -> None:
        """Count ``rows`` that hold no request."""
        for row in rows[: KEPT - len(self._first)]:
            self._first.append(Reject(*describe(row)))
        self.count += len(rows)

    def total(self) -> Rejects:
        """What was counted, at the end of the file."""
        return Rejects(self.path, self.count, tuple(self._first), self.with_media)
