"""The formats of a comparison, and its rows of CSV: one for each arm and measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.compare.comparison import Comparison
from reports.compare.documents import full_document, terminal_document
from reports.compare.json_file import document
from reports.compare.page import comparison_page
from reports.page.formats import Formats
from reports.render.plain_text import spreadsheet_text
from reports.statistics.estimate import reason_text

COLUMNS = (
    "a", "b", "measure", "unit", "a_value", "b_value", "change", "interval_low", "interval_high", "smallest_shown",
    "p_value", "p_adjusted", "verdict", "reason",
)  # fmt: skip


def rows(comparison: Comparison) -> Iterator[Sequence[object]]:
    """The rows of the file, with the names of the columns first."""
    yield COLUMNS
    for pair in comparison.comparisons:
        a, b = spreadsheet_text(pair.baseline.name), spreadsheet_text(pair.arm.name)
        for d in pair.differences:
            low, high = d.interval or (None, None)
            yield (
                a, b, d.measure.name, d.measure.unit, d.a, d.b, d.change, low, high,
                d.smallest_shown, d.p_value, d.p_adjusted, d.verdict.value, reason_text(d.reason),
            )  # fmt: skip


COMPARISON = Formats[Comparison](
    "compare", terminal_document, full_document, document, rows, lambda comparison, _: comparison_page(comparison)
)
