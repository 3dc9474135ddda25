"""A search for capacity as one self-contained page that opens without a network."""

from __future__ import annotations

from collections.abc import Iterator

from reports.capacity.answer import answer, cost, details, named
from reports.capacity.pictures import capacity_pictures
from reports.capacity.result import Capacity, Ended, LoadUnit
from reports.capacity.search import Shape
from reports.capacity.tables import commands_table, probes_table, tiers_table
from reports.capacity.words import certified_number, confidence_text, load_number, precision_text, refused_number, time_text
from reports.glossary import terms
from reports.page.page import Block, Card, Note, Page, Section, Tone
from reports.render.plain_text import printable

_CLEAR = (Shape.CROSSING, Shape.CLIFF, Shape.ALWAYS_HELD)


def capacity_page(capacity: Capacity) -> Page:
    """The content of the page, in its order. Its links lead to the runs beside it."""
    sections = (
        Section("tiers", "Tiers", (tiers_table(capacity),) if len(capacity.tiers) > 1 else ()),
        Section("answer", "What it means", tuple(_sentences(capacity))),
        Section("curve", "Requests beyond the limit", capacity_pictures(capacity), pairs=True),
        Section("probes", "Probes", (probes_table(capacity),) if capacity.probes else ()),
        Section("runs", "Runs", (commands_table(capacity),) if capacity.probes else ()),
    )
    return Page(
        title="Capacity",
        lead=printable(f"bench {capacity.measured}"),
        facts=_facts(capacity),
        verdict=answer(capacity),
        tone=_tone(capacity),
        aside="",
        cards=tuple(_cards(capacity)),
        sections=tuple(section for section in sections if section.blocks),
        footer="Drag in a picture to zoom, double-click to reset. Arrow keys step through the picture that has the focus. "
        "Click a series to hide it, a column's head to sort. How capacity is found: "
        "docs/explanation/capacity.md of inflight-bench.",
        terms=terms(),
    )


def _sentences(capacity: Capacity) -> Iterator[Block]:
    for tier in capacity.tiers:
        sentences = details(capacity, tier)
        for text in sentences if tier.name is None else filter(None, [" ".join(sentences)]):
            yield Note(named(tier, text))
    yield Note(cost(capacity))


def _tone(capacity: Capacity) -> Tone:
    """GOOD where each tier has a certified load and a bracket as precise as requested, or nothing was too much."""
    brackets = [tier.bracket for tier in capacity.tiers]
    if all(bracket.certified is None and bracket.refused is not None for bracket in brackets):
        return Tone.BAD
    clear = all(bracket.certified is not None and bracket.shape in _CLEAR for bracket in brackets)
    return Tone.GOOD if clear and capacity.ended is not Ended.TARGET_FAILED else Tone.CAUTION


def _facts(capacity: Capacity) -> tuple[tuple[str, str], ...]:
    goal = capacity.tiers[0].goal
    budget = "unlimited" if capacity.budget_s is None else time_text(capacity.budget_s)
    return (
        ("Limits", ", ".join(map(str, capacity.limits))),
        ("Confidence of the search", confidence_text(goal.confidence)),
        ("Requested precision", precision_text(goal.ratio)),
        ("Probes", str(len(capacity.probes))),
        ("Requests", f"{capacity.requests:,}"),
        ("Time, budget", f"{time_text(capacity.seconds if capacity.spent_s is None else capacity.spent_s)}, {budget}"),
    )


def _cards(capacity: Capacity) -> Iterator[Card]:
    """What holds in the first tier, what fails, and what the target does at the load that holds."""
    tier, unit = capacity.tiers[0], capacity.unit
    bracket, sure = tier.bracket, confidence_text(tier.goal.confidence)
    of_tier = "" if tier.name is None else f"{printable(tier.name)}; "
    if bracket.certified is not None:
        yield Card("Holds", load_number(certified_number(bracket.certified, unit)), unit.value, f"{of_tier}certified, {sure}")
    if bracket.refused is not None:
        yield Card("Fails at", load_number(refused_number(bracket.refused, unit)), unit.value, f"{of_tier}refused, {sure}")
    if bracket.certified is None:
        return
    if tier.users is not None and unit is not LoadUnit.USERS:
        yield Card("Users at once", load_number(tier.users), "", "at the load that holds, by Little's law")
    if tier.goodput is not None:
        yield Card("Goodput", load_number(tier.goodput), "requests/s", "at the load that holds")
    if tier.output_token_throughput is not None:
        yield Card("Output tokens", load_number(tier.output_token_throughput), "tokens/s", "at the load that holds")
