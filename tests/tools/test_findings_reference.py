"""The page of findings is what the code renders."""

from __future__ import annotations

import re
from pathlib import Path

from reports.findings.checks import KINDS
from tools.reference.findings import findings_markdown

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "findings.md"


def test_the_page_has_the_section_that_the_code_renders() -> None:
    section = f"<!-- generated: findings -->\n\n{findings_markdown()}\n<!-- end of findings -->\n"
    assert section in _PAGE.read_text(encoding="utf-8")


def test_every_kind_has_one_row_with_its_severities_condition_and_advice() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \| (.+) \| (.+) \|$", findings_markdown(), re.MULTILINE)
    assert sorted(code for code, *_ in rows) == sorted(kind.code for kind in KINDS)
    kinds = {kind.code: kind for kind in KINDS}
    for code, severities, condition, advice in rows:
        assert tuple(severities.split(", ")) == kinds[code].severities
        assert condition.replace("`", "") == kinds[code].when.replace("`", "")
        assert tuple(advice.replace("`", "").split("<br>")) == kinds[code].advices


def test_every_row_has_four_cells() -> None:
    rows = [line for line in findings_markdown().splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
