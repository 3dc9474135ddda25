"""Markdown tables of the documentation that are generated from the kinds of findings."""

from __future__ import annotations

import re
from types import ModuleType

from reports.findings import (
    calibration,
    cancellations,
    client,
    completeness,
    consistency,
    distribution,
    in_flight,
    load,
    outcomes,
    server,
    target,
)
from reports.findings.checks import KINDS
from reports.findings.finding import Finding

_THEMES: tuple[tuple[str, tuple[ModuleType, ...]], ...] = (
    ("The client", (client, calibration)),
    ("Workers on other hosts", (distribution,)),
    ("The target", (target,)),
    ("The load", (load, in_flight)),
    ("The answers", (outcomes, cancellations)),
    ("Numbers that must agree", (consistency, server)),
    ("Completeness of the run", (completeness,)),
)
_OPTION = re.compile(r"--\w+")


def findings_markdown() -> str:
    """A heading and a table for each theme, with a row for each kind of ``reports.findings.checks.KINDS``."""
    return "\n".join(f"## {title}\n\n{_table(modules)}" for title, modules in _THEMES)


def _table(modules: tuple[ModuleType, ...]) -> str:
    names = [module.__name__ for module in modules]
    rows = [_row(kind) for kind in KINDS if kind.__module__ in names]
    return "\n".join(["| code | severity | condition | advice |", "| --- | --- | --- | --- |", *rows, ""])


def _row(kind: type[Finding]) -> str:
    advice = "<br>".join(_OPTION.sub(r"`\g<0>`", text) for text in kind.advices)
    cells = (f"`{kind.code}`", ", ".join(kind.severities), _OPTION.sub(r"`\g<0>`", kind.when), advice)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
