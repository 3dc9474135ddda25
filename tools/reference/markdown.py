"""Pieces of Markdown that the reference's generators share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


def plain(text: str) -> str:
    """Text that Markdown renders as it is, in a paragraph or a table's cell."""
    return re.sub(r"([\\`*_{}\[\]<>|$#])", r"\\\1", text).replace("\n", " ")


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A pipe table; the cells are Markdown already."""
    heads = list(columns)
    yield from ("", f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |")
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""
