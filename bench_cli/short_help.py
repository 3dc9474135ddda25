"""The help of a verb with many options: ``-h`` shows those that most runs use, ``--help`` all of them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection
from typing import Any

import click
import cloup

_WITHOUT_RANGE: dict[type, Any] = {click.IntRange: click.INT, click.FloatRange: click.FLOAT}


class _HelpOption(cloup.Option):
    """Its value is the spelling that was given."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        for spelling in self.opts:
            parser.add_option(obj=self, opts=[spelling], dest=self.name, action="store_const", const=spelling)


def help_option(common: Collection[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a command with ``-h``, which shows the options ``common``, and with ``--help``."""

    def show(context: click.Context, parameter: click.Parameter, spelling: str | None) -> None:
        if spelling is not None and not context.resilient_parsing:
            click.echo(_short_help(context, common) if spelling == "-h" else context.get_help(), color=context.color)
            context.exit()

    return cloup.option(
        "-h",
        "--help",
        cls=_HelpOption,
        is_flag=True,
        flag_value="--help",
        type=str,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show this message and exit.",
    )


def _short_help(context: click.Context, common: Collection[str]) -> str:
    """Usage, the first paragraph of the help, the arguments, the options ``common``, and how to see the rest."""
    command = context.command
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    shown = [_brief(each) for each in options if each.name in common]
    brief = cloup.Command(
        command.name,
        params=[*(each for each in command.params if isinstance(each, click.Argument)), *shown],
        help=(command.help or "").partition("\n\n")[0],
        epilog=f"These are {len(shown)} of {len(options)} options; {context.command_path} --help shows all.",
    )
    formatter = context.make_formatter()
    command.format_usage(context, formatter)
    brief.format_help_text(context, formatter)
    brief.format_params(context, formatter)
    brief.format_epilog(context, formatter)
    return formatter.getvalue().rstrip("\n")


def _brief(option: click.Option) -> click.Option:
    """The option without its group and range, and with the first sentence of its help."""
    alone = copy.copy(option)
    alone.type = _WITHOUT_RANGE.get(type(option.type), option.type)
    alone.help = re.split(r"(?<=\.) (?=[A-Z])", option.help or "")[0]
    alone.group = None  # type: ignore[attr-defined]
    return alone
