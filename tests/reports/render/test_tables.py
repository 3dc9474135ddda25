"""Cells as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reports.render.tables import Cell, Link, Table, cell_text, link_to, span_text, tenths


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "–"), ("failed", "failed"), (0, "0"), (1_234_567, "1,234,567"), (0.0, "0.00"), (1234.567, "1,234.57"),
        (0.001234, "0.00123"), (-0.5, "-0.50"), (0.01, "0.01"),
    ],
)  # fmt: skip
def test_a_cell_in_words(cell: Cell, text: str) -> None:
    assert cell_text(cell) == text


def test_a_column_with_a_number_is_no_text() -> None:
    table = Table("t", "T", ("name", "value", "note"), (("a", "failed", None), ("b", 1.5, "x")))
    assert [table.is_text(column) for column in range(3)] == [True, False, True]


class _CountedRows(tuple[tuple[Cell, ...], ...]):
    reads = 0

    def __iter__(self) -> Iterator[tuple[Cell, ...]]:
        self.reads += 1
        return super().__iter__()


def test_a_page_that_asks_for_each_cell_reads_the_cells_of_a_column_once() -> None:
    rows = _CountedRows(("a", number) for number in range(100))
    table = Table("t", "T", ("name", "value"), rows)
    assert [table.is_text(column) for _ in range(100) for column in range(2)] == [True, False] * 100
    assert rows.reads == 2


@pytest.mark.parametrize(
    ("folder", "address"),
    [
        ("a run", "./a%20run/report.html"),
        ("javascript:alert(1)", "./javascript%3Aalert%281%29/report.html"),
        ("../b?#%", "./../b%3F%23%25/report.html"),
    ],
)
def test_a_link_leads_to_a_file_whatever_the_folder_is_called(folder: str, address: str) -> None:
    link = link_to("name", Path(folder, "report.html"))
    assert link == Link("name", address)
    assert cell_text(link) == "name"


@pytest.mark.parametrize(
    ("value", "text"), [(1_234.56, "1,234.6"), (2.5, "2.5"), (0.05, "0.1"), (0.04, "0.04"), (0.00123, "0.00123"), (0.0, "0.0")]
)
def test_a_tenth_of_a_small_number_is_no_zero(value: float, text: str) -> None:
    assert tenths(value) == text


@pytest.mark.parametrize(
    ("start", "end", "decimals", "text"),
    [
        (0.0, 4.2, 1, "0.0 – 4.2"),
        (1_000.0, 2_000.0, 2, "1,000.00 – 2,000.00"),
        (0.04, 0.06, 1, "0.04 – 0.06"),
        (0.0, 0.0005, 2, "0.0000 – 0.0005"),
        (3.0, 3.0, 1, "3.0 – 3.0"),
    ],
)
def test_the_ends_of_a_short_span_are_told_apart(start: float, end: float, decimals: int, text: str) -> None:
    assert span_text(start, end, decimals) == text
