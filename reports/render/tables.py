"""A table as data: what every format shows in its own way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Link:
    """A cell that leads somewhere: ``address`` is relative to the page; formats without links show the text alone."""

    text: str
    address: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that is shown in another way than others, as with its sign or in per cent: sorted and copied by ``value``."""

    value: float
    text: str


Cell = str | int | float | Quantity | Link | None


@dataclass(frozen=True)
class Table:
    """``rows`` have a cell for each column; None is unknown or does not exist. ``note`` says how to read it.

    A ``long`` table may break over pages, and is folded where there is a way to unfold it.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    long: bool = False

    def is_text(self, column: int) -> bool:
        """Whether a column holds words rather than numbers, and so stands to the left."""
        return not any(isinstance(row[column], int | float | Quantity) for row in self.rows)


def cell_text(cell: Cell) -> str:
    """A cell for people: two decimals, or three digits of what is small."""
    if cell is None:
        return UNKNOWN
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Link | Quantity):
        return cell.text
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.3g}" if 0 < abs(cell) < 0.01 else f"{cell:,.2f}"


def link_to(text: str, path: Path) -> Link:
    """A link to a file at a path relative to the page. Whatever a folder is called, the address is a path and no scheme."""
    return Link(text, "./" + quote(path.as_posix()))
