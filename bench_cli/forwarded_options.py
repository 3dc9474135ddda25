"""A verb whose own options are followed by a measuring verb with its options."""

from __future__ import annotations

import click
import cloup

from bench_cli.suggestions import near_names

FORWARDS_OPTIONS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Context settings of a verb whose own options are followed by another verb with its options."""


def _read_arguments(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of the arguments. Raises UsageError for an option that the series does not have, and which parsing left here."""
    if words and words[0].startswith("-"):
        name = words[0].split("=", 1)[0]
        near = near_names(name, [spelling for each in context.command.params for spelling in each.opts])
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise click.UsageError(
            f"{name} is no option of {context.command_path}; options of the runs come after their verb.{hint}", context
        )
    return words


run_arguments = cloup.argument(
    "arguments",
    cls=cloup.Argument,
    metavar="VERB [VERB_OPTIONS]…",
    nargs=-1,
    type=click.UNPROCESSED,
    is_eager=True,  # an unknown option is named before one that is missing
    callback=_read_arguments,
    help="A measuring verb and the options of every run.",
)
