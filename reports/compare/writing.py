"""Writing a comparison into the folder of its experiment, in every format."""

from __future__ import annotations

from pathlib import Path

from harness.records.whole_file import written_whole
from reports.compare.comparison import Comparison
from reports.compare.csv_file import write_csv
from reports.compare.html import write_html
from reports.compare.json_file import write_json
from reports.compare.markdown import write_markdown


def write_comparison(comparison: Comparison, folder: Path) -> Path:
    """Write ``compare.json``, ``.csv``, ``.md`` and ``.html``, each whole, and return where the page is. Raises OSError."""
    page = folder / "compare.html"
    for suffix, write in ((".json", write_json), (".csv", write_csv), (".md", write_markdown), (".html", write_html)):
        with written_whole(page.with_suffix(suffix)) as temporary:
            write(comparison, temporary)
    return page
