"""A trend as a document."""

from __future__ import annotations

from reports.compare.tables import change_text, conditions_notes, conditions_table
from reports.render.document import Document, Heading, Notes, Paragraph
from reports.render.plain_text import printable
from reports.render.tables import Table
from reports.trend.history import Standing, Trend, TrendRun
from reports.trend.tables import counts_text, headline, left_out_table, refusal, runs_table, settings_table


def terminal_document(trend: Trend) -> Document:
    """The document for a terminal."""
    newest = trend.newest_compared
    return (
        _table(trend),
        Paragraph(headline(trend)),
        Paragraph(f"{counts_text(trend)}."),
        conditions_notes(() if newest is None else newest.conditions),
        Notes(tuple(f"left out: {run.name}: {run.why}" for run in trend.left_out)),
    )


def full_document(trend: Trend) -> Document:
    """The document for a pull request."""
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


def _table(trend: Trend) -> Table:
    """The runs without their findings; a verdict with what it rests on is last."""
    table = runs_table(trend)
    kept = table.chosen([column for column in table.columns if column not in ("findings", "against the baseline")])
    rows = tuple((*row, _verdict_text(run)) for row, run in zip(kept.rows, trend.runs, strict=True))
    columns = (*kept.columns, "against the baseline")
    return Table("runs", table.title, columns, rows, sides=f"rll{'r' * (len(columns) - 4)}l")


def _verdict_text(run: TrendRun) -> str:
    """The verdict, with the changes or differences that it rests on."""
    match run.standing:
        case Standing.COMPARED:
            changed = [d for d in run.differences if d.verdict.differs]
            shown = [f"{d.measure.title} {change_text(d.measure, d.change)}" for d in changed]
            return f"{run.verdict}: {', '.join(shown)}" if shown else run.verdict
        case Standing.DIFFERENT:
            return f"{run.verdict}: different {refusal(run)}"
        case Standing.INVALID:
            return printable(f"{run.verdict}: {', '.join(run.faults)}")
        case _:
            return run.verdict
