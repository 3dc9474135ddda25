"""A table as data, which every format shows in its own way, and its text for terminal and Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from tabulate import tabulate

from reports.render.counts import percent
from reports.render.plain_text import escaped, printable
from reports.statistics.estimate import two_decimals

UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Link:
    """A cell with a link: ``address`` is relative to the page; formats without links show the text alone."""

    text: str
    address: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with a text of its own, as with its sign or in per cent: sorted and copied by ``value``, a bound with its ≥."""

    value: float
    text: str


class LowerBound(Quantity):
    """A number of which no more is known than that it is at least so large."""


Cell = str | int | float | Quantity | Link | None


@dataclass(frozen=True)
class Table:
    """``rows`` have a cell for each column; None is unknown or does not exist. ``note`` explains how to read it.

    A ``long`` table may break over pages, and is folded in formats that can unfold it. In text a column is aligned as ``sides``
    says, an "l" or "r" each, else by what it holds; on a terminal it wraps at its one of ``widths``, if there are any and it is
    not None.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    long: bool = False
    sides: str = ""
    widths: tuple[int | None, ...] = ()

    @property
    def alignment(self) -> tuple[str, ...]:
        """ "left" or "right" for each column of a text."""
        sides = self.sides or ["l" if self.is_text(column) else "r" for column in range(len(self.columns))]
        return tuple("left" if side == "l" else "right" for side in sides)

    def chosen(self, columns: Sequence[str]) -> Table:
        """The table with these columns alone, in their order."""
        places = [self.columns.index(name) for name in columns]
        return replace(self, columns=tuple(columns), rows=tuple(tuple(row[k] for k in places) for row in self.rows))

    def is_text(self, column: int) -> bool:
        """Whether a column holds words rather than numbers, and so is aligned to the left."""
        return self._texts[column]

    @cached_property
    def _texts(self) -> tuple[bool, ...]:
        """``is_text`` of each column: a page asks for each cell, and the cells of a column are many."""
        return tuple(
            not any(isinstance(row[column], int | float | Quantity) for row in self.rows) for column in range(len(self.columns))
        )


def cell_text(cell: Cell) -> str:
    """A cell as text: two decimals, or three significant digits of a small number."""
    if cell is None:
        return UNKNOWN
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Link | Quantity):
        return cell.text
    if isinstance(cell, int):
        return f"{cell:,}"
    return two_decimals(cell)


def share_cell(share: float) -> Quantity:
    """A share in per cent, without the sign: two decimals, or as many as distinguish it from 0 and from 100."""
    return Quantity(100.0 * share, percent(share, 2).removesuffix("%"))


def three_digits(value: float) -> str:
    """A number to three digits, or to the whole where it has more; from 0.1 to 1 with two decimals."""
    if 0 < abs(value) < 0.1:
        return f"{value:.3g}"
    decimals = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{decimals}f}"


def tenths(value: float) -> str:
    """A number to a tenth, or to three digits of a small one, such as a time of a fast run."""
    return f"{value:,.1f}" if value >= 0.05 or value == 0.0 else three_digits(value)


def span_text(start: float, end: float, decimals: int) -> str:
    """From ``start`` to ``end`` with these ``decimals``, or as many more as distinguish the ends of a short span."""
    if 0.0 < end - start < 1.0:
        decimals = max(decimals, math.ceil(-math.log10(end - start)))
    return f"{start:,.{decimals}f} – {end:,.{decimals}f}"


def link_to(text: str, path: Path) -> Link:
    """A link to a file at a path relative to the page. For any name of a folder the address is a path, and no URL scheme."""
    return Link(text, "./" + quote(path.as_posix()))


def console_table(table: Table, heading: str | None = None) -> str:
    """The table under the names of its columns, the first replaced by ``heading`` where given; "" for a table without rows."""
    if not table.rows:
        return ""
    rows = [tuple(printable(cell_text(cell)) for cell in row) for row in table.rows]
    columns = table.columns if heading is None else (heading, *table.columns[1:])
    alignment = ("left", *["right"] * (len(columns) - 1))
    return tabulate(rows, headers=columns, colalign=alignment, disable_numparse=True)


def html_table(table: Table) -> str:
    """The table as HTML for a notebook, without style; cells are text, never markup."""
    rows = [[printable(cell_text(cell)) for cell in row] for row in table.rows]
    return str(tabulate(rows, headers=list(table.columns), tablefmt="html", disable_numparse=True))


def markdown_table(table: Table) -> str:
    """The table under its title, if it has one; cells are text, never markup."""
    rows = [[escaped(cell_text(cell)) for cell in row] for row in table.rows]
    text = tabulate(rows, headers=list(table.columns), tablefmt="pipe", colalign=table.alignment, disable_numparse=True)
    return f"**{table.title}**\n\n{text}" if table.title else text
