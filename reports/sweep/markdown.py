"""A sweep as Markdown, for a pull request."""

from __future__ import annotations

from pathlib import Path

from reports.render.plain_text import escaped
from reports.render.tables import markdown_table
from reports.sweep.points import Sweep
from reports.sweep.tables import FRONT_NOTE, answer, counts_text, gate_table, points_table
from reports.sweep.together import together_sentence


def render_markdown(sweep: Sweep) -> str:
    """The whole text, ending with a newline."""
    parts = [
        f"### Sweep over {escaped(' and '.join(sweep.axes))}: `bench` {escaped(sweep.measured)}",
        f"**{escaped(answer(sweep))}** {escaped(counts_text(sweep))}".rstrip(),
        *([markdown_table(gate_table(sweep))] if sweep.required else []),
        markdown_table(points_table(sweep)),
        f"{FRONT_NOTE} {sweep.latency}.",
        *filter(None, [escaped(together_sentence(sweep))]),
    ]
    return "\n\n".join(parts) + "\n"


def write_markdown(sweep: Sweep, path: Path) -> None:
    """Write the file. Raises OSError."""
    path.write_text(render_markdown(sweep), encoding="utf-8")
