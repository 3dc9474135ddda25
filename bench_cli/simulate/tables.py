"""What the verbs of ``bench simulate`` print."""

from __future__ import annotations

from collections.abc import Sequence

from reports.render.plain_text import printable
from reports.render.tables import Table, console_table
from simulator.model import Model, Parameter
from simulator.validation import GOOD, KEYS, Prediction, Validation, coverage, median_error, verdict, words

_COVERED = 0.8  # of the figures, at least, where ranges are wide enough
_MS, _US = (1e3, "ms"), (1e6, "µs")
_MEANINGS = {
    "step": ("a step", _MS),
    "prefill": ("a prompt token", _US),
    "prefill_step": ("a step that holds a prompt", _MS),
    "prefill_context": ("a prompt token and token of its context", _US),
    "sequence": ("a sequence in a step", _US),
    "context": ("a token in the KV cache", _US),
    "launch": ("the launch of a step that holds a prompt", _MS),
    "launch_large": ("the launch of a large step", _MS),
    "delay": ("the way to the front end and back", _MS),
    "intake": ("the front end, of a request", _MS),
    "token": ("the front end, of a token", _US),
    "response": ("the front end, of a response", _US),
}


def model_text(model: Model) -> str:
    """A model's sources, constants, structure and findings."""
    sources = ", ".join(
        f"{source.name} ({source.requests:,} requests{'' if source.users is None else f', closed loop of {source.users}'}, "
        f"{source.steps:,} steps)"
        for source in model.sources
    )
    parts = [f"Fitted to {sources}.", *_with_note(_constants(model.parameters)), "Structure:\n" + _listed(model.structure)]
    if model.findings or model.doubts:
        parts.append("Not known, or in doubt:\n" + _listed((*model.doubts, *model.findings)))
    return "\n\n".join(parts)


def _with_note(table: Table) -> tuple[str, str]:
    return console_table(table), table.note


def _constants(parameters: Sequence[Parameter]) -> Table:
    note = (
        "Ranges of 95 %: of simulated servers they held 92 to 98 % of the true constants of a step, 85 to 97 % where steps are "
        "launched ahead."
    )
    return Table(
        "constants", "Constants", ("what takes time", "value", "range", "unit"), tuple(map(_constant, parameters)), note
    )


def _constant(parameter: Parameter) -> tuple[str, str, str, str]:
    meaning, (factor, unit) = _MEANINGS.get(parameter.name, (parameter.name, _MS))
    interval = f"{parameter.low * factor:.4g} – {parameter.high * factor:.4g}"
    return meaning, f"{parameter.value * factor:.4g}", interval, unit


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(f"  - {printable(text)}" for text in texts)


def validation_text(model: Model, validations: Sequence[Validation]) -> str:
    """First the runs beyond the hull, then a table for each run, then the errors of all, and the verdict."""
    parts = [
        f"{each.name} lies beyond what was fitted: {'; '.join(each.beyond)}. Its predictions are extrapolated."
        for each in validations
        if each.beyond
    ]
    fitted = {source.name for source in model.sources}
    parts += [f"{each.name} has the name of a run that was fitted." for each in validations if each.name in fitted]
    parts += [console_table(_predictions(each), heading=_heading(each)) for each in validations]
    parts.append(console_table(_errors(validations)))
    parts.append(_covered(validations))
    parts.append(verdict(validations))
    return "\n\n".join(parts)


def _covered(validations: Sequence[Validation]) -> str:
    """How many figures lie within their ranges; and where they should, and do not, that the ranges are too narrow."""
    text = f"{coverage(validations):.0%} of the measured figures lie within their ranges of 5 to 95 %."
    inside = [each for each in validations if not each.beyond]
    if not inside or (share := coverage(inside)) >= _COVERED:
        return text
    return (
        f"{text} Within what was fitted {share:.0%} do, and 90 % should: these ranges are too narrow, since "
        "the server differs from its model by more than the fit shows. A fit to more runs shows more."
    )


def _heading(validation: Validation) -> str:
    loop = "" if validation.users is None else f", closed loop of {validation.users}"
    dealt = f", {validation.dealt}" if validation.dealt else ""
    return f"{validation.name}: {validation.requests:,} requests{loop}{dealt}"


def _predictions(validation: Validation) -> Table:
    columns = ("run", "measured", "predicted", "range", "error")
    return Table("predictions", validation.name, columns, tuple(map(_prediction, validation.predictions)))


def _prediction(each: Prediction) -> tuple[str, str, str, str, str]:
    unit = "1/s" if each.key[0] == "throughput" else "ms"
    numbers = (f"{each.measured:,.1f}", f"{each.predicted:,.1f}", f"{each.low:,.1f} – {each.high:,.1f}", f"{each.error:+.1%}")
    return (f"{words(each.key)}, {unit}", *numbers)


def _errors(validations: Sequence[Validation]) -> Table:
    """The median absolute errors of each figure, inside and beyond the hull."""
    groups = {
        "inside": [each for each in validations if not each.beyond],
        "beyond": [each for each in validations if each.beyond],
    }
    rows = [(words(key), *(_share(median_error(group, key)) for group in groups.values())) for key in KEYS if key in GOOD]
    columns = ("median error", *(f"{name} the hull ({len(group)} runs)" for name, group in groups.items()))
    return Table("errors", "Errors", columns, tuple(rows))


def _share(error: float | None) -> str | None:
    return None if error is None else f"{error:.1%}"
