"""The formats of a search for capacity."""

from __future__ import annotations

from reports.capacity.csv_file import rows
from reports.capacity.documents import full_document, terminal_document
from reports.capacity.json_file import document
from reports.capacity.page import capacity_page
from reports.capacity.result import Capacity
from reports.page.formats import Formats

CAPACITY = Formats[Capacity](
    "capacity", terminal_document, full_document, document, rows, lambda capacity, _: capacity_page(capacity)
)
