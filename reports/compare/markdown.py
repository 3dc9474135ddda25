"""A comparison as Markdown, for a pull request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reports.compare.comparison import ArmComparison, Comparison
from reports.compare.tables import conditions_notes, difference_table, headline, notes
from reports.render.document import Document, Heading, Notes, Paragraph
from reports.render.markdown import markdown_text


def render_markdown(comparison: Comparison) -> str:
    """The whole text, ending with a newline."""
    return markdown_text(tuple(block for pair in comparison.comparisons for block in _arm(pair)))


def write_markdown(comparison: Comparison, path: Path) -> None:
    """Write the file. Raises OSError."""
    path.write_text(render_markdown(comparison), encoding="utf-8")


def _arm(pair: ArmComparison) -> Document:
    return (
        Heading(f"{pair.baseline.name} (A) against {pair.arm.name} (B)"),
        Paragraph(headline(pair), is_answer=True),
        replace(difference_table(pair), title=""),
        *map(Paragraph, notes(pair)),
        Notes(tuple(f"{d.weight.value}: {d.what}: {' / '.join(d.values)}" for d in pair.disagreements)),
        conditions_notes(pair.conditions),
    )
