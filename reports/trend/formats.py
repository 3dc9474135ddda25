"""The formats of a trend."""

from __future__ import annotations

from reports.page.formats import Formats
from reports.trend.csv_file import rows
from reports.trend.documents import full_document, terminal_document
from reports.trend.history import Trend
from reports.trend.json_file import document
from reports.trend.page import page_in

TREND = Formats[Trend]("trend", terminal_document, full_document, document, rows, page_in, width=None)
