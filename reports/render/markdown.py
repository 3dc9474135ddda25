"""A document as Markdown. All text is shown as it is, never read as markup."""

from __future__ import annotations

import re

from reports.render.document import Block, Code, Document, Heading, Notes, Paragraph, Words
from reports.render.plain_text import escaped, printable
from reports.render.tables import Table, markdown_table


def markdown_text(document: Document) -> str:
    """The whole text, ending with a newline. Headings have the third level, for a comment beside others."""
    return "\n\n".join(text for block in document if (text := _block(block))) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"### {_words(block.text)}"
        case Paragraph():
            text = _words(block.text)
            return f"{f'**{text}**' if block.is_answer and text else text} {_words(block.aside)}".strip()
        case Notes():
            return "\n".join(f"- {_words(item)}" for item in block.items)
        case Table():
            return markdown_table(block) if block.rows else ""


def _words(words: Words) -> str:
    parts = (words,) if isinstance(words, str) else words
    return "".join(_code(part.text) if isinstance(part, Code) else escaped(part) for part in parts)


def _code(text: str) -> str:
    """A code span: its fence is longer than any run of backticks within (CommonMark 0.31, 6.1)."""
    shown = printable(text)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{space}{shown}{space}{fence}"
