"""A comparison as a document."""

from __future__ import annotations

from dataclasses import replace

from reports.compare.comparable import Disagreement
from reports.compare.comparison import ArmComparison, Comparison
from reports.compare.tables import conditions_notes, difference_table, headline, notes, runs_text
from reports.render.document import Document, Heading, Notes, Paragraph
from reports.render.tables import Table

_COLUMNS = {"measure": 24, "A": 10, "B": 10, "change": 8, "95 % interval": 17, "verdict": 19}
"""The columns on a terminal, and the widths at which they wrap; the files and the page have the others."""
_TEXTS = ("measure", "verdict")


def terminal_document(comparison: Comparison) -> Document:
    """The document for a terminal, in at most 100 columns."""
    return tuple(block for pair in comparison.comparisons for block in _terminal(pair))


def full_document(comparison: Comparison) -> Document:
    """The document for a pull request."""
    return tuple(block for pair in comparison.comparisons for block in _full(pair))


def _terminal(pair: ArmComparison) -> Document:
    a, b = pair.baseline, pair.arm
    return (
        Notes((f"A: {a.name} ({runs_text(a)})   B: {b.name} ({runs_text(b)})",)),
        _table(pair),
        *map(Paragraph, (headline(pair), *notes(pair))),
        Notes(tuple(line for d in pair.disagreements for line in _disagreement(d))),
        conditions_notes(pair.conditions),
    )


def _full(pair: ArmComparison) -> Document:
    return (
        Heading(f"{pair.baseline.name} (A) against {pair.arm.name} (B)"),
        Paragraph(headline(pair), is_answer=True),
        replace(difference_table(pair), title=""),
        *map(Paragraph, notes(pair)),
        Notes(tuple(f"{d.weight.value}: {d.what}: {d.values_text}" for d in pair.disagreements)),
        conditions_notes(pair.conditions),
    )


def _table(pair: ArmComparison) -> Table:
    sides = "".join("l" if name in _TEXTS else "r" for name in _COLUMNS)
    return replace(difference_table(pair).chosen(list(_COLUMNS)), sides=sides, widths=tuple(_COLUMNS.values()))


def _disagreement(pair: Disagreement) -> tuple[str, str]:
    return f"{pair.weight.value:>8}  {pair.what}: {pair.values_text}", f"          {pair.advice}"
