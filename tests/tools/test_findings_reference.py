"""The page of findings is what the code renders."""

from __future__ import annotations

import re
from pathlib import Path

from reports.findings.checks import KINDS
from reports.findings.client_delay import REMEDIES
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
        shown = set(re.sub(r"^By its cause: .*?\)\.", "", advice.replace("`", "")).split("<br>")) - {""}
        remedies = {remedy.advice for remedy in REMEDIES.values()} if advice.startswith("By its cause") else set()
        assert shown | (remedies & set(kinds[code].advices)) == set(kinds[code].advices)


def test_the_remedies_that_kinds_share_are_given_once() -> None:
    text = findings_markdown().replace("`", "")
    assert {text.count(remedy.advice) for remedy in REMEDIES.values()} == {1}


def test_every_row_has_four_cells() -> None:
    rows = [line for line in findings_markdown().splitlines() if line.startswith("| `")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
