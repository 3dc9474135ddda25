"""Control variates: what a simulation of each probe's own schedule explains of the requests beyond a limit is taken off.

Crowded arrivals and long requests bring requests beyond a limit together, and a schedule knows them. So a probe counts as
share − β · (simulated share − its mean over schedules): the expectation is that of the share, however wrong the simulation is,
as long as β is not chosen by the probe itself (Lavenberg and Welch 1981). The β of a probe is that of all others, from blocks
of requests. A wrong simulation costs efficiency: where it leaves as much variance as there was, β is 0.

All choices were made by benchmarks/control_variate.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reports.capacity.probe import Control, Probe, Violations
from reports.statistics.arrays import FloatArray

_LARGEST = 1.5  # coefficient: a simulation with far fewer requests beyond the limit says little about how many there are
_FEWEST_EVENTS = 3  # blocks with a request beyond the limit, from which on they show what the simulation explains
_UNEXPLAINED = 0.2  # of one more event: what a simulation that missed none may leave; a wrong one leaves more by what it missed


def controlled(probes: Sequence[Probe]) -> tuple[Probe, ...]:
    """The probes with what their controls explain taken off their violations."""
    found = [list(probe.violations) for probe in probes]
    for place in range(max((len(probe.controls) for probe in probes), default=0)):
        sums = _sums(probes, place)
        for number, probe in enumerate(probes):
            if _is_controlled(probe):
                others = sums.sum(axis=0) - sums[number]
                found[number][place] = _without(probe.violations[place], probe.controls[place], others)
    return tuple(replace(probe, violations=tuple(each)) for probe, each in zip(probes, found, strict=True))


def explained(probes: Sequence[Probe], place: int) -> float | None:
    """The share of the variance of the requests beyond a limit, by its position, that the controls explain, 0 where they do not
    help; None where too few requests are beyond it to know.
    """
    sums = _sums(probes, place).sum(axis=0)
    return None if sums[3] < _FEWEST_EVENTS else 1.0 - _coefficient(sums)[1]


def _is_controlled(probe: Probe) -> bool:
    return bool(probe.controls) and not probe.gave_up


def _sums(probes: Sequence[Probe], place: int) -> FloatArray:
    """The sums of each probe: squares of measured blocks, products, and squares of simulated ones, and the number of blocks
    with a request beyond the limit, shape [probes, 4]. Probes beyond the allowed share weigh less: they would decide.
    """
    found = np.zeros((len(probes), 4))
    for number, probe in enumerate(probes):
        if not _is_controlled(probe):
            continue
        control, violations = probe.controls[place], probe.violations[place]
        measured, simulated = (np.array(each, np.float64) for each in (control.measured, control.simulated))
        weight = min(1.0, control.allowed * violations.n / max(violations.above, 1))
        events = np.count_nonzero(measured + simulated)
        measured, simulated = measured - measured.mean(), simulated - simulated.mean()
        found[number] = (weight * measured @ measured, weight * measured @ simulated, weight * simulated @ simulated, events)
    return found


def _coefficient(sums: FloatArray) -> tuple[float, float]:
    """β, and the share of the variance that it leaves, 1 where too few events show that.

    One more event, explained in full, is what is known of β beforehand: it is 1 before the first. Any number that the probe did
    not choose leaves the expectation as it is, and the first probes show where to search.
    """
    squares, products, simulated, events = sums.tolist()
    event = (squares + simulated) / 2.0 / max(events, 1.0)
    if event == 0.0:
        return 1.0, 1.0
    beta = min(max((products + event) / (simulated + event), 0.0), _LARGEST)
    left = squares - 2.0 * beta * products + beta**2 * simulated
    remaining = (left + _UNEXPLAINED * event) / (squares + _UNEXPLAINED * event)
    if events < _FEWEST_EVENTS:
        return beta, 1.0
    return (beta, remaining) if remaining < 1.0 else (0.0, 1.0)


def _without(violations: Violations, control: Control, others: FloatArray) -> Violations:
    """Whole requests, from none to all, as of a probe."""
    beta, remaining = _coefficient(others)
    adjusted = round(violations.above - beta * violations.n * (control.share - control.expected))
    above = min(max(0, adjusted), violations.n)
    effect = None if violations.effect is None else max(1.0, violations.effect * remaining)
    return replace(violations, above=above, effect=effect, remaining=remaining, explained=violations.above - above)
