"""Markdown tables whose cells cannot break out of them."""

from __future__ import annotations

from tabulate import tabulate

from reports.render.plain_text import printable
from reports.render.tables import Table, cell_text

_MEANINGFUL = {ord(character): f"\\{character}" for character in "\\`*_{}[]<>#|!&~"} | {ord("@"): "@\u2060"}  # names nobody


def escaped(text: str) -> str:
    """Text from outside that Markdown shows as it is."""
    return printable(text).translate(_MEANINGFUL)


def markdown_table(table: Table) -> str:
    """The table under its title; cells are text, never markup."""
    rows = [[escaped(cell_text(cell)) for cell in row] for row in table.rows]
    alignment = ["left" if table.is_text(column) else "right" for column in range(len(table.columns))]
    drawn = tabulate(rows, headers=list(table.columns), tablefmt="pipe", colalign=alignment, disable_numparse=True)
    return f"**{table.title}**\n\n{drawn}"
