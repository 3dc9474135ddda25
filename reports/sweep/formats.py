"""The formats of a sweep."""

from __future__ import annotations

from reports.page.formats import Formats
from reports.sweep.csv_file import rows
from reports.sweep.documents import full_document, terminal_document
from reports.sweep.json_file import document
from reports.sweep.page import sweep_page
from reports.sweep.points import Sweep

SWEEP = Formats[Sweep](
    "sweep", terminal_document, full_document, document, rows, lambda sweep, _: sweep_page(sweep), width=None
)
