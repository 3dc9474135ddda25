"""A document on a terminal."""

from __future__ import annotations

import textwrap

from tabulate import tabulate

from reports.render.document import Block, Code, Document, Heading, Notes, Paragraph, Words
from reports.render.plain_text import printable
from reports.render.tables import Table, cell_text

WIDTH = 100


def console_text(document: Document, width: int | None = WIDTH) -> str:
    """The text, without a trailing newline. Paragraphs wrap at ``width`` characters (None: nowhere), except within a path or a
    command.
    """
    return "\n\n".join(text for block in document if (text := _block(block, width)))


def _block(block: Block, width: int | None) -> str:
    match block:
        case Heading():
            return plain(block.text)
        case Paragraph():
            text = f"{plain(block.text)} {plain(block.aside)}".strip()
            return text if width is None else wrapped(text, width)
        case Notes():
            return "\n".join(map(plain, block.items))
        case Table():
            return _table(block)


def plain(words: Words) -> str:
    """The words without any markup, inert on a terminal."""
    parts = (words,) if isinstance(words, str) else words
    return printable("".join(part.text if isinstance(part, Code) else part for part in parts))


def wrapped(text: str, width: int = WIDTH) -> str:
    """Lines of at most ``width`` characters; a path or a command is not broken. Tabulate's own wrapping of cells takes 1,295.98
    for a number, and fails.
    """
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def _table(table: Table) -> str:
    """The table under the names of its columns, without its title; "" without rows."""
    if not table.rows:
        return ""
    rows = [[_cell(cell_text(cell), column, table) for column, cell in enumerate(row)] for row in table.rows]
    headers = [_cell(name, column, table) for column, name in enumerate(table.columns)]
    return tabulate(rows, headers=headers, colalign=table.alignment, disable_numparse=True)


def _cell(text: str, column: int, table: Table) -> str:
    width = table.widths[column] if table.widths else None
    shown = printable(text)
    return shown if width is None else wrapped(shown, width)
