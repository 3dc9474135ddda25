"""A comparison as a document."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace

from reports.compare.comparison import ArmComparison, Comparison
from reports.compare.lines import Group, groups
from reports.compare.tables import SETTINGS, conditions_notes, difference_table, headline, judged_apart, notes, runs_text
from reports.render.console import WIDTH
from reports.render.document import Document, Heading, Notes, Paragraph
from reports.render.plain_text import printable
from reports.render.tables import Table

_COLUMNS = {"measure": 24, "A": 10, "B": 10, "change": 8, "95 % interval": 17, "verdict": 19}
"""The columns on a terminal, and the widths at which they wrap; the files and the page have the others."""
_TEXTS = ("measure", "verdict")
_INDENT = " " * 10


def terminal_document(comparison: Comparison) -> Document:
    """The document for a terminal, in at most 100 columns."""
    return (*(block for pair in comparison.comparisons for block in _terminal(pair)), *_together(comparison))


def full_document(comparison: Comparison) -> Document:
    """The document for a pull request."""
    return (*(block for pair in comparison.comparisons for block in _full(pair)), *_together(comparison))


def _together(comparison: Comparison) -> Document:
    text = judged_apart(comparison)
    return (Paragraph(text),) if text else ()


def _terminal(pair: ArmComparison) -> Document:
    a, b = pair.baseline, pair.arm
    return (
        Notes((f"A: {a.name} ({runs_text(a)})   B: {b.name} ({runs_text(b)})",)),
        _table(pair),
        *map(Paragraph, (headline(pair), *notes(pair))),
        Notes((*_settings_title(pair), *(line for group in groups(pair.disagreements) for line in _group(group)))),
        conditions_notes(pair.conditions),
    )


def _full(pair: ArmComparison) -> Document:
    return (
        Heading(f"{pair.baseline.name} (A) against {pair.arm.name} (B)"),
        Paragraph(headline(pair), is_answer=True),
        replace(difference_table(pair), title=""),
        *map(Paragraph, notes(pair)),
        *map(Paragraph, _settings_title(pair)),
        *(block for group in groups(pair.disagreements) for block in _full_group(group)),
        conditions_notes(pair.conditions),
    )


def _settings_title(pair: ArmComparison) -> tuple[str, ...]:
    """What the lines below are; nothing without any."""
    return (f"{SETTINGS}:",) if pair.disagreements else ()


def _table(pair: ArmComparison) -> Table:
    sides = "".join("l" if name in _TEXTS else "r" for name in _COLUMNS)
    return replace(difference_table(pair).chosen(list(_COLUMNS)), sides=sides, widths=tuple(_COLUMNS.values()))


def _group(group: Group) -> Iterator[str]:
    """The lines beside their weight, and below them the advice that all have; a line that is too long goes on further in."""
    heads = (f"{group.weight.value:>8}  ", *(_INDENT for _ in group.lines[1:]))
    for head, line in zip(heads, map(str, group.lines), strict=True):
        yield from _wrapped(line, head, f"{_INDENT}    ")
    yield from _wrapped(group.advice, _INDENT, _INDENT)


def _wrapped(text: str, head: str, further: str) -> list[str]:
    return textwrap.wrap(
        printable(text), WIDTH,
        initial_indent=head, subsequent_indent=further, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _full_group(group: Group) -> Document:
    return (
        Paragraph(f"{group.weight.value}: {group.advice}"),
        Notes(tuple(map(str, group.lines))),
    )
