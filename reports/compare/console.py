"""A comparison on a terminal."""

from __future__ import annotations

import textwrap

from tabulate import tabulate

from reports.compare.comparable import Disagreement
from reports.compare.comparison import ArmComparison, Comparison
from reports.compare.tables import difference_table, headline, notes, runs_text
from reports.render.plain_text import printable
from reports.render.tables import cell_text

_WIDTH = 100
_COLUMNS = {"measure": 24, "A": 10, "B": 10, "change": 8, "95 % interval": 17, "verdict": 19}
"""The columns shown, and the widths at which they wrap; the files and the page have the others."""
_TEXTS = ("measure", "verdict")


def render(comparison: Comparison) -> str:
    """The whole text, without a trailing newline."""
    return "\n\n".join(_arm(pair) for pair in comparison.comparisons)


def _arm(pair: ArmComparison) -> str:
    a, b = pair.baseline, pair.arm
    parts = [
        printable(f"A: {a.name} ({runs_text(a)})   B: {b.name} ({runs_text(b)})"),
        _table(pair),
        *map(_wrapped, (printable(headline(pair)), *notes(pair))),
        "\n".join(_disagreement(d) for d in pair.disagreements),
        "\n".join(f"{r.status.value}: {r.condition.text}: {r.why}" for r in pair.conditions),
    ]
    return "\n\n".join(part for part in parts if part)


def _table(pair: ArmComparison) -> str:
    table = difference_table(pair)
    shown = [table.columns.index(name) for name in _COLUMNS]
    widths = list(_COLUMNS.values())
    rows = [[_wrapped(cell_text(row[k]), width) for k, width in zip(shown, widths, strict=True)] for row in table.rows]
    headers = [_wrapped(name, width) for name, width in _COLUMNS.items()]
    alignment = ["left" if name in _TEXTS else "right" for name in _COLUMNS]
    return tabulate(rows, headers=headers, colalign=alignment, disable_numparse=True)


def _wrapped(text: str, width: int = _WIDTH) -> str:
    """Lines of at most ``width`` characters; a path or a command is not broken. Tabulate's own wrapping of cells takes 1,295.98
    for a number, and fails.
    """
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def _disagreement(pair: Disagreement) -> str:
    values = printable(f"{pair.what}: {' | '.join(pair.values)}")
    return f"{pair.weight.value:>8}  {values}\n          {pair.advice}"
