"""Options of the verbs that simulate a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from bench_cli.declared import Concern, option, part, required

ROUTERS = ("random", "rr", "least_outstanding", "p2c")
_MOST_REPLICAS = 10_000


@dataclass(frozen=True)
class DeploymentOptions(Concern, title="The simulated deployment"):
    """The model, and how many draws of its constants are simulated beside it."""

    model: Path = required(type=click.Path(path_type=Path, dir_okay=False), help="The model, of 'bench simulate fit'.")
    router: str = option(
        ROUTERS[0],
        type=click.Choice(ROUTERS),
        help="How requests are dealt to replicas: at random, in turn (rr), to the one with the fewest requests in flight, or "
        "to the better of two drawn at random (p2c).",
    )
    draws: int = option(
        20,
        type=click.IntRange(min=0, max=40),
        help="Draws of the model's constants, each simulated on the same requests: the model's own error.",
    )


@dataclass(frozen=True)
class RunOptions(Concern):
    """The options of ``bench simulate run``."""

    deployment: DeploymentOptions = part(DeploymentOptions)
    replicas: int = option(1, type=click.IntRange(min=1, max=_MOST_REPLICAS), help="Number of equal servers.")
