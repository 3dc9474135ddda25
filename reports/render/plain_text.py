"""Text from outside, such as model names, messages and paths, made inert for terminal, page, Markdown, JSON and spreadsheet."""

from __future__ import annotations

import json
import re
from typing import Any

_REPLACEMENT = "\ufffd"
_UNPRINTABLE = re.compile(r"[^\n\x20-\x7e]")  # candidates, of which str.isprintable decides
# Markdown's syntax is escaped with a backslash, and "@" is separated from the name after it, which is then no mention of a
# user.
_MARKDOWN = {ord(character): f"\\{character}" for character in "\\`*_{}[]<>#|!&~"} | {ord("@"): "@\u2060"}
# The characters at which a spreadsheet begins a formula (OWASP, "CSV Injection"), wide forms too.
_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def printable(text: str) -> str:
    """Text without control, escape and direction characters and lone surrogates, which a terminal or page would interpret."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _REPLACEMENT for character in text)


def printable_lines(text: str) -> str:
    """The same of a text of several lines; line breaks and tabs stay."""
    return "".join(character if character.isprintable() or character in "\n\t" else _REPLACEMENT for character in text)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    return printable(text).translate(_MARKDOWN)


def json_text(document: Any) -> str:
    """JSON with an indent of two spaces and a final newline. Characters that are not printable are escaped.

    Raises ValueError for a number that JSON does not have.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return _UNPRINTABLE.sub(_escaped, text) + "\n"  # within strings a line break is escaped already


def spreadsheet_text(text: str) -> str:
    """A cell of a CSV file: line breaks and tabs stay, and a text that would begin a formula gets an apostrophe before it."""
    shown = printable_lines(text)
    return f"'{shown}" if text.startswith(_BEGINS_A_FORMULA) else shown


def _escaped(match: re.Match[str]) -> str:
    return match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1]
