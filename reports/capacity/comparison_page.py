"""A comparison of two searches for capacity as one self-contained page, and its formats."""

from __future__ import annotations

from collections.abc import Iterator

from reports.capacity.answer import answer
from reports.capacity.comparison import (
    CapacityComparison,
    NamedSearch,
    Order,
    TierComparison,
    both_confidence,
    change_text,
    verdict,
)
from reports.capacity.comparison_formats import (
    comparison_document,
    comparison_table,
    csv_rows,
    full_document,
    terminal_document,
)
from reports.capacity.pictures import Side, sides_picture
from reports.glossary import terms
from reports.page.formats import Formats
from reports.page.page import Card, Note, Page, Section, Tone
from reports.render.picture import Colour, Picture
from reports.render.plain_text import printable

_TONES = {Order.MORE: Tone.GOOD, Order.LESS: Tone.BAD, Order.UNDECIDED: Tone.CAUTION}


def comparison_page(comparison: CapacityComparison) -> Page:
    """The content of the page, in its order."""
    searches = (comparison.a, comparison.b)
    return Page(
        title=printable(f"Capacity: {comparison.b.name} against {comparison.a.name}"),
        lead=printable(f"A is {comparison.a.name}, B is {comparison.b.name}."),
        facts=tuple(
            (f"{side} measured", printable(f"bench {search.capacity.measured}"))
            for search, side in zip(searches, "AB", strict=True)
        ),
        verdict=verdict(comparison),
        tone=max((_TONES[tier.order] for tier in comparison.tiers), key=list(Tone).index),
        aside="",
        cards=tuple(map(_card, comparison.tiers)),
        sections=(
            Section("searches", "Searches", (comparison_table(comparison), *_answers(searches))),
            Section("curves", "Requests beyond the limit", tuple(_pictures(comparison)), pairs=True),
        ),
        footer="Drag in a picture to zoom, double-click to reset. Click a series to hide it. How capacity is found: "
        "docs/explanation/capacity.md of inflight-bench.",
        terms=terms(),
    )


def _answers(searches: tuple[NamedSearch, NamedSearch]) -> tuple[Note, ...]:
    return tuple(Note(printable(f"{search.name}: {answer(search.capacity)}")) for search in searches)


def _card(tier: TierComparison) -> Card:
    of_tier = "Capacity" if tier.name is None else printable(f"Capacity, {tier.name}")
    return Card(of_tier, change_text(tier), "", f"{both_confidence(tier)}; {tier.order}")


def _pictures(comparison: CapacityComparison) -> Iterator[Picture]:
    """The probes and curves of both searches, for each limit of each tier."""
    for number, tier in enumerate(comparison.tiers):
        sides = (
            Side("A", Colour.BLUE, comparison.a.capacity, tier.a),
            Side("B", Colour.ORANGE, comparison.b.capacity, tier.b),
        )
        for place, position in enumerate(tier.a.goal.limits):
            yield sides_picture(sides, place, f"share-{number + 1}-{position + 1}")


CAPACITY_COMPARISON = Formats[CapacityComparison](
    "compare",
    terminal_document,
    full_document,
    comparison_document,
    csv_rows,
    lambda comparison, _: comparison_page(comparison),
)
