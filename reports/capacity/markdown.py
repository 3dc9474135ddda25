"""A search for capacity as Markdown, for a pull request."""

from __future__ import annotations

from pathlib import Path

from reports.capacity.documents import full_document
from reports.capacity.result import Capacity
from reports.render.markdown import markdown_text


def render_markdown(capacity: Capacity) -> str:
    """The whole text, ending with a newline."""
    return markdown_text(full_document(capacity))


def write_markdown(capacity: Capacity, path: Path) -> None:
    """Write the file. Raises OSError."""
    path.write_text(render_markdown(capacity), encoding="utf-8")
