"""The generated sections of the documentation, and the pages that hold them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from tools.reference.columns import (
    chunk_columns_markdown,
    client_columns_markdown,
    computed_columns_markdown,
    phase_columns_markdown,
    request_columns_markdown,
    server_columns_markdown,
)
from tools.reference.findings import findings_markdown
from tools.reference.metrics import criteria_markdown, metrics_markdown, numbers_markdown
from tools.reference.numbers import paths_markdown

DOCS = Path(__file__).parents[2] / "docs"
SECTIONS: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "findings": findings_markdown,
        "metrics": metrics_markdown,
        "criteria": criteria_markdown,
        "numbers": numbers_markdown,
        "paths": paths_markdown,
        "request_columns": request_columns_markdown,
        "computed_columns": computed_columns_markdown,
        "chunk_columns": chunk_columns_markdown,
        "phase_columns": phase_columns_markdown,
        "client_columns": client_columns_markdown,
        "server_columns": server_columns_markdown,
    }
)
_SECTION = re.compile(r"(<!-- generated: (?P<name>\w+) -->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL)


def sections_of(text: str) -> list[str]:
    """The names of the generated sections of a page, in their order."""
    return [match["name"] for match in _SECTION.finditer(text)]


def with_generated_sections(text: str) -> str:
    """The page with each generated section as the code renders it now. Raises KeyError for an unknown name."""
    return _SECTION.sub(lambda match: f"{match[1]}\n{SECTIONS[match['name']]()}\n{match[3]}", text)


def outdated_pages() -> dict[Path, str]:
    """The pages below docs/ whose generated sections differ from the code, with the text that they should have."""
    texts = {page: page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md"))}
    return {page: renewed for page, text in texts.items() if (renewed := with_generated_sections(text)) != text}
