"""A trend on a terminal."""

from __future__ import annotations

from tabulate import tabulate

from reports.compare.tables import change_text
from reports.render.plain_text import printable
from reports.render.tables import cell_text
from reports.trend.history import Standing, Trend, TrendRun
from reports.trend.tables import counts_text, headline, refusal, runs_table


def render(trend: Trend) -> str:
    """The whole text, without a trailing newline."""
    table = runs_table(trend)
    keep = [k for k, column in enumerate(table.columns) if column not in ("findings", "against the baseline")]
    rows = [(*(cell_text(row[k]) for k in keep), _verdict_text(run)) for row, run in zip(table.rows, trend.runs, strict=True)]
    alignment = ["right", "left", "left", *["right"] * (len(keep) - 3), "left"]
    columns = [*(table.columns[k] for k in keep), "against the baseline"]
    newest = trend.newest_compared
    left_out = [printable(f"left out: {run.name}: {run.why}") for run in trend.left_out]
    parts = [
        tabulate(rows, headers=columns, colalign=alignment, disable_numparse=True) if rows else "",
        headline(trend),
        f"{counts_text(trend)}.",
        "" if newest is None else "\n".join(f"{r.status.value}: {r.condition.text}: {r.why}" for r in newest.conditions),
        "\n".join(left_out),
    ]
    return "\n\n".join(part for part in parts if part)


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
