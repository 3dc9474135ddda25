"""Suggestions for a misspelt option or verb."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that are near in spelling, the nearest first; at most two."""
    return difflib.get_close_matches(name, list(names), n=2, cutoff=0.75)


def with_near_names(error: click.UsageError) -> click.UsageError:
    """The error; of an unknown option, with suggestions that are near in spelling, where click also lists remote ones."""
    if not isinstance(error, click.NoSuchOption):
        return error
    near = near_names(error.option_name, error.possibilities or ())
    return click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
