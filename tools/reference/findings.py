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
    engine,
    in_flight,
    load,
    outcomes,
    server,
    simulation,
    target,
)
from reports.findings.checks import KINDS
from reports.findings.client_delay import REMEDIES
from reports.findings.finding import Finding

_THEMES: tuple[tuple[str, tuple[ModuleType, ...]], ...] = (
    ("The client", (client, calibration)),
    ("Workers on other hosts", (distribution,)),
    ("The target", (target, engine, simulation)),
    ("The load", (load, in_flight)),
    ("The answers", (outcomes, cancellations)),
    ("Numbers that must agree", (consistency, server)),
    ("Completeness of the run", (completeness,)),
)
_OPTION = re.compile(r"--\w+")
_REMEDIES = "By its cause: [Why the client was late](#why-the-client-was-late)."


def findings_markdown() -> str:
    """A heading and a table for each theme, with a row for each kind of ``reports.findings.checks.KINDS``; and the remedies for
    a late client, which several kinds share.
    """
    return "\n".join([*(f"## {title}\n\n{_table(modules)}" for title, modules in _THEMES), _remedies()])


def _remedies() -> str:
    rows = [f"| {cause.value} | {_with_options(remedy.advice)} |" for cause, remedy in REMEDIES.items()]
    return "\n".join(["## Why the client was late", "", "| cause | remedy |", "| --- | --- |", *rows, ""])


def _table(modules: tuple[ModuleType, ...]) -> str:
    names = [module.__name__ for module in modules]
    rows = [_row(kind) for kind in KINDS if kind.__module__ in names]
    return "\n".join(["| code | severity | condition | advice |", "| --- | --- | --- | --- |", *rows, ""])


def _row(kind: type[Finding]) -> str:
    shared = {remedy.advice for remedy in REMEDIES.values()}
    own = [_with_options(text) for text in kind.advices if text not in shared]
    advice = "<br>".join([_REMEDIES, *own] if len(own) < len(kind.advices) else own)
    cells = (f"`{kind.code}`", ", ".join(kind.severities), _with_options(kind.when), advice)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _with_options(text: str) -> str:
    """The text with its options as code."""
    return _OPTION.sub(r"`\g<0>`", text)
