"""The explanation of every metric and finding, for ``bench explain`` and the pages, from the texts of the documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from reports.findings.checks import KINDS
from reports.findings.finding import Finding
from reports.metrics.catalogue import METRICS
from reports.metrics.metric import Metric

_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Plain text: what a name stands for, and paragraphs about it."""

    title: str
    paragraphs: tuple[str, ...]

    @property
    def text(self) -> str:
        """A line for the title and each paragraph."""
        return "\n".join([self.title, *self.paragraphs])


def of_metrics() -> Mapping[str, Explanation]:
    """The explanation of each metric, by its name in the grammar of criteria."""
    return {metric.name: _of_metric(metric) for metric in METRICS}


def of_findings() -> Mapping[str, Explanation]:
    """The explanation of each kind of finding, by its code."""
    return {kind.code: _of_finding(kind) for kind in KINDS}


def with_words(text: str) -> list[Explanation]:
    """The findings whose line on the terminal has ``text`` in it, in any case; else those whose condition or advice has it."""
    sought = " ".join(text.lower().split())
    if not sought:
        return []
    lines = [kind for kind in KINDS if any(sought in brief.lower() for brief in kind.briefs)]
    texts = [kind for kind in KINDS if any(sought in _plain(part).lower() for part in (kind.when, *kind.advices))]
    return [_of_finding(kind) for kind in lines or texts]


def terms() -> Mapping[str, str]:
    """The text for each name that pages show: labels of metrics and codes of findings.

    Counts of tokens are left out: their labels are plain words, which occur in other names, too.
    """
    named = [metric for metric in METRICS if metric.unit != "tokens"]
    labels = {name: _of_metric(metric).text for metric in named for name in (metric.label, metric.short) if name}
    return labels | {code: explanation.text for code, explanation in of_findings().items()}


def _of_metric(metric: Metric) -> Explanation:
    title = f"{metric.full_name} ({metric.table_unit})" if metric.unit != "–" else metric.full_name
    better = () if metric.better is None else (f"Better: {metric.better.value}.",)
    return Explanation(title, (f"{_plain(metric.definition)}.", *better))


def _of_finding(kind: type[Finding]) -> Explanation:
    severities = " or ".join(severity.value for severity in kind.severities)
    return Explanation(f"{kind.code} ({severities})", (f"When: {_plain(kind.when)}.", *map(_plain, kind.advices)))


def _plain(markdown: str) -> str:
    """The text without Markdown's marks."""
    return _LINK.sub(r"\1", markdown).replace("`", "")
