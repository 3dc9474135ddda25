"""The options of ``bench capacity``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from bench_cli.declared import Concern, option, part, same
from bench_cli.experiments.options import SeriesOptions
from bench_cli.limit_options import LimitOptions
from bench_cli.limit_values import read_time


@dataclass(frozen=True)
class EffortOptions(Concern, title="The search"):
    """How long the search may take, and where it looks. ``budget`` in seconds, None without a bound; ``max_users`` None: it
    searches a rate; ``first_load`` None: the ``model`` or a closed loop shows where to start.
    """

    budget: float | None = option(
        900.0,
        default="15m",
        callback=read_time,
        metavar="TIME",
        help="Time of the whole search, as 15m, 90s or 1h30m; none ends it by its precision alone.",
    )
    max_users: int | None = option(
        None,
        type=click.IntRange(min=1),
        help="Search the number of users of a closed loop, up to this many, instead of a rate.",
    )
    first_load: float | None = option(
        None,
        type=click.FloatRange(min=0, min_open=True),
        show_default="from a closed loop of some seconds",
        help="Rate, or users, of the first probe.",
    )
    model: Path | None = option(
        None,
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="A model of this server, of 'bench simulate fit': what it explains of each probe is taken off, so that fewer "
        "requests are enough. The answer is measured, and a wrong model helps little.",
    )
    seed: int = same(SeriesOptions, "seed", help="Seed of the closed loop; each probe's is its number more.")
    before_each: str | None = same(
        SeriesOptions, "before_each", help="Shell command before each probe, to restart or flush the server of --url."
    )
    experiment_dir: Path | None = option(
        None,
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of the search; one that was cut short is continued. Default: runs/<time>-capacity.",
    )
    dry_run: bool = option(False, help="Print the plan, and what the budget can reach; send nothing.")


@dataclass(frozen=True)
class RankingOptions(Concern, title="Several settings"):
    """The settings whose capacities are ranked; none: one search."""

    over: tuple[str, ...] = option(
        (),
        metavar="OPTION=V1,V2,…",
        help="Search the capacity of each value of an option of the measuring verb, in turns and within one --budget, and rank "
        "them. Values with a comma are separated by ';'. With several --over, every combination is a setting.",
    )


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench capacity``."""

    limits: LimitOptions = part(LimitOptions)
    effort: EffortOptions = part(EffortOptions)
    ranking: RankingOptions = part(RankingOptions)
