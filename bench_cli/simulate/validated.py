"""What a validation of a model says, in sentences and tables, and its document for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reports.render.console import console_text
from reports.render.counts import counted
from reports.render.document import Document, Paragraph
from reports.render.plain_text import printable
from reports.render.tables import Quantity, Table
from simulator.answers import Deployment
from simulator.latencies import LATENCIES, THROUGHPUT
from simulator.model import Model
from simulator.validation import GOOD, KEYS, Prediction, Validation, coverage, median_error, verdict, words

_COVERED = 0.8  # of the figures, at least, where ranges are wide enough
_FEWEST_FOR_P99 = 100  # requests, of which the p99 by nearest rank is not the maximum


@dataclass(frozen=True, slots=True)
class Simulations:
    """How the runs were simulated: with this many ``draws`` of the constants, dealt as in ``dealing``, None for one server."""

    draws: int
    seed: int = 0
    dealing: Deployment | None = None


@dataclass(frozen=True)
class Validated:
    """What was validated: the ``model`` of the file ``name``, and how. ``doubts`` are sentences about the runs."""

    name: str
    model: Model
    simulations: Simulations
    validations: tuple[Validation, ...]
    doubts: tuple[str, ...]


def validation_text(model: Model, validations: Sequence[Validation]) -> str:
    """The validation for a terminal."""
    return console_text(validation_document(model, validations))


def validation_document(model: Model, validations: Sequence[Validation]) -> Document:
    """First the runs beyond the hull, then a table for each run, then the errors of all, and the verdict."""
    tables = (predictions_table(each, number) for number, each in enumerate(validations, 1))
    return (
        *map(Paragraph, beyond_sentences(validations)),
        *map(Paragraph, fitted_sentences(model, validations)),
        *map(Paragraph, few_sentences(validations)),
        *(replace(table, columns=(table.title, *table.columns[1:])) for table in tables),
        errors_table(validations),
        Paragraph(" ".join(coverage_sentences(validations))),
        Paragraph(verdict(validations), is_answer=True),
    )


def inside_and_beyond(validations: Sequence[Validation]) -> tuple[list[Validation], list[Validation]]:
    """The runs within what was fitted, and those beyond."""
    return [each for each in validations if not each.beyond], [each for each in validations if each.beyond]


def beyond_sentences(validations: Sequence[Validation]) -> tuple[str, ...]:
    """For each run beyond the hull what it holds more of."""
    return tuple(
        f"{each.name} lies beyond what was fitted: {'; '.join(each.beyond)}. Its predictions are extrapolated."
        for each in inside_and_beyond(validations)[1]
    )


def fitted_sentences(model: Model, validations: Sequence[Validation]) -> tuple[str, ...]:
    """Which runs may be those that the model was fitted to, so that they show nothing."""
    fitted = {source.name for source in model.sources}
    return tuple(
        f"{each.name} has the name of a run that was fitted: if it is that run, it does not show what the model is good for."
        for each in validations
        if each.name in fitted
    )


def few_sentences(validations: Sequence[Validation]) -> tuple[str, ...]:
    """Which runs have so few requests that a p99 is the maximum."""
    return tuple(
        f"{each.name} has {counted(each.requests, 'request')}: a p99 of fewer than {_FEWEST_FOR_P99} is their maximum, and "
        "says little of another run."
        for each in validations
        if each.requests < _FEWEST_FOR_P99
    )


def doubt_sentences(validated: Validated) -> tuple[str, ...]:
    """What is not known or in doubt of the model, of the runs that it was fitted to, and of those that it predicts."""
    model = validated.model
    return (
        *(f"The model: {text}." for text in model.findings),
        *(f"The fitted runs: {text}." for text in model.doubts),
        *(f"The predicted runs: {text}" for text in validated.doubts),
        *fitted_sentences(model, validated.validations),
        *few_sentences(validated.validations),
    )


def are_too_narrow(validations: Sequence[Validation]) -> bool:
    """Whether the ranges of the runs within what was fitted hold too few of the figures; False without such a run."""
    inside = inside_and_beyond(validations)[0]
    return bool(inside) and coverage(inside) < _COVERED


def coverage_sentences(validations: Sequence[Validation]) -> tuple[str, ...]:
    """How many figures lie within their ranges; and where they should, and do not, that the ranges are too narrow."""
    text = f"{coverage(validations):.0%} of the measured figures lie within their ranges of 5 to 95 %."
    if not are_too_narrow(validations):
        return (text,)
    too_narrow = (
        f"Within what was fitted {coverage(inside_and_beyond(validations)[0]):.0%} do, and 90 % should: these ranges are too "
        "narrow, since the server differs from its model by more than the fit shows. A fit to more runs shows more."
    )
    return text, too_narrow


def heading(validation: Validation) -> str:
    """The run, its requests, and to which replicas they were dealt."""
    loop = "" if validation.users is None else f", closed loop of {validation.users}"
    dealt = f", {validation.dealt}" if validation.dealt else ""
    return f"{validation.name}: {counted(validation.requests, 'request')}{loop}{dealt}"


def predictions_table(validation: Validation, number: int) -> Table:
    """Predicted beside measured for one run, a figure a row; ``number`` is the run's, for the table's name."""
    columns = ("figure", "measured", "predicted", "range", "error")
    rows = tuple(map(_prediction, validation.predictions))
    return Table(f"run-{number}", printable(heading(validation)), columns, rows, sides="lrrrr")


def _prediction(each: Prediction) -> tuple[str, Quantity, Quantity, str, Quantity]:
    return (
        f"{words(each.key)}, {unit_of(each)}",
        Quantity(each.measured, number_text(each.measured)),
        Quantity(each.predicted, number_text(each.predicted)),
        range_text(each),
        Quantity(each.error, f"{each.error:+.1%}"),
    )


def unit_of(prediction: Prediction) -> str:
    """The unit of a figure."""
    return "1/s" if prediction.key[0] == THROUGHPUT else "ms"


def range_text(prediction: Prediction) -> str:
    """The range of a figure, 5 to 95 %."""
    return f"{number_text(prediction.low)} – {number_text(prediction.high)}"


def number_text(value: float) -> str:
    """A figure to a tenth, or to three digits where it has fewer: a large model takes less than a request a second."""
    return f"{value:,.1f}" if value >= 9.95 else f"{value:.3g}"


def errors_table(validations: Sequence[Validation]) -> Table:
    """The median absolute errors of each figure, inside and beyond the hull."""
    groups = inside_and_beyond(validations)
    rows = tuple((words(key), *(_share(median_error(group, key)) for group in groups)) for key in KEYS if key in GOOD)
    return Table("errors", "Median errors", ("median error", *_names(groups)), rows, sides="lrr")


def _share(error: float | None) -> Quantity | None:
    return None if error is None else Quantity(error, f"{error:.1%}")


def _names(groups: Sequence[Sequence[Validation]]) -> tuple[str, ...]:
    return tuple(
        f"{name} the hull ({counted(len(group), 'run')})" for name, group in zip(("inside", "beyond"), groups, strict=True)
    )


def coverage_table(validations: Sequence[Validation]) -> Table:
    """How many of the measured figures lie within their ranges, by metric, inside and beyond the hull."""
    groups = inside_and_beyond(validations)
    rows = [(_metric_title(metric), *(_held(group, (metric,)) for group in groups)) for metric in (*LATENCIES, THROUGHPUT)]
    rows.append(("all figures", *(_held(group, (*LATENCIES, THROUGHPUT)) for group in groups)))
    note = "Figures that lie within their ranges of 5 to 95 %: 90 % should, within what was fitted."
    return Table(
        "coverage", "Measured figures within their ranges", ("metric", *_names(groups)), tuple(rows), note, sides="lrr"
    )


def _metric_title(metric: str) -> str:
    return metric if metric == THROUGHPUT else metric.upper()


def _held(validations: Sequence[Validation], metrics: Sequence[str]) -> Quantity | None:
    """None where no run has such a figure."""
    held = [each.is_covered for run in validations for each in run.predictions if each.key[0] in metrics]
    return Quantity(sum(held) / len(held), f"{sum(held)} of {len(held)}") if held else None
