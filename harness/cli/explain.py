"""``bench explain``: a metric or a finding in a few lines, from the texts that the documentation has."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

import click
import cloup

from bench_errors import ExitStatus
from harness.cli.suggestions import near_names

_WIDTH = 80
_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")


@cloup.command(
    name="explain",
    short_help="Explain a metric or a finding.",
    epilog="""\b
Examples:
  bench explain slip
  bench explain queue_growing
  bench explain""",
)
@cloup.argument("name", required=False, help="A metric, such as slip, or the code of a finding. Without it all are listed.")
def command(name: str | None) -> int:
    """Explain a metric or a finding: what it is, when it comes, and what to do."""
    texts = _metrics() | _findings()
    if name is None:
        click.echo(_listed("Metrics", list(_metrics())) + "\n\n" + _listed("Findings", list(_findings())))
        return ExitStatus.VALID
    key = name.lower().removesuffix("_ms").replace("-", "_")
    if key not in texts:
        near = near_names(key, texts)
        hint = f"did you mean {near[0]!r}?" if near else "'bench explain' lists them"
        raise click.UsageError(f"{name!r} is no metric and no finding; {hint}")
    click.echo(texts[key])
    return ExitStatus.VALID


def _metrics() -> dict[str, str]:
    """The text of each metric, by its name in the grammar of criteria."""
    from reports.metrics.catalogue import METRICS

    return {
        metric.name: _paragraphs(
            f"{metric.full_name} ({metric.table_unit})" if metric.unit != "–" else metric.full_name,
            [f"{_plain(metric.definition)}.", "" if metric.better is None else f"Better: {metric.better.value}."],
        )
        for metric in METRICS
    }


def _findings() -> dict[str, str]:
    """The text of each kind of finding, by its code."""
    from reports.findings.checks import KINDS

    return {
        kind.code: _paragraphs(
            f"{kind.code} ({' or '.join(severity.value for severity in kind.severities)})",
            [f"When: {_plain(kind.when)}.", *map(_plain, kind.advices)],
        )
        for kind in KINDS
    }


def _paragraphs(title: str, texts: Sequence[str]) -> str:
    filled = [textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="  ") for text in texts if text]
    return "\n".join([title, *filled])


def _plain(markdown: str) -> str:
    """The text without Markdown's marks."""
    return _LINK.sub(r"\1", markdown).replace("`", "")


def _listed(title: str, names: list[str]) -> str:
    return f"{title}:\n" + textwrap.fill(", ".join(names), _WIDTH, initial_indent="  ", subsequent_indent="  ")
