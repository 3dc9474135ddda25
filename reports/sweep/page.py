"""A sweep as one self-contained page that opens without a network."""

from __future__ import annotations

from reports.gates.gate import Status
from reports.glossary import terms
from reports.page.page import Card, Note, Page, Section, Tone
from reports.render.plain_text import printable
from reports.render.tables import cell_text
from reports.statistics.estimate import Estimate
from reports.sweep.held import gates_of
from reports.sweep.pictures import sweep_pictures
from reports.sweep.points import Sweep, SweepPoint
from reports.sweep.tables import answer, counts_text, gate_table, points_table, runs_table
from reports.sweep.together import together_sentence


def sweep_page(sweep: Sweep) -> Page:
    """The content of the page, in its order. Its links lead to the runs beside it."""
    gates = (gate_table(sweep),) if sweep.required else ()
    sections = (
        Section("gates", "Gates", gates),
        Section("together", "All loads together", tuple(map(Note, filter(None, [together_sentence(sweep)])))),
        Section("curves", "Throughput and latency", sweep_pictures(sweep), pairs=True),
        Section("points", "Points", (points_table(sweep),)),
        Section("runs", "Runs", (runs_table(sweep),)),
    )
    return Page(
        title=printable(f"Sweep over {' and '.join(sweep.axes)}"),
        lead=printable(f"bench {sweep.measured}"),
        facts=_facts(sweep),
        verdict=answer(sweep),
        tone=_tone(sweep),
        aside=counts_text(sweep),
        cards=_cards(sweep),
        sections=tuple(section for section in sections if section.blocks),
        footer="Drag in a picture to zoom, double-click to reset. Arrow keys step through the picture that has the focus. "
        "Click a series to hide it, a column's head to sort. What is measured: "
        "docs/explanation/comparison.md of inflight-bench.",
        terms=terms(),
    )


def _tone(sweep: Sweep) -> Tone:
    if not sweep.front:
        return Tone.BAD
    if any(gate.status is Status.FAILED for gate in gates_of(sweep)):
        return Tone.CAUTION
    return Tone.GOOD if any(point.held for point in sweep.points) else Tone.CAUTION


def _facts(sweep: Sweep) -> tuple[tuple[str, str], ...]:
    varied = {name: dict.fromkeys(dict(point.settings).get(name, "") for point in sweep.points) for name in sweep.axes}
    return (
        *((printable(name), printable(", ".join(values))) for name, values in varied.items()),
        ("Points", str(len(sweep.points))),
        ("Runs", f"{sweep.recorded} of {sweep.planned}"),
    )


def _cards(sweep: Sweep) -> tuple[Card, ...]:
    """The extremes of the valid points: most output tokens per second, and lowest p99 latency."""
    valid = [point for point in sweep.points if point.valid]
    tokens = {k: p.output_token_throughput for k, p in enumerate(valid) if p.output_token_throughput.value is not None}
    latency = {k: p.latency_p99_ms for k, p in enumerate(valid) if p.latency_p99_ms.value is not None}
    cards: list[Card] = []
    if tokens:
        best = max(tokens, key=lambda k: tokens[k].value or 0.0)
        cards.append(_card("Most output tokens", "tokens/s", tokens[best], valid[best]))
    if latency:
        best = min(latency, key=lambda k: latency[k].value or 0.0)
        cards.append(_card(f"Lowest p99 {sweep.latency}", "ms", latency[best], valid[best]))
    return tuple(cards)


def _card(title: str, unit: str, estimate: Estimate, point: SweepPoint) -> Card:
    interval = f"{'95 %' if estimate.interval else 'no interval'}: {estimate.limits_text(cell_text)}"
    return Card(title, cell_text(estimate.value), unit, printable(f"at {point.name}; {interval}"))
