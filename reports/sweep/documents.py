"""A sweep as a document."""

from __future__ import annotations

from reports.render.document import Code, Document, Heading, Notes, Paragraph
from reports.render.plain_text import printable
from reports.render.tables import Table, cell_text, share_cell
from reports.sweep.held import gates_of
from reports.sweep.points import Sweep, SweepPoint
from reports.sweep.tables import (
    FRONT_NOTE,
    answer,
    counts_text,
    gate_table,
    has_objectives,
    held_text,
    objectives_note,
    points_table,
)
from reports.sweep.together import together_sentence


def terminal_document(sweep: Sweep) -> Document:
    """The document for a terminal; points on the Pareto front carry a star."""
    gates = (f"{gate.status.value:>9}  {gate.requirement}: {gate.why}" for gate in gates_of(sweep))
    counts = (f"{counts_text(sweep)}.",) if counts_text(sweep) else ()
    return (
        Notes((answer(sweep), *gates)),
        _table(sweep),
        Notes((f"* {FRONT_NOTE} {sweep.latency}.", *objectives_note(sweep), *counts)),
        Paragraph(together_sentence(sweep)),
    )


def full_document(sweep: Sweep) -> Document:
    """The document for a pull request."""
    return (
        Heading((f"Sweep over {' and '.join(sweep.axes)}: ", Code("bench"), f" {sweep.measured}")),
        Paragraph(answer(sweep), is_answer=True, aside=counts_text(sweep)),
        gate_table(sweep),
        points_table(sweep),
        Paragraph(f"{FRONT_NOTE} {sweep.latency}."),
        Paragraph(together_sentence(sweep)),
    )


def _table(sweep: Sweep) -> Table:
    latency, objectives = sweep.latency, has_objectives(sweep)
    percentiles = (f"{latency} p50 ms", f"{latency} p99 ms", "E2E p99 ms")
    of_goodput = ("goodput/s", "attainment %") if objectives else ()
    columns = ("", "offered/s", "requests/s", "tokens/s", *percentiles, *of_goodput, "held", "failed", "findings")
    rows = tuple(_row(point, number in sweep.front, objectives) for number, point in enumerate(sweep.points))
    return Table("points", "Points", columns, rows, sides=f"l{'r' * (len(columns) - 2)}l")


def _row(point: SweepPoint, on_front: bool, with_goodput: bool) -> tuple[str, ...]:
    estimates = (
        point.request_throughput, point.output_token_throughput, point.latency_p50_ms, point.latency_p99_ms, point.e2e_p99_ms,
    )  # fmt: skip
    share = None if point.attainment is None else share_cell(point.attainment)
    of_goodput = (point.goodput.value, share) if with_goodput else ()
    numbers = (point.offered_rate, *(estimate.value for estimate in estimates), *of_goodput)
    invalid = () if point.valid else ("INVALID",)
    return (
        printable(f"{'*' if on_front else ' '} {point.name}"),
        *map(cell_text, numbers),
        held_text(point),
        str(point.failed),
        ", ".join((*invalid, *point.findings)),
    )
