"""Options that are declared once: as the fields of a frozen dataclass, a concern.

    @dataclass(frozen=True)
    class LoadOptions(Concern, title="Load"):
        request_rate: float = option(-1.0, help="Requests per second.")

``takes(LoadOptions)`` decorates a command with the options, in groups, and calls it with the dataclass. ``option`` specifies a
field, as ``dataclasses.field`` does. Annotations are not evaluated: the types that they name import numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from itertools import groupby
from math import isnan
from typing import Any, ClassVar, TypeVar

import click
import cloup
from click.core import ParameterSource

from bench_cli.short_help import help_option
from bench_errors import BenchError
from harness.host.moment import Moment

_DECLARED, _PART = "declared", "part"  # keys of a field's metadata
_SHORT_HELP_FROM = 30  # options: with fewer, -h shows all
SEED = click.IntRange(0, 2**63 - 1)
"""The type of a seed, which documents of JSON hold in 64 bits."""
_Value = TypeVar("_Value")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Call:
    """A call of the command: the names of all its options that the command line or --config gives, even with their default,
    and its start."""

    given: frozenset[str] = frozenset()
    started: Moment = field(default_factory=Moment.now)


@dataclass(frozen=True)
class Concern:
    """Base of the dataclasses whose fields are options. ``title`` and ``note`` are those of their group,
    None of options without a group."""

    title: ClassVar[str | None] = None
    note: ClassVar[str | None] = None
    call: Call = field(default_factory=Call, kw_only=True, repr=False, compare=False)

    def __init_subclass__(cls, title: str | None = None, note: str | None = None) -> None:
        cls.title, cls.note = title, note

    def given(self, *names: str) -> list[str]:
        """The ``names`` that the call gives; they may be options of other concerns of the command."""
        return [name for name in names if name in self.call.given]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of the options and parts."""
        return tuple(declared.name for declared in fields(cls) if declared.name != "call")

    def values(self) -> dict[str, Any]:
        """The options and parts by their names."""
        return {name: getattr(self, name) for name in self.names()}

    def values_of_parts(self) -> dict[str, Any]:
        """The options of all parts, by their names."""
        parts = (value for value in self.values().values() if isinstance(value, Concern))
        return {name: value for each in parts for name, value in each.values().items()}


@dataclass(frozen=True)
class _Declared:
    spellings: tuple[str, ...]
    settings: Mapping[str, Any]
    group: str | None
    common: bool


_Concern = TypeVar("_Concern", bound=Concern)


def option(value: _Value, /, *spellings: str, group: str | None = None, common: bool = False, **settings: Any) -> _Value:
    """The field of an option with the default ``value``: False makes it a flag, () one that may be repeated.

    ``spellings`` are those beside ``--<field>``, or all of them if one has two dashes. ``settings`` are those of click; their
    ``default`` is the text that a ``callback`` reads as ``value``. ``group`` is the title of another group than the concern's.
    With ``common`` the option is in the short help, ``-h``.
    """
    own: dict[str, object] = {"default": value} if value not in (None, (), {}) or isinstance(value, bool) else {}
    own |= {"is_flag": True} if value is False and "/" not in "".join(spellings) else {}
    own |= {"multiple": True} if value == () and "default" not in settings else {}
    declared = _Declared(spellings, own | settings, group, common)
    return field(default_factory=lambda: value, metadata={_DECLARED: declared})


def switch(value: _Value, /, **settings: Any) -> _Value:
    """The field of an option with an opposite: ``--<field>/--no_<field>``."""
    return option(value, "--{0}/--no_{0}", default=value, **settings)


def required(*spellings: str, group: str | None = None, common: bool = False, **settings: Any) -> Any:
    """The field of an option that must be given."""
    declared = _Declared(spellings, {"required": True} | settings, group, common)
    return field(kw_only=True, metadata={_DECLARED: declared})


