"""A comparison as one self-contained page that opens without a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reports.compare.comparable import Weight
from reports.compare.comparison import Arm, ArmComparison, Comparison
from reports.compare.difference import Difference, Verdict
from reports.compare.lines import groups
from reports.compare.pictures import change_picture, latency_pictures, quantile_difference_picture
from reports.compare.tables import (
    SETTINGS,
    change_text,
    conditions_table,
    difference_table,
    headline,
    interval_text,
    judged_apart,
    notes,
    runs_text,
)
from reports.glossary import terms
from reports.page.page import Block, Card, Note, Page, Remark, Section, Tone
from reports.render.counts import counted
from reports.render.plain_text import printable

_HEADLINES = (("p99_ttft", "p50_ttft"), ("p99_e2e", "p50_e2e"), ("request_throughput",), ("output_token_throughput",))
_SEVERITIES = {Weight.REFUSE: "invalid", Weight.WARN: "warning", Weight.CHANGED: "note", Weight.NOTE: "note"}


def comparison_page(comparison: Comparison) -> Page:
    """The content of the page, in its order."""
    first = comparison.comparisons[0]
    return Page(
        title=printable(" against ".join(arm.name for arm in reversed(comparison.arms))),
        lead=printable(f"A is {first.baseline.name}; all others are compared with it. {judged_apart(comparison)}".strip()),
        facts=tuple((printable(arm.name), _facts(arm)) for arm in comparison.arms),
        verdict=printable(" ".join(headline(pair) for pair in comparison.comparisons)),
        tone=max(map(_tone, comparison.comparisons), key=list(Tone).index),
        aside="",
        cards=_cards(comparison.comparisons),
        sections=(
            *(section for number, pair in enumerate(comparison.comparisons) for section in _sections(pair, number)),
            Section("latency", "Latency", latency_pictures(comparison), pairs=True),
        ),
        terms=terms(),
        footer="Drag in a picture to zoom, double-click to reset. Click a series to hide it, a column's head to sort. "
        "How differences are judged: docs/explanation/comparison.md of inflight-bench.",
    )


def _cards(pairs: Sequence[ArmComparison]) -> tuple[Card, ...]:
    """The headline changes of each arm, with its name where there are several."""
    if len(pairs) == 1:
        return difference_cards(pairs[0].differences)
    return tuple(
        replace(card, title=printable(f"{card.title}, {pair.arm.name}"))
        for pair in pairs
        for card in difference_cards(pair.differences)
    )


def _facts(arm: Arm) -> str:
    target = arm.runs[0].manifest.target
    done = counted(sum(run.metrics.done for run in arm.runs), "successful request")
    return printable(f"{runs_text(arm)}, {done}; {target.model or 'unknown model'} over {target.protocol or '?'}")


def _tone(pair: ArmComparison) -> Tone:
    if any(result.failed for result in pair.conditions):
        return Tone.BAD
    return Tone.CAUTION if pair.inconclusive else tone_of(pair.verdict)


def tone_of(verdict: str) -> Tone:
    """The tone of a verdict; those of single starts, mixed and unknown ones are left to the reader to weigh."""
    if verdict == Verdict.WORSE:
        return Tone.BAD
    return Tone.GOOD if verdict in (Verdict.BETTER, Verdict.NONE) else Tone.CAUTION


def difference_cards(differences: Sequence[Difference]) -> tuple[Card, ...]:
    """The headline changes: of each group of measures, the first with an interval."""
    by_name = {d.measure.name: d for d in differences}
    headlines = []
    for names in _HEADLINES:
        known = [by_name[name] for name in names if name in by_name]
        headlines += [d for d in known if d.interval is not None][:1] or known[:1]
    return tuple(map(_card, headlines))


def _card(d: Difference) -> Card:
    """The change of one measure."""
    interval = f"95 %: {interval_text(d)}" if d.interval is not None else f"no interval: {interval_text(d)}"
    return Card(d.measure.title, change_text(d.measure, d.change), "", f"{interval}; {d.verdict.value}")


def _sections(pair: ArmComparison, number: int) -> list[Section]:
    name = f"arm{number + 1}"
    pictures = [change_picture(pair, name), quantile_difference_picture(pair, name)]
    blocks: list[Block] = [
        difference_table(pair, f"{name}-differences"),
        *map(Note, notes(pair)),
        *(p for p in pictures if p is not None),
    ]
    sections = [Section(name, printable(f"{pair.arm.name} against A"), tuple(blocks), pairs=True)]
    remarks = tuple(
        Remark(_SEVERITIES[group.weight], tuple(map(str, group.lines)), group.advice, group.weight.value)
        for group in groups(pair.disagreements)
    )
    if remarks:
        sections.append(Section(f"{name}-settings", SETTINGS, (remarks,)))
    if pair.conditions:
        table = conditions_table(pair.conditions, f"{name}-conditions")
        sections.append(Section(f"{name}-conditions-section", "Conditions", (table,)))
    return sections
