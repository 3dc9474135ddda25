"""``--config``: options of a measuring verb from a TOML file; what the command line gives wins."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click

from bench_cli.suggestions import near_names
from bench_records.regular_file import read_bounded

_MOST_BYTES = 1 << 20


def read_config(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Callback of --config: the file's options become defaults of the command. Raises BadParameter."""
    if path is None:
        return
    try:
        options = tomllib.loads(read_bounded(path, _MOST_BYTES).decode())
    except (OSError, ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise click.BadParameter(f"{path}: {reason}", ctx, parameter) from error
    parameters = _parameters(ctx.command)
    defaults: dict[str, Any] = {}
    for written, value in options.items():
        name = written.replace("-", "_")
        if name not in parameters or isinstance(value, dict):
            near = near_names(name, parameters)
            hint = f"; did you mean {near[0]!r}?" if near and name not in parameters else ""
            raise click.BadParameter(f"{path}: {written!r} is no option of {ctx.info_name}{hint}", ctx, parameter)
        option = parameters[name]
        defaults[option.name or name] = [value] if option.multiple and not isinstance(value, list) else value
    ctx.default_map = defaults


def _parameters(command: click.Command) -> dict[str, click.Option]:
    """The command's options by their spelling, with underscores."""
    return {
        option.lstrip("-").replace("-", "_"): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.expose_value and parameter.name != "config"
        for option in parameter.opts
        if option.startswith("--")
    }
