"""The output files of a search for capacity."""

from __future__ import annotations

from pathlib import Path

from reports.capacity.csv_file import write_csv
from reports.capacity.json_file import write_json
from reports.capacity.markdown import write_markdown
from reports.capacity.page import write_html
from reports.capacity.result import Capacity
from reports.render.formats import Writers, write_formats

WRITERS: Writers[Capacity] = {".json": write_json, ".csv": write_csv, ".md": write_markdown, ".html": write_html}


def write_capacity(capacity: Capacity, folder: Path) -> Path:
    """Write ``capacity.json``, ``.csv``, ``.md`` and ``.html`` into ``folder``; returns the page's path. Raises OSError."""
    return write_formats(capacity, folder / "capacity.html", WRITERS)
