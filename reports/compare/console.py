"""A comparison on a terminal."""

from __future__ import annotations

from tabulate import tabulate

from reports.compare.comparable import Disagreement
from reports.compare.comparison import ArmComparison, Comparison
from reports.compare.tables import COLUMN_ALIGNMENT, difference_table, headline, notes, runs_text
from reports.render.plain_text import printable
from reports.render.tables import cell_text


def render(comparison: Comparison) -> str:
    """The whole text, without a trailing newline."""
    return "\n\n".join(_arm(pair) for pair in comparison.comparisons)


def _arm(pair: ArmComparison) -> str:
    a, b = pair.baseline, pair.arm
    parts = [
        printable(f"A: {a.name} ({runs_text(a)})   B: {b.name} ({runs_text(b)})"),
        _table(pair),
        printable(headline(pair)),
        *notes(pair),
        "\n".join(_disagreement(d) for d in pair.disagreements),
        "\n".join(f"{r.status.value}: {r.condition.text}: {r.why}" for r in pair.conditions),
    ]
    return "\n\n".join(part for part in parts if part)


def _table(pair: ArmComparison) -> str:
    table = difference_table(pair)
    rows = [tuple(map(cell_text, row)) for row in table.rows]
    return tabulate(rows, headers=table.columns, colalign=COLUMN_ALIGNMENT, disable_numparse=True)


def _disagreement(pair: Disagreement) -> str:
    values = printable(f"{pair.what}: {' | '.join(pair.values)}")
    return f"{pair.weight.value:>8}  {values}\n          {pair.advice}"
