"""A sweep as Markdown, for a pull request."""

from __future__ import annotations

from pathlib import Path

from reports.render.document import Code, Document, Heading, Paragraph
from reports.render.markdown import markdown_text
from reports.sweep.points import Sweep
from reports.sweep.tables import FRONT_NOTE, answer, counts_text, gate_table, points_table
from reports.sweep.together import together_sentence


def render_markdown(sweep: Sweep) -> str:
    """The whole text, ending with a newline."""
    return markdown_text(_document(sweep))


def write_markdown(sweep: Sweep, path: Path) -> None:
    """Write the file. Raises OSError."""
    path.write_text(render_markdown(sweep), encoding="utf-8")


def _document(sweep: Sweep) -> Document:
    return (
        Heading((f"Sweep over {' and '.join(sweep.axes)}: ", Code("bench"), f" {sweep.measured}")),
        Paragraph(answer(sweep), is_answer=True, aside=counts_text(sweep)),
        gate_table(sweep),
        points_table(sweep),
        Paragraph(f"{FRONT_NOTE} {sweep.latency}."),
        Paragraph(together_sentence(sweep)),
    )
