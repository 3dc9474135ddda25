"""``bench explain``: a metric or a finding in a few lines, from the texts that the documentation has."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import click
import cloup

from bench_cli.suggestions import near_names
from bench_errors import ExitStatus

_WIDTH = 80


@cloup.command(
    name="explain",
    epilog="""\b
Examples:
  bench explain slip
  bench explain queue_growing
  bench explain""",
)
@cloup.argument("name", required=False, help="A metric, such as slip, or the code of a finding. Without it all are listed.")
def command(name: str | None) -> int:
    """Explain a metric or a finding: what it is, when it comes, and what to do."""
    from reports.glossary import of_findings, of_metrics

    metrics, findings = of_metrics(), of_findings()
    explanations = {**metrics, **findings}
    if name is None:
        click.echo(_listed("Metrics", metrics) + "\n\n" + _listed("Findings", findings))
        return ExitStatus.VALID
    key = name.lower().removesuffix("_ms").replace("-", "_")
    if key not in explanations:
        near = near_names(key, explanations)
        hint = f"did you mean {near[0]!r}?" if near else "'bench explain' lists them"
        raise click.UsageError(f"{name!r} is no metric and no finding; {hint}")
    explanation = explanations[key]
    filled = [textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="  ") for text in explanation.paragraphs]
    click.echo("\n".join([explanation.title, *filled]))
    return ExitStatus.VALID


def _listed(title: str, names: Iterable[str]) -> str:
    return f"{title}:\n" + textwrap.fill(", ".join(names), _WIDTH, initial_indent="  ", subsequent_indent="  ")
