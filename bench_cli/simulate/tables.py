"""What ``bench simulate fit`` prints."""

from __future__ import annotations

from collections.abc import Sequence

from reports.render.counts import counted
from reports.render.plain_text import printable
from reports.render.tables import Table, console_table
from simulator.model import Model, Parameter

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
_RANGES = (
    "Ranges of 95 %: of simulated servers they held 92 to 100 % of the true constants of a step, 89 to 100 % where steps "
    "are launched ahead."
)
_RANGES_BY_LOGS = "Ranges of 95 %: of simulated servers with a step log they held 94 to 99 % of the true constants of a step."


def model_text(model: Model) -> str:
    """A model's sources, constants, structure and findings."""
    sources = ", ".join(
        f"{source.name} ({counted(source.requests, 'request')}"
        f"{'' if source.users is None else f', closed loop of {source.users}'}, "
        f"{source.steps:,} steps{' of the step log' * source.logged})"
        for source in model.sources
    )
    note = _RANGES_BY_LOGS if any(source.logged for source in model.sources) else _RANGES
    parts = [
        f"Fitted to {sources}.",
        *_with_note(_constants(model.parameters, note)),
        "Structure:\n" + _listed(model.structure),
    ]
    if model.findings or model.doubts:
        parts.append("Not known, or in doubt:\n" + _listed((*model.doubts, *model.findings)))
    return "\n\n".join(parts)


def _with_note(table: Table) -> tuple[str, str]:
    return console_table(table), table.note


def _constants(parameters: Sequence[Parameter], note: str) -> Table:
    header = ("what takes time", "value", "range", "unit")
    return Table("constants", "Constants", header, tuple(map(_constant, parameters)), note)


def _constant(parameter: Parameter) -> tuple[str, str, str, str]:
    meaning, (factor, unit) = _MEANINGS.get(parameter.name, (parameter.name, _MS))
    interval = f"{parameter.low * factor:.4g} – {parameter.high * factor:.4g}" if parameter.has_range else "not known"
    return meaning, f"{parameter.value * factor:.4g}", interval, unit


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(f"  - {printable(text)}" for text in texts)
