"""The output files of a sweep."""

from __future__ import annotations

from pathlib import Path

from reports.render.formats import Writers, write_formats
from reports.sweep.csv_file import write_csv
from reports.sweep.json_file import write_json
from reports.sweep.markdown import write_markdown
from reports.sweep.page import write_html
from reports.sweep.points import Sweep

WRITERS: Writers[Sweep] = {".json": write_json, ".csv": write_csv, ".md": write_markdown, ".html": write_html}


def write_sweep(sweep: Sweep, folder: Path) -> Path:
    """Write ``sweep.json``, ``.csv``, ``.md`` and ``.html`` into ``folder``; returns the path of the page. Raises OSError."""
    return write_formats(sweep, folder / "sweep.html", WRITERS)
