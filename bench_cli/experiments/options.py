"""Options of a series of runs, which ``bench experiment`` and ``bench sweep`` share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import cloup

FORWARDS_OPTIONS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Context settings of a verb whose own options are followed by another verb with its options."""


@dataclass(frozen=True)
class SeriesOptions:
    """A series of runs. ``arguments`` are the measuring verb and the options of every run; ``experiment_dir`` None: a new one.

    ``repeats`` is the number of blocks, each with one run of every arm.
    """

    repeats: int
    seed: int
    before_each: str | None
    experiment_dir: Path | None
    arguments: tuple[str, ...]


def series_options(kind: str, default_repeats: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a verb with the options of its runs; ``kind`` is "experiment" or "sweep"."""

    options = (
        cloup.option(
            "--repeats", type=click.IntRange(1, 1000), default=default_repeats, help="Blocks, each with one run of every arm."
        ),
        cloup.option(
            "--seed", type=click.IntRange(min=0), default=0, help="Seed of the order, and of the first block's traffic."
        ),
        cloup.option(
            "--before_each", metavar="COMMAND", help="Command before each run, to restart or flush the server of --url."
        ),
        cloup.option(
            "--experiment_dir",
            type=click.Path(path_type=Path, file_okay=False),
            help=f"Folder of the {kind}; one that was cut short is continued, and one with fewer --repeats gets the others. "
            f"Default: runs/<time>-{kind}.",
        ),
        cloup.argument("arguments", nargs=-1, type=click.UNPROCESSED, help="A measuring verb and the options of every run."),
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate
