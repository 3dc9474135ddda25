"""The formats of a trend, and its rows of CSV: one for each run and measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.page.formats import Formats
from reports.render.plain_text import spreadsheet_text
from reports.statistics.estimate import reason_text
from reports.trend.documents import full_document, terminal_document
from reports.trend.history import Trend
from reports.trend.json_file import document
from reports.trend.page import page_in

COLUMNS = (
    "run", "started_at", "standing", "measure", "unit", "value", "interval_low", "interval_high", "baseline", "change",
    "change_low", "change_high", "p_value", "p_adjusted", "verdict", "reason",
)  # fmt: skip


def rows(trend: Trend) -> Iterator[Sequence[object]]:
    """The rows of the file, with the names of the columns first."""
    yield COLUMNS
    for run in trend.runs:
        by_name = {d.measure.name: d for d in run.differences}
        for measure in trend.measures:
            if measure.name not in run.estimates:
                continue
            estimate, d = run.estimates[measure.name], by_name.get(measure.name)
            of_change = (None,) * 7 if d is None else (
                d.a, d.change, *(d.interval or (None, None)), d.p_value, d.p_adjusted, d.verdict.value
            )  # fmt: skip
            yield (
                spreadsheet_text(run.name), run.started_at.isoformat(), run.standing.value, measure.name, measure.unit,
                estimate.value, *(estimate.interval or (None, None)), *of_change, None if d is None else reason_text(d.reason),
            )  # fmt: skip


TREND = Formats[Trend]("trend", terminal_document, full_document, document, rows, page_in, width=None)
