"""A kind of result in each format that it is shown and written in."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from bench_records.whole_file import written_whole
from reports.page.page import Page, write_page
from reports.render import console, markdown
from reports.render.document import Document
from reports.render.plain_text import json_text

Result = TypeVar("Result")


@dataclass(frozen=True)
class Formats(Generic[Result]):
    """What a kind of result is in each format; ``name`` is that of its files.

    ``terminal`` and ``full`` are its documents for a terminal, where paragraphs wrap at ``width`` characters (None: nowhere),
    and for a pull request. An unknown value is null in ``json`` and an empty cell in ``rows``, the first of which has the names
    of the columns. ``page`` gets the folder that the page is written to, for its links.
    """

    name: str
    terminal: Callable[[Result], Document]
    full: Callable[[Result], Document]
    json: Callable[[Result], Mapping[str, object]]
    rows: Callable[[Result], Iterable[Sequence[object]]]
    page: Callable[[Result, Path], Page]
    width: int | None = console.WIDTH

    def terminal_text(self, result: Result) -> str:
        """The text for a terminal, without a trailing newline."""
        return console.console_text(self.terminal(result), self.width)

    def markdown_text(self, result: Result) -> str:
        """The text for a pull request, ending with a newline."""
        return markdown.markdown_text(self.full(result))

    def write(self, result: Result, suffix: str, path: Path) -> None:
        """Write ``result`` to ``path`` in the format of this ``suffix``: .html, .json, .md or .csv. Raises OSError."""
        match suffix:
            case ".html":
                write_page(self.page(result, path.parent), path)
            case ".json":
                path.write_text(json_text(self.json(result)), encoding="utf-8")
            case ".md":
                path.write_text(self.markdown_text(result), encoding="utf-8")
            case ".csv":
                with path.open("w", newline="", encoding="utf-8") as file:
                    csv.writer(file).writerows(self.rows(result))
            case _:
                raise ValueError(f"no format has the suffix {suffix}")

    def write_all(self, result: Result, folder: Path) -> Path:
        """Write the file of every format into ``folder``, each whole; returns the path of the page. Raises OSError."""
        page = folder / f"{self.name}.html"
        for suffix in (".json", ".csv", ".md", ".html"):
            with written_whole(page.with_suffix(suffix)) as temporary:
                self.write(result, suffix, temporary)
        return page
