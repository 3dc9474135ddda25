"""A comparison of two searches for capacity as a document, as JSON and as rows of CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.capacity.comparison import CapacityComparison, NamedSearch, TierComparison, change_text, verdict
from reports.capacity.tables import load_cell
from reports.capacity.words import bracket_text
from reports.render.document import Code, Document, Heading, Notes, Paragraph
from reports.render.plain_text import printable, spreadsheet_text
from reports.render.tables import Table

SCHEMA = 1
_COLUMNS = ("search", "tier", "unit", "certified", "refused", "estimate", "users", "goodput", "output_token_throughput")


def terminal_document(comparison: CapacityComparison) -> Document:
    """The document for a terminal, in at most 100 columns."""
    changed = (
        Notes(
            (
                ("A measured ", Code(f"bench {comparison.a.capacity.measured}")),
                ("B measured ", Code(f"bench {comparison.b.capacity.measured}")),
            )
        ),
    )
    return (
        Paragraph(verdict(comparison), is_answer=True),
        comparison_table(comparison),
        *(changed if comparison.changed else ()),
    )


def full_document(comparison: CapacityComparison) -> Document:
    """The same for a pull request."""
    return Heading(f"Capacity: {comparison.b.name} (B) against {comparison.a.name} (A)"), *terminal_document(comparison)


def comparison_table(comparison: CapacityComparison) -> Table:
    """Two rows for each tier: A, then B with the change."""
    unit = comparison.unit
    tiers = [(side, tier, of_side) for tier in comparison.tiers for side, of_side in (("A", tier.a), ("B", tier.b))]
    names = {"A": comparison.a.name, "B": comparison.b.name}
    named = any(tier.name is not None for tier in comparison.tiers)
    return Table(
        "searches",
        "Searches",
        ("search", *(("tier",) if named else ()), f"{unit}", "estimate", "change", "users", "goodput/s", "tokens/s"),
        tuple(
            (
                printable(f"{side}: {names[side]}"),
                *((printable(of_side.name or ""),) if named else ()),
                bracket_text(of_side.bracket, unit).removesuffix(f" {unit}"),
                load_cell(of_side.bracket.estimate),
                change_text(tier) if side == "B" else "",
                load_cell(of_side.users),
                load_cell(of_side.goodput),
                load_cell(of_side.output_token_throughput),
            )
            for side, tier, of_side in tiers
        ),
        "Loads: the highest that is certified to the lowest that is refused. Users, goodput and tokens/s are those at the "
        "certified load.",
        widths=(24, *((12,) if named else ()), 14, 9, 18, 7, 9, 9),
    )


def comparison_document(comparison: CapacityComparison) -> dict[str, object]:
    """The JSON document; an unknown value is null."""
    return {
        "schema": SCHEMA,
        "verdict": verdict(comparison),
        "unit": comparison.unit.value,
        "a": _search(comparison.a),
        "b": _search(comparison.b),
        "tiers": [_tier(comparison, tier) for tier in comparison.tiers],
    }


def csv_rows(comparison: CapacityComparison) -> Iterator[Sequence[object]]:
    """The rows of the CSV file: the names of the columns, then one for each search and tier."""
    yield _COLUMNS
    for search in (comparison.a, comparison.b):
        for tier in search.capacity.tiers:
            name = None if tier.name is None else spreadsheet_text(tier.name)
            yield spreadsheet_text(search.name), name, comparison.unit.value, *tier.numbers.values()


def _search(search: NamedSearch) -> dict[str, object]:
    return {"name": search.name, "measured": search.capacity.measured, "requests": search.capacity.requests}


def _tier(comparison: CapacityComparison, tier: TierComparison) -> dict[str, object]:
    limits = [str(comparison.a.capacity.limits[position]) for position in tier.a.goal.limits]
    return {
        "name": tier.name,
        "limits": limits,
        "order": tier.order.value,
        "least_change": tier.least_change,
        "most_change": tier.most_change,
        "confidence": tier.confidence,
        "a": tier.a.numbers,
        "b": tier.b.numbers,
    }
