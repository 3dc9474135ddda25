"""The answer of ``bench size`` in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench_cli.simulate.limits import SimulatedLimits
from reports.capacity.limits import Limit
from reports.metrics.catalogue import ATTAINMENT
from reports.render.counts import counted
from reports.render.tables import Table, console_table, three_digits
from simulator.arrays import FloatArray
from simulator.sizing import Sizing

_INTERVAL = (5, 50, 95)  # per cent
_CEILING = 3.0  # of the rate: no higher factor was tried


@dataclass(frozen=True)
class SizedTier:
    """The answer for one set of limits. ``reached`` has, by the number of replicas, what each limit reached in each draw, over
    the limit. ``rates`` are the factors of the workload's rate that replicas hold, ``held_per_s`` the requests a second that
    the answer's hold, None where unknown. ``beyond`` is what lies beyond the fitted runs; ``beyond_elsewhere`` the same of the
    other loads that the answer rests on, by their names, where the workload's does not.
    """

    limits: SimulatedLimits
    sizing: Sizing
    reached: Mapping[int, Sequence[tuple[float, ...]]]
    beyond: tuple[str, ...]
    rates: Mapping[int, float]
    held_per_s: float | None = None
    beyond_elsewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Draws:
    """How many ``draws`` there were, and of how many different ``constants`` and ``schedules``."""

    draws: int
    constants: int
    schedules: int

    def __str__(self) -> str:
        draws = counted(self.draws, "draw")
        constants = f"constants{self._of(self.constants)}, its " if self.constants else ""
        if self.schedules == 1 < self.draws:
            own = f"constants{self._of(self.constants)} and its " if self.constants else ""
            return f"{draws} of the model's {own}errors, with one schedule, which is that of every seed"
        return f"{draws} of the model's {constants}errors and the schedule{self._of(self.schedules)}"

    def _of(self, different: int) -> str:
        return f" ({different:,} different)" if different < self.draws else ""


def size_text(tiers: Sequence[SizedTier], confidence: float, draws: Draws) -> str:
    """First what lies beyond the fitted runs, then for each set the answer and a table."""
    parts = [
        f"{_named(tier)}{where} lies beyond what the model was fitted to, so its errors are not known: {'; '.join(beyond)}."
        for tier in tiers
        for where, beyond in {"This": tier.beyond, **tier.beyond_elsewhere}.items()
        if beyond
    ]
    for tier in tiers:
        parts += [f"{_named(tier)}{answer(tier, confidence)}", console_table(_table(tier, draws.draws))]
    parts.append(f"Simulated, no server was measured: {draws}. Ranges are 5 to 95 % of them.")
    return "\n\n".join(parts)


def answer(tier: SizedTier, confidence: float) -> str:
    """The answer in one sentence or two: "6 replicas, 95 %; 5 cannot be excluded; the seventh buys 18 % of rate."."""
    sizing, share = tier.sizing, f"{100 * confidence:.3g} %"
    if sizing.replicas is None:
        open_from = "" if sizing.lowest >= sizing.most else f"; from {sizing.lowest:,} on that cannot be excluded"
        return f"No number up to {_replicas(sizing.most)} holds with {share}{open_from}."
    parts = [f"{_replicas(sizing.replicas)}, {share}"]
    if sizing.lowest < sizing.replicas:
        fewer = sizing.replicas - 1
        between = " and " if sizing.lowest == fewer - 1 else " to "
        span = f"{fewer:,}" if sizing.lowest == fewer else f"{sizing.lowest:,}{between}{fewer:,}"
        parts.append(f"{span} cannot be excluded")
    elif sizing.replicas > 1:
        parts.append(f"{sizing.replicas - 1:,} do not hold" if sizing.replicas > 2 else "1 does not hold")
    return "; ".join([*parts, *_next(tier)]) + "."


def _next(tier: SizedTier) -> list[str]:
    """What a further replica buys, and the rate that these hold."""
    factors = shown_factors(tier.sizing.replicas or 0, tier.rates)
    if factors is None:
        return []
    here, there = factors
    found = [f"one more buys {there / here - 1:.0%} of rate"]
    held = tier.held_per_s
    return [*found, *([] if held is None else [f"the median of what these hold is {three_digits(held)} requests/s"])]


def shown_factors(replicas: int, rates: Mapping[int, float]) -> tuple[float, float] | None:
    """The factors of the rate that ``replicas`` hold, and one more; None where they are not known, or not up to where."""
    here, there = rates.get(replicas), rates.get(replicas + 1)
    return None if here is None or there is None or max(here, there) >= _CEILING else (here, there)


def _table(tier: SizedTier, draws: int) -> Table:
    columns = ("replicas", "holds", *(str(limit.requirement) for limit in tier.limits.limits))
    rows = tuple(
        (f"{n:,}", f"{_held(values)} of {draws}", *(_cell(limit, column) for limit, column in _columns(tier, values)))
        for n, values in tier.reached.items()
    )
    return Table("sizes", "Sizes", columns, rows)


def _held(values: Sequence[tuple[float, ...]]) -> int:
    """The draws in which all limits hold."""
    return sum(max(reached) <= 1.0 for reached in values)


def _columns(tier: SizedTier, values: Sequence[tuple[float, ...]]) -> list[tuple[Limit, FloatArray]]:
    return list(zip(tier.limits.limits, np.array(values).T, strict=True))


def _cell(limit: Limit, reached: FloatArray) -> str:
    """The median and the range of what a limit reached, in ms; of attainment as a factor of its objectives."""
    is_share = limit.requirement.metric is ATTAINMENT
    low, middle, high = np.percentile(reached, _INTERVAL) * (1.0 if is_share else limit.requirement.limit)
    unit = "x the limits" if is_share else "ms"
    return f"{three_digits(float(middle))} ({three_digits(float(low))} – {three_digits(float(high))}) {unit}"


def _named(tier: SizedTier) -> str:
    return "" if tier.limits.name is None else f"{tier.limits.name}: "


def _replicas(number: int) -> str:
    return "1 replica" if number == 1 else f"{number:,} replicas"
