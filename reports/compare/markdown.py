"""A comparison as Markdown, for a pull request."""

from __future__ import annotations

from pathlib import Path

from tabulate import tabulate

from reports.compare.comparison import ArmComparison, Comparison
from reports.compare.tables import COLUMN_ALIGNMENT, difference_table, headline, notes
from reports.render.plain_text import escaped
from reports.render.tables import cell_text


def render_markdown(comparison: Comparison) -> str:
    """The whole text, ending with a newline."""
    return "\n".join(_arm(pair) for pair in comparison.comparisons)


def write_markdown(comparison: Comparison, path: Path) -> None:
    """Write the file. Raises OSError."""
    path.write_text(render_markdown(comparison), encoding="utf-8")


def _arm(pair: ArmComparison) -> str:
    table = difference_table(pair)
    rows = [[escaped(cell_text(cell)) for cell in row] for row in table.rows]
    parts = [
        f"### {escaped(pair.baseline.name)} (A) against {escaped(pair.arm.name)} (B)",
        f"**{escaped(headline(pair))}**",
        tabulate(rows, headers=table.columns, tablefmt="pipe", colalign=COLUMN_ALIGNMENT, disable_numparse=True),
        *(escaped(note) for note in notes(pair)),
        "\n".join(f"- {d.weight.value}: {escaped(d.what)}: {escaped(' / '.join(d.values))}" for d in pair.disagreements),
        "\n".join(f"- {r.status.value}: `{r.condition.text}`: {escaped(r.why)}" for r in pair.conditions),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
