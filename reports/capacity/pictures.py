"""The pictures of a search for capacity: the share of requests beyond each limit against the load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from reports.capacity.answer import searched
from reports.capacity.result import Capacity, LoadUnit, ProbeRun, Tier, Verdict, verdict_of
from reports.capacity.search import Bracket, Curve
from reports.capacity.shares import fitted_share, share_interval
from reports.capacity.words import (
    allowed_text,
    beyond_text,
    certified_number,
    counted_text,
    load_text,
    refused_number,
    share_text,
)
from reports.criteria import Requirement
from reports.metrics.catalogue import FAILED_SHARE
from reports.render.picture import Axis, Band, Colour, Dots, Line, Mark, Picture, Shape, Stroke, Whiskers
from reports.render.plain_text import printable
from reports.statistics.arrays import FloatArray

_COLOURS = {Verdict.HOLDS: Colour.GREEN, Verdict.FAILS: Colour.RED, Verdict.UNDECIDED: Colour.BLUE}
_POINTS = 60  # of a fitted curve
_WIDE = 8.0  # loads that spread further are drawn on a logarithmic axis
_LEAST_DECADE = 10.0  # times the largest share of none: room below the allowed share


def capacity_pictures(capacity: Capacity) -> tuple[Picture, ...]:
    """A picture for each limit that some probe measured, with the bracket of the tier that it belongs to."""
    return tuple(
        _picture(capacity, tier, place, several=len(capacity.limits) > 1)
        for tier, place in _places(capacity)
        if any(run.probe.violations[tier.goal.limits[place]].n for run in capacity.probes)
    )


@dataclass(frozen=True)
class Side:
    """One of several searches in a picture: its name there, its colour, and the tier that is shown."""

    name: str
    colour: Colour
    capacity: Capacity
    tier: Tier


def sides_picture(sides: Sequence[Side], place: int, name: str) -> Picture:
    """The probes and curves of several searches for the limit at this ``place`` among those of their tiers, and the bracket of
    each.
    """
    first = sides[0]
    limit, allowed = searched(first.capacity, first.tier).required[place], first.tier.goal.allowed[place]
    loads = [run.probe.load for side in sides for run in side.capacity.probes] or [1.0]
    ends = (min(loads) / 1.05, max(loads) * 1.05)
    floor = min(_floor_of(side.capacity.probes, side.tier.goal.limits[place], allowed) for side in sides)
    marks: list[Mark] = []
    for side in sides:
        bracket = side.tier.bracket
        if bracket.certified is not None and bracket.refused is not None:
            marks.append(Band(f"bracket of {side.name}", bracket.certified, bracket.refused, side.colour))
        curve = bracket.curves[place] if bracket.curves else None
        marks += [*_curve_of(curve, ends, floor, f"curve of {side.name}", side.colour)]
        position = side.tier.goal.limits[place]
        marks += [*_whiskers_of(side.capacity.probes, position, floor, f"probes of {side.name}", side.colour)]
    marks.append(
        Line(f"allowed: {allowed_text(allowed)}", np.array(ends), np.full(2, 100.0 * allowed), Colour.GREY, Stroke.DASHED)
    )
    of_tier = "" if first.tier.name is None else f" ({printable(first.tier.name)})"
    return Picture(
        name,
        f"{counted_text(limit).capitalize()} {beyond_text(limit)}, against load{of_tier}",
        "Bars are 95 % intervals of one probe. Overloaded probes, and those that are not valid, are left out.",
        _load_axis(first.capacity.unit, loads),
        Axis(f"{counted_text(limit)} beyond the limit", "%", log=True),
        tuple(marks),
    )


def _places(capacity: Capacity) -> Iterator[tuple[Tier, int]]:
    """Each limit once: its first tier, and its position in that tier's goal."""
    drawn: set[int] = set()
    for tier in capacity.tiers:
        for place, position in enumerate(tier.goal.limits):
            if position not in drawn:
                drawn.add(position)
                yield tier, place


def _picture(capacity: Capacity, tier: Tier, place: int, *, several: bool) -> Picture:
    limit, allowed = searched(capacity, tier).required[place], tier.goal.allowed[place]
    runs = [run for run in capacity.probes if run.probe.violations[tier.goal.limits[place]].n]
    position = tier.goal.limits[place]
    loads = [run.probe.load for run in runs]
    shown = [
        *loads,
        *(end for end in (tier.bracket.certified, tier.bracket.refused) if end),
    ]  # a curve may certify a lower load
    ends = (min(shown) / 1.05, max(shown) * 1.05)
    floor = _floor_of(runs, position, allowed)
    curve = tier.bracket.curves[place] if tier.bracket.curves else None
    marks: list[Mark] = [
        *_bands(capacity, tier, ends, of_all=several),
        Line(f"allowed: {allowed_text(allowed)}", np.array(ends), np.full(2, 100.0 * allowed), Colour.GREY, Stroke.DASHED),
        *_curve_of(curve, ends, floor, "curve through all probes", Colour.ORANGE),
        *_probes(runs, position, floor, tier.bracket),
    ]
    none = any(run.probe.violations[position].above == 0 for run in runs)
    notes = (
        "Bars are 95 % intervals of one probe; the bracket and the curve rest on all probes together.",
        f"A ring at the bottom: none of the {counted_text(limit)} of the probe was {_beyond(limit)}." if none else "",
        "A cross: a probe that is no point of the curve." if any(map(_is_apart, runs)) else "",
        "Dots are what was measured; the curve is without what the model explains." if any(map(_is_modelled, runs)) else "",
    )
    of_tier = "" if tier.name is None else f" ({printable(tier.name)})"
    return Picture(
        f"share-{position + 1}",
        f"{counted_text(limit).capitalize()} {beyond_text(limit)}, against load{of_tier}",
        " ".join(note for note in notes if note),
        _load_axis(capacity.unit, shown),
        Axis(f"{counted_text(limit)} beyond the limit", "%", log=True),
        tuple(marks),
    )