def parsed(parse: Callable[[str], _Value]) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[_Value, ...]]:
    """The ``callback`` of an option that may be repeated: ``parse`` reads each text, and its error is a usage error."""

    def callback(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[_Value, ...]:
        try:
            return tuple(map(parse, texts))
        except (ValueError, BenchError) as error:
            raise click.BadParameter(str(error), context, parameter) from None

    return callback


def same(concern: type[Concern], name: str, **changes: Any) -> Any:
    """The field of an option that ``concern`` declares under this name, with some settings changed."""
    there = next(declared for declared in fields(concern) if declared.name == name)
    of = there.metadata[_DECLARED]
    declared = _Declared(of.spellings, {**of.settings, **changes}, None, of.common)
    return field(default=there.default, default_factory=there.default_factory, metadata={_DECLARED: declared})


def part(kind: type[_Concern]) -> _Concern:
    """The field of a concern within another."""
    return field(default_factory=kind, metadata={_PART: kind})


def takes(kind: type[_Concern]) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """Decorate a command with the options of ``kind``; it is called with them, and with its arguments by name."""
    declared = list(_declared(kind))

    def decorate(function: Callable[..., _Result]) -> Callable[..., _Result]:
        @click.pass_context
        @wraps(function)
        def command(context: click.Context, /, **values: Any) -> _Result:
            names = [name for name, *_ in declared]
            arguments = {name: value for name, value in values.items() if name not in names}
            return function(read(kind, values, call_of(context)), **arguments)

        decorated: Callable[..., _Result] = command
        common = [name for name, how, _ in declared if how.common]
        if common and len(declared) > _SHORT_HELP_FROM:
            decorated = help_option(common)(decorated)
        for (title, note), options in reversed([(key, list(each)) for key, each in groupby(declared, lambda entry: entry[2])]):
            made = [_made(name, how) for name, how, _ in options]
            if title is not None:
                decorated = cloup.option_group(title, *made, help=note)(decorated)
            else:
                for add in reversed(made):
                    decorated = add(decorated)
        return decorated

    return decorate


def read(kind: type[_Concern], values: Mapping[str, Any], call: Call) -> _Concern:
    """The concern from the values that click passes."""
    return kind(**{each.name: _read_field(each, values, call) for each in fields(kind) if each.name != "call"}, call=call)


def _read_field(each: Any, values: Mapping[str, Any], call: Call) -> Any:
    inner = each.metadata.get(_PART)
    return values[each.name] if inner is None else read(inner, values, call)


def call_of(context: click.Context) -> Call:
    """The call of a command."""
    defaults = (None, ParameterSource.DEFAULT)
    given = frozenset(name for name in context.params if context.get_parameter_source(name) not in defaults)
    return Call(given, context.find_object(Moment) or Moment.now())


def _declared(kind: type[Concern]) -> Iterator[tuple[str, _Declared, tuple[str | None, str | None]]]:
    """The name of each option of ``kind`` and its parts, its declaration, and the title and note of its group."""
    for each in fields(kind):
        if _PART in each.metadata:
            yield from _declared(each.metadata[_PART])
        elif _DECLARED in each.metadata:
            how = each.metadata[_DECLARED]
            yield each.name, how, (kind.title, kind.note) if how.group is None else (how.group, None)


def _made(name: str, how: _Declared) -> Callable[[Any], Any]:
    """Click's decorator of the option ``name``."""
    spellings = [spelling.format(name) for spelling in how.spellings]
    own = [] if any(spelling.startswith("--") for spelling in spellings) else [f"--{name}"]
    kind = how.settings.get("type")
    ranged = {"type": _RealRange(kind.min, kind.max, kind.min_open, kind.max_open)} if type(kind) is click.FloatRange else {}
    return cloup.option(*spellings, *own, name, **{**how.settings, **ranged})


class _RealRange(click.FloatRange):
    """Click takes nan for a number within any range, since it is neither below nor above a limit."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        number = super().convert(value, parameter, context)
        if isnan(number):
            self.fail(f"{value!r} is not a number.", parameter, context)
        return number
