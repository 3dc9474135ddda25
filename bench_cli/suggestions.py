"""Errors in the words of the command line: its options, and suggestions for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click

from workloads.elements.errors import WorkloadError

_SHORT_OPTIONS = {"protocol": "-i"}  # by field, as users write them


def user_text(error: BaseException) -> str:
    """The sentence of ``error`` with options for the fields of a workload."""
    if not isinstance(error, WorkloadError):
        return str(error)
    return error.spelt(lambda field: _SHORT_OPTIONS.get(field, f"--{field}"))


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """The ``names`` that are near in spelling, the nearest first; at most two."""
    return difflib.get_close_matches(name, list(names), n=2, cutoff=0.75)


def with_near_names(error: click.UsageError) -> click.UsageError:
    """The error; of an unknown option, with suggestions that are near in spelling, where click also lists remote ones."""
    if not isinstance(error, click.NoSuchOption):
        return error
    near = near_names(error.option_name, error.possibilities or ())
    return click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
