"""A search for capacity as a document: the answer first, then what it rests on."""

from __future__ import annotations

from reports.capacity.answer import answer, cost, details, named
from reports.capacity.result import Capacity
from reports.capacity.tables import commands_table, limits_note, probes_table, terminal_table, tiers_table
from reports.render.document import Block, Code, Document, Heading, Paragraph


def terminal_document(capacity: Capacity) -> Document:
    """The document for a terminal, in at most 100 columns."""
    note = Paragraph(limits_note(capacity) if capacity.probes else "")
    return (*_opening(capacity), terminal_table(capacity), note, Paragraph(cost(capacity)))


def full_document(capacity: Capacity) -> Document:
    """The document for a pull request: every number of the probes, and how to repeat them."""
    return (
        Heading(("Capacity: ", Code(f"bench {capacity.measured}"))),
        *_opening(capacity),
        probes_table(capacity),
        Paragraph(probes_table(capacity).note if capacity.probes else ""),
        Paragraph(cost(capacity)),
        commands_table(capacity),
    )


def _opening(capacity: Capacity) -> tuple[Block, ...]:
    """The answer, and the sentences of each tier."""
    sentences = (named(tier, " ".join(details(capacity, tier))) for tier in capacity.tiers if details(capacity, tier))
    tiers = (tiers_table(capacity),) if len(capacity.tiers) > 1 else ()
    return (Paragraph(answer(capacity), is_answer=True), *tiers, *map(Paragraph, sentences))
