"""The parameters of ``tensorrt_llm/config.pbtxt`` for the C++ backend, as Markdown made from their table."""

from __future__ import annotations

from collections.abc import Iterator

from serving.repository.ngc_parameters import GROUPS
from serving.repository.values import Kind, Parameter
from tools.reference.markdown import plain, table

_NUMBERS = (Kind.INTEGER, Kind.NUMBER, Kind.INTEGERS)


def repository_parameters_markdown() -> str:
    """A table for each group of parameters, in the table's order."""
    return "\n".join(line for title, group in GROUPS.items() for line in _group(title, group))


def _group(title: str, parameters: tuple[Parameter, ...]) -> Iterator[str]:
    yield from (f"## {title}", "")
    yield from table(("option", "value", "meaning"), (_row(parameter) for parameter in parameters))


def _row(parameter: Parameter) -> tuple[str, str, str]:
    key = "" if parameter.key == parameter.option else f" → `{parameter.key}`"
    return f"`--{parameter.option}`{key}", f"{plain(parameter.metavar)}{_range(parameter)}", plain(parameter.help)


def _range(parameter: Parameter) -> str:
    if parameter.kind not in _NUMBERS:
        return ""
    if parameter.high == 1:
        return f", {parameter.low:g} to 1"
    return f", at least {parameter.low:g}"
