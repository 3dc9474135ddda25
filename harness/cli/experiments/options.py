"""The options that ``bench experiment`` and ``bench sweep`` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import cloup

RUNS_A_VERB = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Context settings of a verb behind whose own options stand another verb and its options."""


def run_options(kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a verb that makes several runs with what they are; ``kind`` is "experiment" or "sweep"."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            cloup.argument(
                "arguments", nargs=-1, type=click.UNPROCESSED, help="A measuring verb and the options of every run."
            ),
            cloup.option(
                "--experiment_dir",
                type=click.Path(path_type=Path, file_okay=False),
                help=f"Folder of the {kind}; one that was cut short goes on. Default: runs/<time>-{kind}.",
            ),
            cloup.option(
                "--before_each", metavar="COMMAND", help="Run this before each run: to restart or flush a server of --url."
            ),
        ):
            function = option(function)
        return function

    return decorate
