"""``bench explain``: a metric or a finding in a few lines, from the texts that the documentation has."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.suggestions import near_names
from bench_errors import ExitStatus

if TYPE_CHECKING:
    from reports.glossary import Explanation

_WIDTH = 80
_STATISTIC = re.compile(r"^(?:p\d+(?:_\d+)?|mean)_")  # of a criterion: p99_ttft


@cloup.command(
    name="explain",
    epilog="""\b
Examples:
  bench explain slip
  bench explain queue_growing
  bench explain "Little's law"
  bench explain""",
)
@cloup.argument(
    "name",
    required=False,
    help="A metric, such as slip or p99_ttft; the code of a finding, or words of its line. Without it all are listed.",
)
def command(name: str | None) -> int:
    """Explain a metric or a finding: what it is, when it comes, and what to do."""
    from reports.glossary import of_findings, of_metrics, with_words

    metrics, findings = of_metrics(), of_findings()
    explanations = {**metrics, **findings}
    if name is None:
        click.echo(_listed("Metrics", metrics) + "\n\n" + _listed("Findings", findings))
        return ExitStatus.VALID
    key = name.lower().replace("-", "_").removesuffix("_ms")
    key = key if key in explanations else _STATISTIC.sub("", key)
    found = [explanations[key]] if key in explanations else with_words(name)
    if not found:
        near = near_names(key, explanations)
        hint = f"did you mean {near[0]!r}?" if near else "'bench explain' lists them"
        raise click.UsageError(f"{name!r} is no metric and no finding; {hint}")
    click.echo("\n\n".join(map(_text, found)))
    return ExitStatus.VALID


def _text(explanation: Explanation) -> str:
    filled = [textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="  ") for text in explanation.paragraphs]
    return "\n".join([explanation.title, *filled])


def _listed(title: str, names: Iterable[str]) -> str:
    return f"{title}:\n" + textwrap.fill(", ".join(names), _WIDTH, initial_indent="  ", subsequent_indent="  ")
