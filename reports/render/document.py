"""A document as data; ``console.py`` writes it for a terminal, ``markdown.py`` for a pull request."""

from __future__ import annotations

from dataclasses import dataclass

from reports.render.tables import Table


@dataclass(frozen=True, slots=True)
class Code:
    """Text that a reader types, such as a command or an option."""

    text: str


Words = str | tuple[str | Code, ...]
"""Text from anywhere; each renderer makes it inert."""


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of the document, or of a part of it."""

    text: Words


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences; ``is_answer`` where they are what the reader came for. ``aside`` is a reservation after them."""

    text: Words
    is_answer: bool = False
    aside: Words = ""


@dataclass(frozen=True, slots=True)
class Notes:
    """Lines that belong together, such as a list of remarks."""

    items: tuple[Words, ...]


Block = Heading | Paragraph | Notes | Table
Document = tuple[Block, ...]
"""Blocks in their order. Those without content are left out."""
