"""A comparison of two searches for capacity as one self-contained page, and all its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from reports.capacity.answer import answer
from reports.capacity.comparison import CapacityComparison, NamedSearch, Order, TierComparison, change_text, verdict
from reports.capacity.comparison_formats import (
    comparison_table,
    write_comparison_csv,
    write_comparison_json,
    write_comparison_markdown,
)
from reports.capacity.pictures import curve_of, floor_of, load_axis, whiskers_of
from reports.capacity.words import allowed_text, beyond_text, confidence_text
from reports.glossary import terms
from reports.page.page import Card, Note, Page, Section, Tone, write_page
from reports.render.formats import Writers
from reports.render.picture import Axis, Band, Colour, Line, Mark, Picture, Stroke
from reports.render.plain_text import printable

_TONES = {Order.MORE: Tone.GOOD, Order.LESS: Tone.BAD, Order.UNDECIDED: Tone.CAUTION}
_SIDES = (("A", Colour.BLUE), ("B", Colour.ORANGE))


def write_comparison_html(comparison: CapacityComparison, path: Path) -> None:
    """Write the page. Raises OSError."""
    write_page(comparison_page(comparison), path)


COMPARISON_WRITERS: Writers[CapacityComparison] = {
    ".json": write_comparison_json,
    ".csv": write_comparison_csv,
    ".md": write_comparison_markdown,
    ".html": write_comparison_html,
}


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
    return Card(of_tier, change_text(tier), "", f"{confidence_text(tier.confidence)}; {tier.order}")


def _pictures(comparison: CapacityComparison) -> Iterator[Picture]:
    """The probes and curves of both searches, for each limit of each tier."""
    for number, tier in enumerate(comparison.tiers):
        for place, position in enumerate(tier.a.goal.limits):
            yield _picture(comparison, tier, place, f"share-{number + 1}-{position + 1}")


def _picture(comparison: CapacityComparison, tier: TierComparison, place: int, name: str) -> Picture:
    limit, allowed = comparison.a.capacity.limits[tier.a.goal.limits[place]], tier.a.goal.allowed[place]
    sides = [
        (side, colour, search.capacity, of_side, of_side.goal.limits[place])
        for (side, colour), search, of_side in zip(_SIDES, (comparison.a, comparison.b), (tier.a, tier.b), strict=True)
    ]
    loads = [run.probe.load for *_, found, _, _ in sides for run in found.probes] or [1.0]
    ends = (min(loads) / 1.05, max(loads) * 1.05)
    floor = min(floor_of(found.probes, position, allowed) for *_, found, _, position in sides)
    marks: list[Mark] = []
    for side, colour, found, of_side, position in sides:
        bracket = of_side.bracket
        if bracket.certified is not None and bracket.refused is not None:
            marks.append(Band(f"bracket of {side}", bracket.certified, bracket.refused, colour))
        curve = bracket.curves[place] if bracket.curves else None
        marks += [*curve_of(curve, ends, floor, f"curve of {side}", colour)]
        marks += [*whiskers_of(found.probes, position, floor, f"probes of {side}", colour)]
    allowed_line = Line(
        f"allowed: {allowed_text(allowed)}", np.array(ends), np.full(2, 100.0 * allowed), Colour.GREY, Stroke.DASHED
    )
    of_tier = "" if tier.name is None else f" ({printable(tier.name)})"
    return Picture(
        name,
        f"Requests {beyond_text(limit)}, against load{of_tier}",
        "Bars are 95 % intervals of one probe. Overloaded probes, and those that are not valid, are left out.",
        load_axis(comparison.unit, loads),
        Axis("requests beyond the limit", "%", log=True),
        (*marks, allowed_line),
    )
