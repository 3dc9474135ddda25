"""A trend as Markdown."""

from __future__ import annotations

from pathlib import Path

from reports.compare.tables import conditions_table
from reports.render.document import Document, Heading, Paragraph
from reports.render.markdown import markdown_text
from reports.trend.history import Trend
from reports.trend.tables import counts_text, headline, left_out_table, runs_table, settings_table


def render_markdown(trend: Trend) -> str:
    """The whole text, ending with a newline."""
    return markdown_text(_document(trend))


def write_markdown(trend: Trend, path: Path) -> None:
    """Write the file. Raises OSError."""
    path.write_text(render_markdown(trend), encoding="utf-8")


def _document(trend: Trend) -> Document:
    newest = trend.newest_compared
    against = "" if trend.baseline is None else f" against {trend.baseline}"
    return (
        Heading(f"Trend of {counts_text(trend)}{against}"),
        Paragraph(headline(trend), is_answer=True),
        conditions_table(() if newest is None else newest.conditions),
        runs_table(trend),
        settings_table(trend),
        left_out_table(trend),
    )
