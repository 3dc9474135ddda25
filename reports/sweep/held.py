"""How much load a target held in a sweep, and the gate on it: ``--fail_if held<20``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reports.criteria import HeldRequirement
from reports.gates.gate import Status
from reports.sweep.curves import setting_number
from reports.sweep.points import Sweep, SweepPoint

LOADS = ("request_rate", "concurrency", "isl", "osl", "input_mean", "output_mean")  # the higher, the harder to hold
_NOTHING_TO_HOLD = (
    "users bound the queue, and no gate of the measuring verb, such as --slo 'p99_ttft<=300ms', says what has to hold"
)


@dataclass(frozen=True, slots=True)
class Held:
    """Loads along ``axis``: ``highest`` held, of those below ``failed``, which is the lowest that failed; None where there is
    none. ``above`` lists those that held above ``failed``, which show no limit, and ``undecided`` those that neither held nor
    failed; ``most`` is the largest measured.
    """

    axis: str
    highest: float | None
    failed: float | None
    above: tuple[float, ...]
    undecided: tuple[float, ...]
    most: float
    whole: bool

    @property
    def low(self) -> float:
        """The load that the target is known to hold."""
        return self.highest or 0.0

    @property
    def needs_more_requests(self) -> bool:
        """Whether loads beside the limit are undecided: further ones with as many requests would be, too."""
        return any(self.low < load < (self.failed or math.inf) for load in self.undecided)


@dataclass(frozen=True, slots=True)
class SweepGate:
    """A requirement on the load that was held, and its result. ``why`` is the evidence in words."""

    requirement: HeldRequirement
    status: Status
    held: float | None
    failed: float | None
    why: str


def held_of(sweep: Sweep) -> Held | None:
    """What was held; None of a sweep that is not over one measure of the load, or of which nothing was to hold."""
    if not any(point.can_fail for point in sweep.points):
        return None
    if len(sweep.axes) != 1 or sweep.axes[0].replace("-", "_") not in LOADS:
        return None
    known = sorted(_loads(sweep, sweep.axes[0]), key=lambda pair: pair[0])
    if len(known) < len(sweep.points) or not known:
        return None
    failed = next((load for load, point in known if point.held is False), None)
    held = [load for load, point in known if point.held and (failed is None or load < failed)]
    above = tuple(load for load, point in known if point.held and failed is not None and load > failed)
    return Held(
        axis=sweep.axes[0],
        highest=held[-1] if held else None,
        failed=failed,
        above=above,
        undecided=tuple(load for load, point in known if point.held is None),
        most=known[-1][0],
        whole=all(load.is_integer() for load, _ in known),
    )


def _loads(sweep: Sweep, axis: str) -> list[tuple[float, SweepPoint]]:
    numbers = [(setting_number(point, axis), point) for point in sweep.points]
    return [(load, point) for load, point in numbers if load is not None and 0.0 < load < math.inf]


def gates_of(sweep: Sweep) -> tuple[SweepGate, ...]:
    """The gates of a sweep: passed where a load of at least the limit held, FAILED where one of at most the limit failed, else
    undecided, for the loads between were not measured, or not decided.
    """
    held = held_of(sweep)
    limited = any(point.can_fail for point in sweep.points)
    unknown = "the sweep is not over one measure of the load" if limited else _NOTHING_TO_HOLD
    return tuple(_judged(requirement, held, unknown) for requirement in sweep.required)


def _judged(requirement: HeldRequirement, held: Held | None, unknown: str) -> SweepGate:
    if held is None:
        return SweepGate(requirement, Status.UNDECIDED, None, None, unknown)
    if held.highest is not None and held.highest >= requirement.at_least:
        status = Status.PASSED
    else:
        failed_below = held.failed is not None and held.failed <= requirement.at_least
        status = Status.FAILED if failed_below else Status.UNDECIDED
    return SweepGate(requirement, status, held.highest, held.failed, found_text(held))


def found_text(held: Held) -> str:
    """What held and what failed, in words: "highest request_rate that held: 20; lowest that failed: 40"."""
    failed = "" if held.failed is None else load_text(held.failed)
    none = f"no {held.axis} below {failed} held" if held.above else f"no {held.axis} held"
    parts = [f"highest {held.axis} that held: {load_text(held.highest)}" if held.highest else none]
    though = f", though {', '.join(map(load_text, held.above))} held" if held.above else ""
    parts += [f"lowest that failed: {failed}{though}"] if failed else []
    undecided = ", ".join(map(load_text, held.undecided))
    return "; ".join([*parts, f"undecided: {undecided}"] if undecided else parts)


def load_text(load: float) -> str:
    """A load as it was given."""
    return f"{load:.10g}"
