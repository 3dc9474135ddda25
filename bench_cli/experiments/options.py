"""Options of a series of runs, which ``bench experiment`` and ``bench sweep`` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import cloup

from bench_cli.declared import Concern, option, same
from bench_cli.suggestions import near_names

FORWARDS_OPTIONS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Context settings of a verb whose own options are followed by another verb with its options."""


def _series_dir(kind: str) -> Path | None:
    return option(
        None,
        type=click.Path(path_type=Path, file_okay=False),
        help=f"Folder of the {kind}. An interrupted {kind} is resumed; a higher --repeats adds runs. Default: "
        f"runs/<time>-{kind}.",
    )


@dataclass(frozen=True)
class SeriesOptions(Concern):
    """A series of runs. ``repeats`` is the number of blocks, each with one run of every arm; ``experiment_dir`` None: a new
    one."""

    repeats: int = option(5, type=click.IntRange(1, 1000), help="Blocks: each has one run of every arm.")
    seed: int = option(0, type=click.IntRange(min=0), help="Seed of the order, and of the first block's traffic.")
    before_each: str | None = option(
        None,
        metavar="COMMAND",
        help="Shell command before each run, to restart or flush the server of --url; its output goes to output.log.",
    )
    experiment_dir: Path | None = _series_dir("experiment")


@dataclass(frozen=True)
class SweepSeriesOptions(SeriesOptions):
    """The series of a sweep, in which one run of every arm is enough."""

    repeats: int = same(SeriesOptions, "repeats", default=1, help="Number of repeats of each point.")
    experiment_dir: Path | None = _series_dir("sweep")


def _read_arguments(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of the arguments. Raises UsageError for an option that the series does not have, and which parsing left here."""
    if words and words[0].startswith("-"):
        name = words[0].split("=", 1)[0]
        near = near_names(name, [spelling for each in context.command.params for spelling in each.opts])
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise click.UsageError(
            f"{name} is no option of bench {context.command.name}; options of the runs come after their verb.{hint}", context
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
