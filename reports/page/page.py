"""A page as data, and as one self-contained HTML file: sections of findings, tables and pictures.

It is independent of runs, so that all pages of the reports use it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from reports.page.encoding import encode, script_json
from reports.page.terms import Terms
from reports.render.counts import counted
from reports.render.picture import Picture
from reports.render.plain_text import printable
from reports.render.tables import Link, LowerBound, Quantity, Table, cell_text

_PICTURE_SCRIPTS = ("drawing.js", "values.js", "tools.js", "pictures.js")
_BOKEH = ("bokeh.min.js", "bokeh-api.min.js")


@dataclass(frozen=True)
class Card:
    """A number at the top of the page. ``interval`` is its interval, or why it has none."""

    title: str
    value: str
    unit: str
    interval: str


@dataclass(frozen=True)
class Remark:
    """A finding, or disagreements of one weight. ``severity`` (invalid, warning or note) is its style, too; each text has a
    line.
    """

    severity: str
    texts: tuple[str, ...]
    advice: str
    code: str


@dataclass(frozen=True)
class Note:
    """A paragraph."""

    text: str


Block = Table | Picture | Note | tuple[Remark, ...]


@dataclass(frozen=True)
class Section:
    """``pairs``: two neighbouring pictures are placed side by side where there is room."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    pairs: bool = False


class Tone(StrEnum):
    """The colour of a verdict, from the best to the worst."""

    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"


@dataclass(frozen=True)
class Page:
    """``facts`` are (name, text); ``verdict`` is one sentence, ``tone`` its colour, ``aside`` a reservation beside it.

    ``terms`` are explanations of names in cards, tables and findings, as plain text.
    """

    title: str
    lead: str
    facts: tuple[tuple[str, str], ...]
    verdict: str
    tone: Tone
    aside: str
    cards: tuple[Card, ...]
    sections: tuple[Section, ...]
    footer: str
    terms: Mapping[str, str] = field(default_factory=dict)


def write_page(page: Page, path: Path) -> None:
    """Write the file, self-contained. Raises OSError."""
    path.write_text(render_page(page), encoding="utf-8")


def render_page(page: Page) -> str:
    """The HTML. Text from outside is escaped, and the page's policy allows only our own scripts."""
    pictures = list(_pictures(page.sections))
    scripts = [_own("page.js"), *((*_bokeh(), *map(_own, _PICTURE_SCRIPTS)) if pictures else ())]
    theme = _own("theme.js")
    return _template().render(
        page=page,
        terms=Terms(page.terms),
        policy=_policy([theme, *scripts]),
        css=Markup(_own("page.css")),  # noqa: S704 – our own file
        theme=Markup(theme),  # noqa: S704 – our own file
        scripts=[Markup(script) for script in scripts],  # noqa: S704 – our own files, and Bokeh's
        pictures=Markup(script_json(encode(pictures))) if pictures else None,  # noqa: S704 – escaped by script_json
    )


@cache
def _template() -> Template:
    """The page's template, which needs ``page`` and ``terms``, compiled once."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown)
    environment.filters["cell"] = cell_text
    environment.filters["counted"] = counted
    environment.tests["link"] = lambda cell: isinstance(cell, Link)
    environment.tests["quantity"] = lambda cell: isinstance(cell, Quantity)
    environment.tests["bound"] = lambda cell: isinstance(cell, LowerBound)
    environment.tests["table"] = lambda block: isinstance(block, Table)
    environment.tests["picture"] = lambda block: isinstance(block, Picture)
    environment.tests["note"] = lambda block: isinstance(block, Note)
    environment.filters["rows"] = _rows
    return environment.from_string(_own("page.html.j2"))


def _shown(value: Any) -> Any:
    """The printable form of a template expression's value; our own scripts and markup are not changed."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _pictures(sections: Sequence[Section]) -> Iterator[Picture]:
    return (block for section in sections for block in section.blocks if isinstance(block, Picture))


def _rows(blocks: Sequence[Block], pairs: bool) -> list[list[Any]]:
    """Rows of blocks: two neighbouring pictures in a row if ``pairs``, else one block."""
    rows: list[list[Any]] = []
    for block in blocks:
        beside = pairs and isinstance(block, Picture) and rows and len(rows[-1]) == 1 and isinstance(rows[-1][0], Picture)
        if beside:
            rows[-1].append(block)
        else:
            rows.append([block])
    return rows


def _policy(scripts: Sequence[str]) -> str:
    """A content security policy that allows these scripts only, and loads nothing."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"


def _own(name: str) -> str:
    return files("reports.page").joinpath(name).read_text(encoding="utf-8")


@cache
def _bokeh() -> tuple[str, ...]:
    """Bokeh's scripts from its package, which is not imported. Raises ModuleNotFoundError."""
    spec = find_spec("bokeh")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("bokeh is not installed; it draws the pictures of reports: pip install bokeh")
    folder = Path(spec.origin).parent / "server" / "static" / "js"
    return tuple((folder / name).read_text(encoding="utf-8").replace("</script", "<\\/script") for name in _BOKEH)
