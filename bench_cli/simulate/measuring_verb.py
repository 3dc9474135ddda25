"""A measuring verb among the arguments of another, carried out by something else than a measurement."""

from __future__ import annotations

from collections.abc import Callable

import click

from bench_cli.measurement.options import MEASURING_VERBS
from bench_cli.suggestions import with_near_names


def invoke(context: click.Context, arguments: tuple[str, ...], carry_out: Callable[..., int]) -> int:
    """Parse ``arguments``, a measuring verb and its options, and call ``carry_out`` with what ``measure`` would get.

    Raises UsageError for another verb, and for options that the verb does not take.
    """
    from bench_cli.measurement.measure import Instead

    name = arguments[0].replace("-", "_") if arguments else ""
    root = context.find_root().command
    verb = root.get_command(context, name) if isinstance(root, click.Group) and name in MEASURING_VERBS else None
    if verb is None:
        raise click.UsageError(f"after the options comes what to simulate: {' or '.join(MEASURING_VERBS)}, and its options")
    context.obj = Instead(carry_out)
    try:
        inner = verb.make_context(name, list(arguments[1:]), parent=context)
    except click.UsageError as error:
        raise click.UsageError(with_near_names(error, arguments).format_message()) from error
    with inner:
        return int(inner.command.invoke(inner) or 0)
