"""Options of a series of runs, which ``bench experiment`` and ``bench sweep`` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from bench_cli.declared import SEED, Concern, option, same


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
    seed: int = option(0, type=SEED, help="Seed of the order, and of the first block's traffic.")
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
