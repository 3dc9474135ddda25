"""The options of ``bench size``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from bench_cli.declared import Concern, option, part, same
from bench_cli.limit_options import LimitOptions
from bench_cli.simulate.deployment_options import DeploymentOptions


@dataclass(frozen=True)
class SizeLimits(Concern, title="What has to hold"):
    """The limits, by sets, and how surely they are to hold."""

    slo: tuple[str, ...] = same(
        LimitOptions,
        "slo",
        help="A limit on a share of the requests, one of 'bench capacity': p99_ttft<=500ms (also tpot, e2e; any "
        "percentile), or attainment>=99% with ttft<=200ms and others of each request. With names, as "
        "interactive:p99_ttft<=450ms, one call answers for several sets. Repeatable.",
    )
    slo_preset: tuple[str, ...] = same(LimitOptions, "slo_preset")
    confidence: float = same(LimitOptions, "confidence", help="How sure it is to be that the replicas hold.")


@dataclass(frozen=True)
class SizedDeployment(DeploymentOptions, title="The simulated deployment"):
    """With more draws than a run has: each is one vote on whether the replicas hold."""

    draws: int = same(
        DeploymentOptions,
        "draws",
        default=40,
        type=click.IntRange(min=1, max=1000),
        help="Draws of what the model does not know, each with constants, errors and a schedule of its own.",
    )


@dataclass(frozen=True)
class SizeOptions(Concern):
    """The options of ``bench size``."""

    limits: SizeLimits = part(SizeLimits)
    deployment: SizedDeployment = part(SizedDeployment)
    max_replicas: int = option(100, type=click.IntRange(min=1, max=10_000), help="The most replicas that are tried.")
