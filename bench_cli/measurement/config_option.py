"""``--config``: options of a measuring verb from a TOML file; what the command line gives wins."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import click

from bench_cli.suggestions import near_names
from bench_records.regular_file import read_bounded

_MOST_BYTES = 1 << 20


def read_config(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Callback of --config: the options of the file win over the defaults that the command has. Raises BadParameter."""
    if path is None:
        return
    try:
        options = tomllib.loads(read_bounded(path, _MOST_BYTES).decode())
    except (OSError, ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise click.BadParameter(f"{path}: {reason}", ctx, parameter) from error
    try:
        ctx.default_map = {**(ctx.default_map or {}), **defaults_of(options, ctx.command)}
    except ValueError as error:
        raise click.BadParameter(f"{path}: {error}", ctx, parameter) from error


def defaults_of(options: Mapping[str, object], command: click.Command) -> dict[str, object]:
    """The defaults of the parameters of ``command``, by their names, that ``options`` give by their spelling.

    Raises ValueError for a name that is no option of it.
    """
    parameters = options_by_spelling(command)
    defaults: dict[str, object] = {}
    for written, value in options.items():
        name = written.replace("-", "_")
        if name not in parameters or isinstance(value, dict):
            near = near_names(name, parameters)
            hint = f"; did you mean {near[0]!r}?" if near and name not in parameters else ""
            raise ValueError(f"{written!r} is no option of {command.name}{hint}")
        option = parameters[name]
        defaults[option.name or name] = [value] if option.multiple and not isinstance(value, list) else value
    return defaults


def options_by_spelling(command: click.Command) -> dict[str, click.Option]:
    """The command's options by each of their long spellings, with underscores, without the dashes; --config is none of them."""
    return {
        option.lstrip("-").replace("-", "_"): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.expose_value and parameter.name != "config"
        for option in parameter.opts
        if option.startswith("--")
    }
