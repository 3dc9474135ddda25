"""The output files of a comparison."""

from __future__ import annotations

from pathlib import Path

from reports.compare.comparison import Comparison
from reports.compare.csv_file import write_csv
from reports.compare.json_file import write_json
from reports.compare.markdown import write_markdown
from reports.compare.page import write_html
from reports.render.formats import Writers, write_formats

WRITERS: Writers[Comparison] = {".json": write_json, ".csv": write_csv, ".md": write_markdown, ".html": write_html}


def write_comparison(comparison: Comparison, folder: Path) -> Path:
    """Write ``compare.json``, ``.csv``, ``.md`` and ``.html`` into ``folder``; returns the path of the page. Raises OSError."""
    return write_formats(comparison, folder / "compare.html", WRITERS)
