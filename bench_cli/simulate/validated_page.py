"""A validation of a model as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator

from bench_cli.simulate.validated import (
    Validated,
    are_too_narrow,
    beyond_sentences,
    coverage_sentences,
    coverage_table,
    doubt_sentences,
    errors_table,
    inside_and_beyond,
    predictions_table,
)
from bench_cli.simulate.validated_pictures import error_picture, latency_pictures
from reports.glossary import terms
from reports.page.page import Block, Card, Note, Page, Section, Tone
from reports.render.counts import counted
from reports.render.plain_text import printable
from reports.render.tables import Quantity, Table
from simulator.validation import GOOD, Validation, coverage, median_error, verdict, words


def validated_page(validated: Validated) -> Page:
    """The content of the page, in its order: what the model is good for, then what lies beyond it, then the numbers."""
    model, validations = validated.model, validated.validations
    tables = tuple(predictions_table(each, number) for number, each in enumerate(validations, 1))
    sections = (
        Section("beyond", "Beyond what was fitted", tuple(_beyond(validated))),
        Section("doubts", "Doubts", tuple(map(Note, doubt_sentences(validated)))),
        Section("latencies", "Predicted and measured", latency_pictures(validations)),
        Section("errors", "Errors", (error_picture(validations), errors_table(validations), coverage_table(validations))),
        Section("numbers", "Numbers of each run", tables),
    )
    return Page(
        title="Validation of a model",
        lead=printable(
            f"Predicted is what {validated.name} SIMULATED from the arrivals and lengths of each run alone; measured is what "
            "the run recorded of its server."
        ),
        facts=tuple(_facts(validated)),
        verdict=printable(" ".join((*_named_beyond(validations), verdict(validations)))),
        tone=_tone(validated),
        aside=printable(" ".join((*(f"{text}." for text in model.unfit), *coverage_sentences(validations)))),
        cards=tuple(_cards(validations)),
        sections=tuple(section for section in sections if section.blocks),
        footer="Drag in a picture to zoom, double-click to reset. Click a series to hide it, a column's head to sort. How a "
        "model is fitted, and its limits: docs/explanation/simulation.md of inflight-bench.",
        terms=terms(),
    )


def _named_beyond(validations: tuple[Validation, ...]) -> Iterator[str]:
    """The runs beyond the hull, by name, before any number."""
    names = [each.name for each in inside_and_beyond(validations)[1]]
    if len(names) == 1:
        yield f"{names[0]} lies beyond what was fitted, is extrapolated, and counts apart."
    elif names:
        yield f"{', '.join(names[:-1])} and {names[-1]} lie beyond what was fitted, are extrapolated, and count apart."


def _beyond(validated: Validated) -> Iterator[Block]:
    sentences = beyond_sentences(validated.validations)
    yield from map(Note, sentences or ("All runs lie within what was fitted.",))
    note = "The most that any fitted run held, by server. The model knows nothing beyond."
    rows = tuple((extent.what, Quantity(extent.most, f"{extent.most:,.0f}")) for extent in validated.model.hull)
    if rows:
        yield Table("hull", "How far the fitted runs reach", ("what", "at most"), rows, note)


def _tone(validated: Validated) -> Tone:
    """BAD where the model is unfit or shown good for nothing; CAUTION where a figure is not good, a run lies beyond, or
    ranges are too narrow.
    """
    inside, beyond = inside_and_beyond(validated.validations)
    good = [error <= limit for key, limit in GOOD.items() if (error := median_error(inside, key)) is not None]
    if validated.model.unfit or not any(good):
        return Tone.BAD
    return Tone.GOOD if all(good) and not beyond and not are_too_narrow(inside) else Tone.CAUTION


def _cards(validations: tuple[Validation, ...]) -> Iterator[Card]:
    """The errors that the model is judged by, over the runs inside the hull, and how many figures their ranges hold."""
    inside = inside_and_beyond(validations)[0]
    for key, limit in GOOD.items():
        error = median_error(inside, key)
        if error is not None:
            held = "good" if error <= limit else "not good"
            yield Card(f"Error of {words(key)}", f"{100 * error:.1f}", "%", f"median; limit {limit:.0%}: {held}")
    if inside:
        yield Card("Within their ranges", f"{100 * coverage(inside):.0f}", "%", "of the measured figures; 90 % should be")


def _facts(validated: Validated) -> Iterator[tuple[str, str]]:
    model, validations = validated.model, validated.validations
    inside, beyond = inside_and_beyond(validations)
    yield "Model", validated.name
    yield "Fitted to", ", ".join(f"{source.name} ({counted(source.requests, 'request')})" for source in model.sources)
    yield "Runs", f"{len(inside)} within what was fitted, {len(beyond)} beyond"
    yield "Requests", f"{sum(each.requests for each in validations):,}"
    dealt = dict.fromkeys(each.dealt or "to one server" for each in validations)
    yield "Requests went", ", ".join(dealt)
    yield "Draws of the constants", f"{min(validated.simulations.draws, len(model.draws))}"
    yield "Seed", f"{validated.simulations.seed}"
