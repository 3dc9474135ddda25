"""``--fail_if`` and ``--slo`` of a comparison: changes that fail a build, and what has to hold of the arm that is compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reports.compare.difference import Difference, is_unlimited
from reports.compare.measures import MEASURES, Measure
from reports.compare.spread import CONFIDENCE
from reports.criteria import Requirement, parse_fail_if
from reports.errors import ConditionError
from reports.gates.gate import Gate, Status
from reports.gates.judge import judge_together
from reports.metrics.catalogue import FAILED_SHARE
from reports.render.counts import counted, decimals_that_show
from reports.run_report import RunReport
from reports.statistics.estimate import reason_text

_FORM = re.compile(
    r"\s*(?P<name>\w+)\s*(?P<sign><=|>=|=<|=>|[<>])\s*(?P<amount>[+-]?(?:\d+\.?\d*|\.\d+))\s*(?P<unit>%|pp)\s*", re.IGNORECASE
)
_MOST_DECIMALS = 6
_DIGITS = 7  # of an amount in per cent: those that the binary error of a product leaves


@dataclass(frozen=True, slots=True)
class Condition:
    """``p99_ttft > +5%``: fails when the measure changed by more than ``amount`` (a share; for failed_share, points)."""

    measure: Measure
    above: bool
    amount: float
    text: str


@dataclass(frozen=True, slots=True)
class AbsoluteCondition:
    """``p99_ttft > 300ms``, which needs no baseline: fails when ``requirement`` does not hold of the arm that is compared."""

    requirement: Requirement
    text: str


AnyCondition = Condition | AbsoluteCondition


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """The result of a condition by the 95 % interval of a change, or that of the arm's own number: UNDECIDED unless the
    evidence is on one side. ``why`` is the evidence in words, and ``change`` the part of it that says how much a measure
    changed.
    """

    condition: AnyCondition
    status: Status
    why: str
    change: str = ""

    @property
    def failed(self) -> bool:
        return self.status is Status.FAILED


def parse_condition(text: str) -> AnyCondition:
    """Parse one condition: a change in per cent or points, or else a limit. Raises ConditionError."""
    match = _FORM.fullmatch(text)
    names = {measure.name: measure for measure in MEASURES}
    names |= {f"{name}_ms": measure for name, measure in names.items() if measure.unit == "ms"}
    measure = None if match is None else names.get(match["name"].lower())
    if match is not None and measure is not None and (measure.relative or match["unit"] != "%"):
        if measure.relative is not (match["unit"] == "%"):
            raise ConditionError(f"{text!r}: {measure.name} changes by %")
        return Condition(measure, ">" in match["sign"], float(match["amount"]) / 100.0, text.strip())
    if match is not None and match["amount"][0] in "+-" and measure is not None:
        raise ConditionError(f"{text!r}: {measure.name} changes by pp (percentage points)")
    try:
        return AbsoluteCondition(parse_fail_if(text), text.strip())
    except ValueError as error:
        changes = f"a change is written as 'p99_ttft>+5%', and is judged of {', '.join(m.name for m in MEASURES)}"
        if match is not None:
            raise ConditionError(f"{text!r}: {changes}") from None
        raise ConditionError(f"{error}; {changes}") from None


def check_conditions(
    conditions: Sequence[AnyCondition],
    differences: Sequence[Difference],
    runs: Sequence[RunReport] = (),
    failed_runs: int = 0,
) -> tuple[ConditionResult, ...]:
    """Check each condition, of the ``differences`` or of the compared arm's ``runs``. The differences lack ``failed_runs`` of
    these, in which too many requests failed: where there are any, no change passes.

    Conditions on changes share the significance level (Bonferroni), so that more conditions do not fail more often. A single
    one is judged by the 95 % interval that is printed beside the change.
    """
    by_name = {difference.measure.name: difference for difference in differences}
    together = sum(isinstance(condition, Condition) for condition in conditions)
    return tuple(
        _without_failed(_of_change(condition, by_name.get(condition.measure.name), together, runs), failed_runs)
        if isinstance(condition, Condition)
        else _of_arm(condition, runs)
        for condition in conditions
    )


def _of_change(
    condition: Condition, difference: Difference | None, together: int, runs: Sequence[RunReport]
) -> ConditionResult:
    """The result of a condition on a change. Where no request of either side failed, there is no spread, and other runs may
    have failures all the same: how many, the ``runs`` of the arm show as in a gate.
    """
    result = _checked(condition, difference, together)
    none_failed = difference is not None and condition.measure.metric is FAILED_SHARE and difference.a == difference.b == 0.0
    if not (none_failed and condition.above and runs and result.status is Status.PASSED):
        return result
    gate = _gate(Requirement(FAILED_SHARE, None, True, condition.amount), runs)
    status = Status.PASSED if gate.status is Status.PASSED else Status.UNDECIDED
    return replace(result, status=status, why=f"{result.change}; {'; '.join(gate.grounds)}")


def _without_failed(result: ConditionResult, failed_runs: int) -> ConditionResult:
    if not failed_runs or result.status is not Status.PASSED:
        return result
    why = f"{result.why}, without {counted(failed_runs, 'run')} of this arm in which too many requests failed"
    return replace(result, status=Status.UNDECIDED, why=why)


def _of_arm(condition: AbsoluteCondition, runs: Sequence[RunReport]) -> ConditionResult:
    gate = _gate(condition.requirement, runs)
    return ConditionResult(condition, gate.status, gate.why)


def _gate(requirement: Requirement, runs: Sequence[RunReport]) -> Gate:
    return judge_together(requirement, [run.judged for run in runs], max(run.validity for run in runs))


def _checked(condition: Condition, difference: Difference | None, together: int) -> ConditionResult:
    if difference is None:
        return ConditionResult(condition, Status.UNDECIDED, "these runs do not have this measure")
    tail = (1.0 - CONFIDENCE) / 2.0 / together
    near, far = (difference.bound(lower, tail) for lower in (condition.above, not condition.above))
    if near is None or far is None or difference.change is None:
        return ConditionResult(condition, Status.UNDECIDED, reason_text(difference.reason) or "the change is unknown")
    sign = 1.0 if condition.above else -1.0
    if sign * (near - condition.amount) > 0.0:
        status = Status.FAILED
    else:
        status = Status.PASSED if sign * (far - condition.amount) <= 0.0 else Status.UNDECIDED
    starts = " between these starts" if difference.evidence is not None and difference.evidence.single_starts else ""
    change = f"changed by {_amount(difference.measure, difference.change, _decimals(difference.measure))}{starts}"
    if near == far and difference.reason is not None:  # without an interval
        return ConditionResult(condition, status, f"{change}: {difference.reason}", change)
    judged = "" if together == 1 else f" of {together} conditions together"
    bounds = _bounds(condition, status, near, far)
    return ConditionResult(condition, status, f"{change}, {bounds} by the 95 % interval{judged}", change)


def _bounds(condition: Condition, status: Status, near: float, far: float) -> str:
    """The bound that decides, or both where neither does. ``near`` is the one nearer to where the condition passes."""
    if status is Status.UNDECIDED:
        low, high = sorted((near, far))
        if is_unlimited(condition.measure, high):
            return f"at least {_beside(condition, low)}, without an upper limit,"
        return f"between {_beside(condition, low)} and {_beside(condition, high)}"
    least = "at least" if (status is Status.FAILED) is condition.above else "at most"
    return f"{least} {_beside(condition, near if status is Status.FAILED else far)}"


def _beside(condition: Condition, bound: float) -> str:
    """A bound with as many digits as show on which side of the condition's amount it lies."""
    usual, sign = _decimals(condition.measure), 1.0 if condition.above else -1.0
    amount, beyond = round(100.0 * condition.amount, _DIGITS), sign * (bound - condition.amount) > 0.0
    found = decimals_that_show(100.0 * bound, usual, _MOST_DECIMALS, lambda shown: (sign * (shown - amount) > 0.0) == beyond)
    return _amount(condition.measure, bound, usual if found is None else found)


def _amount(measure: Measure, change: float, decimals: int) -> str:
    return f"{100.0 * change:+.{decimals}f}{'%' if measure.relative else ' pp'}"


def _decimals(measure: Measure) -> int:
    """The decimals that a change has in the tables."""
    return 1 if measure.relative else 2
