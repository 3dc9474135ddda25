"""A foothold: a load so far below those that exceed a limit that it is certified by its own requests.

A search that spends all on the loads near the crossing may end with nothing certified: where requests beyond a limit come
seldom and together, as with a front end that stalls now and then, no probe near there ever shows enough. "Holds at least so
much" is then worth more than a narrower estimate, so what it takes is kept back.

All choices were made by benchmarks/timed_search.py and benchmarks/capacity_honesty.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from reports.capacity.monotone import ENOUGH_EXPECTED, WINDOW
from reports.capacity.probe import Probe

_NEAREST, _USUAL = 1.5, 1.7  # times lower than a load that exceeds a limit: what is rare becomes rarer slowly


def footholds_below(load: float) -> tuple[float, float]:
    """The highest load to certify below one that exceeds a limit, where probes there have begun, and else the usual one."""
    return load / _NEAREST, load / _USUAL


def still_needed(probes: Sequence[Probe], limit: int, allowed: float, load: float) -> float:
    """The requests, ramps included, after which probes at ``load`` decide by none beyond ``limit``, whatever comes at clearly
    higher loads.
    """
    there = sum(probe.violations[limit].n for probe in probes if load <= probe.load < WINDOW * load)
    sent, counted = sum(probe.requests for probe in probes), sum(probe.violations[limit].n for probe in probes)
    return (ENOUGH_EXPECTED / allowed - there) * (sent / counted if counted else 1.0)
