"""A search for capacity on a terminal."""

from __future__ import annotations

from reports.capacity.documents import terminal_document
from reports.capacity.result import Capacity
from reports.render.console import console_text


def render(capacity: Capacity) -> str:
    """The whole text, without a trailing newline."""
    return console_text(terminal_document(capacity))
