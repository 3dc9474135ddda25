"""The options of verbs that judge by limits."""

from __future__ import annotations

from dataclasses import dataclass

import click

from bench_cli.declared import Concern, option
from bench_cli.limit_values import PRESETS, read_share


@dataclass(frozen=True)
class LimitOptions(Concern, title="What has to hold"):
    """The limits, by sets, and how surely and precisely the load is to be known. ``precision`` is 0.1 for ±10 %."""

    slo: tuple[str, ...] = option(
        (),
        metavar="[NAME:]LIMIT",
        help="A limit on a share of the requests: p99_ttft<=500ms (also tpot, e2e, itl; any percentile), failed_share<=1%, or "
        "attainment>=99% with ttft<=200ms and others of each request. With names, as interactive:p99_ttft<=450ms, one search "
        "answers for several sets; a limit without a name is in each. Repeatable.",
    )
    slo_preset: tuple[str, ...] = option(
        (),
        type=click.Choice(PRESETS),
        multiple=True,
        help="MLPerf Inference's limits of a benchmark: p99 of TTFT and of TPOT. Repeatable.",
    )
    confidence: float = option(
        0.95, default="95%", callback=read_share, metavar="SHARE", help="How sure the answer is, of the search as a whole."
    )
    precision: float = option(
        0.10,
        default="10%",
        callback=read_share,
        metavar="SHARE",
        help="How far apart the two ends of the answer may be: of 10%, the higher one is 20% above the lower one.",
    )
