"""The generated sections of the documentation are what the code renders."""

from __future__ import annotations

import re

import pytest

from reports.metrics.catalogue import METRICS
from tools.reference.functions import NUMBERS
from tools.reference.metrics import metrics_markdown, numbers_markdown
from tools.reference.run_schema import RUN_SCHEMA, run_schema_text
from tools.reference.sections import DOCS, outdated_pages, sections_of, with_generated_sections


def test_no_page_differs_from_the_code() -> None:
    assert list(outdated_pages()) == [], "run: python -m tools.reference"


def test_the_schema_of_run_json_is_that_of_the_manifest() -> None:
    assert RUN_SCHEMA.read_text(encoding="utf-8") == run_schema_text(), "run: python -m tools.reference"


def test_the_table_of_metrics_is_in_the_documentation_once() -> None:
    names = [name for page in DOCS.rglob("*.md") for name in sections_of(page.read_text(encoding="utf-8"))]
    assert names.count("metrics") == 1


def test_each_metric_and_number_is_one_row() -> None:
    for text, rows in ((metrics_markdown(), len(METRICS)), (numbers_markdown(), len(NUMBERS))):
        lines = text.splitlines()
        assert len(lines) == rows + 2
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_a_section_is_replaced_and_the_rest_of_the_page_stays() -> None:
    page = "before\n<!-- generated: metrics -->\nold\n<!-- end of metrics -->\nafter\n"
    text = with_generated_sections(page)
    assert text == f"before\n<!-- generated: metrics -->\n\n{metrics_markdown()}\n<!-- end of metrics -->\nafter\n"
    assert with_generated_sections(text) == text


def test_an_unknown_section_is_an_error() -> None:
    with pytest.raises(KeyError):
        with_generated_sections("<!-- generated: other -->\n<!-- end of other -->\n")
