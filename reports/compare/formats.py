"""The formats of a comparison."""

from __future__ import annotations

from reports.compare.comparison import Comparison
from reports.compare.csv_file import rows
from reports.compare.documents import full_document, terminal_document
from reports.compare.json_file import document
from reports.compare.page import comparison_page
from reports.page.formats import Formats

COMPARISON = Formats[Comparison](
    "compare", terminal_document, full_document, document, rows, lambda comparison, _: comparison_page(comparison)
)
