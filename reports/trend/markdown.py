"""A trend as Markdown."""

from __future__ import annotations

from pathlib import Path

from reports.compare.tables import conditions_table
from reports.render.plain_text import escaped
from reports.render.tables import markdown_table
from reports.trend.history import Trend
from reports.trend.tables import counts_text, headline, left_out_table, runs_table, settings_table


def render_markdown(trend: Trend) -> str:
    """The whole text, ending with a newline."""
    newest = trend.newest_compared
    conditions = conditions_table(() if newest is None else newest.conditions)
    tables = [table for table in (conditions, runs_table(trend), settings_table(trend), left_out_table(trend)) if table.rows]
    against = "" if trend.baseline is None else f" against {escaped(trend.baseline)}"
    parts = [f"### Trend of {counts_text(trend)}{against}", f"**{escaped(headline(trend))}**", *map(markdown_table, tables)]
    return "\n\n".join(parts) + "\n"


def write_markdown(trend: Trend, path: Path) -> None:
    """Write the file. Raises OSError."""
    path.write_text(render_markdown(trend), encoding="utf-8")
