"""A comparison as CSV: one row for each arm and measure."""

from __future__ import annotations

import csv
from pathlib import Path

from reports.compare.comparison import Comparison
from reports.render.plain_text import spreadsheet_text
from reports.statistics.estimate import reason_text

COLUMNS = (
    "a", "b", "measure", "unit", "a_value", "b_value", "change", "interval_low", "interval_high", "smallest_shown",
    "p_value", "p_adjusted", "verdict", "reason",
)  # fmt: skip


def write_csv(comparison: Comparison, path: Path) -> None:
    """Write the file; an unknown value is an empty cell. Raises OSError."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for pair in comparison.comparisons:
            a, b = spreadsheet_text(pair.baseline.name), spreadsheet_text(pair.arm.name)
            for d in pair.differences:
                low, high = d.interval or (None, None)
                writer.writerow(
                    (a, b, d.measure.name, d.measure.unit, d.a, d.b, d.change, low, high,
                     d.smallest_shown, d.p_value, d.p_adjusted, d.verdict.value, reason_text(d.reason))
                )  # fmt: skip
