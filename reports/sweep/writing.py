"""Writing a sweep into its folder, in every format."""

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
    """Write ``sweep.json``, ``.csv``, ``.md`` and ``.html``, each whole, and return where the page is. Raises OSError."""
    return write_formats(sweep, folder / "sweep.html", WRITERS)
