"""Errors in the words of the command line: its options, and suggestions for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

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


def with_near_names(error: click.UsageError, argv: Sequence[str]) -> click.UsageError:
    """The error; of an unknown option, as it is written in ``argv``, and with suggestions that are near in spelling, where
    click also lists remote ones.
    """
    if not isinstance(error, click.NoSuchOption):
        return error
    near = near_names(error.option_name, error.possibilities or ())
    return click.NoSuchOption(_as_written(error.option_name, argv), possibilities=near, ctx=error.ctx)


def _as_written(name: str, argv: Sequence[str]) -> str:
    """The option of ``argv`` that click calls ``name``, with underscores; ``name`` where it is none of them."""
    written = (word.partition("=")[0] for word in argv)
    return next((option for option in written if _underscored(option) == name), name)


def _underscored(option: str) -> str:
    """``option`` with underscores for the hyphens after its dashes."""
    rest = option.lstrip("-")
    return option.removesuffix(rest) + rest.replace("-", "_")