def _beyond(limit: Requirement) -> str:
    return "a failure" if limit.metric is FAILED_SHARE else "beyond the limit"


def _bands(capacity: Capacity, tier: Tier, ends: tuple[float, float], *, of_all: bool) -> Iterator[Band]:
    """The certified and the refused loads; with several limits they hold, or fail, for all together."""
    low, high = tier.bracket.certified, tier.bracket.refused
    together = " (all limits)" if of_all and len(tier.goal.limits) > 1 else ""
    if low is not None and low > ends[0]:
        text = load_text(certified_number(low, capacity.unit), capacity.unit)
        yield Band(f"holds: up to {text}{together}", ends[0], min(low, ends[1]), Colour.GREEN)
    if high is not None and high < ends[1]:
        text = load_text(refused_number(high, capacity.unit), capacity.unit)
        yield Band(f"fails: from {text}{together}", max(high, ends[0]), ends[1], Colour.RED)


def _load_axis(unit: LoadUnit, loads: Sequence[float]) -> Axis:
    """The axis of ``loads``, logarithmic where they are far apart."""
    return Axis("load", unit.value, log=max(loads) > _WIDE * min(loads))


def _floor_of(runs: Sequence[ProbeRun], position: int, allowed: float) -> float:
    """The share in per cent at which none is drawn: below that of any request, and well below the allowed one."""
    counts = [run.probe.violations[position].n for run in runs]
    return 100.0 * min([allowed / _LEAST_DECADE, *(0.5 / n for n in counts if n)])


def _curve_of(curve: Curve | None, ends: tuple[float, float], floor: float, name: str, colour: Colour) -> Iterator[Line]:
    """The fitted curve, where there is one."""
    if curve is None:
        return
    x = np.geomspace(*ends, _POINTS)
    shares = [fitted_share(curve, float(load)) for load in x]
    known = [share for share in shares if share is not None]
    if len(known) == len(shares):
        y = 100.0 * np.array(known)
        y[(y < floor) | (y >= 100.0)] = np.nan
        yield Line(name, x, y, colour)


def _probes(runs: Sequence[ProbeRun], position: int, floor: float, of_tier: Bracket) -> Iterator[Mark]:
    """A dot for each probe with its interval, by the verdict of the picture's tier; a cross for each that is no point of the
    curve.
    """
    for verdict in Verdict:
        shown = [run for run in runs if verdict_of(run.probe.load, of_tier) is verdict]
        name, colour = f"probe: {verdict}", _COLOURS[verdict]
        yield from _whiskers_of(shown, position, floor, name, colour)
    for name, colour, valid in (("probe: overloaded", Colour.PURPLE, True), ("probe: not valid", Colour.GREY, False)):
        crossed = [run for run in runs if _is_apart(run) and run.valid is valid]
        if crossed:
            shares, notes = _shares(crossed, position, floor), _notes(crossed, position)
            yield Dots(name, _loads(crossed), shares, colour, Shape.CROSS, notes)


def _is_apart(run: ProbeRun) -> bool:
    """Whether a probe is no point of the curve: overloaded, or no evidence."""
    return run.probe.overloaded or not run.valid


def _is_modelled(run: ProbeRun) -> bool:
    """Whether a simulation of its schedule is taken off what it counts as."""
    return bool(run.probe.controls)


def _whiskers_of(runs: Sequence[ProbeRun], position: int, floor: float, name: str, colour: Colour) -> Iterator[Mark]:
    """The probes that are points of a curve, with their intervals; a ring at the ``floor`` where no request was beyond."""
    shown = [run for run in runs if not _is_apart(run) and run.probe.violations[position].n]
    known = [run for run in shown if share_interval(run.probe.violations[position]) is not None]
    if known:
        intervals = [share_interval(run.probe.violations[position]) or (0.0, 0.0) for run in known]
        low, high = (np.maximum(floor, 100.0 * np.array(side)) for side in zip(*intervals, strict=True))
        yield Whiskers(name, _loads(known), low, high, colour)
    for has_any, shape in ((True, Shape.POINT), (False, Shape.RING)):
        drawn = [run for run in shown if bool(run.probe.violations[position].above) is has_any]
        if drawn:
            yield Dots(name, _loads(drawn), _shares(drawn, position, floor), colour, shape, _notes(drawn, position))


def _loads(runs: Sequence[ProbeRun]) -> FloatArray:
    return np.array([run.probe.load for run in runs])


def _shares(runs: Sequence[ProbeRun], position: int, floor: float) -> FloatArray:
    """In per cent; ``floor`` where no request was beyond the limit."""
    return np.array([100.0 * (run.probe.violations[position].share or 0.0) or floor for run in runs])


def _notes(runs: Sequence[ProbeRun], position: int) -> tuple[str, ...]:
    """Which probe it is, and its numbers."""
    return tuple(_note(run, position) for run in runs)


def _note(run: ProbeRun, position: int) -> str:
    violations = run.probe.violations[position]
    interval = share_interval(violations)
    beside = "" if interval is None else f"; 95 %: {share_text(interval[0])} – {share_text(interval[1])}"
    return printable(f"{run.folder}: {violations.above:,} of {violations.n:,} beyond{beside}")
