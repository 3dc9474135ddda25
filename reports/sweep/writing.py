"""Writing a sweep into its folder, in every format."""

from __future__ import annotations

from pathlib import Path

from harness.records.whole_file import written_whole
from reports.sweep.csv_file import write_csv
from reports.sweep.html import write_html
from reports.sweep.json_file import write_json
from reports.sweep.markdown import write_markdown
from reports.sweep.points import Sweep


def write_sweep(sweep: Sweep, folder: Path) -> Path:
    """Write ``sweep.json``, ``.csv``, ``.md`` and ``.html``, each whole, and return where the page is. Raises OSError."""
    page = folder / "sweep.html"
    for suffix, write in ((".json", write_json), (".csv", write_csv), (".md", write_markdown), (".html", write_html)):
        with written_whole(page.with_suffix(suffix)) as temporary:
            write(sweep, temporary)
    return page
