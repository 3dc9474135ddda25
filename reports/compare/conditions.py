"""``--fail_if``: changes that fail a build, judged by the evidence of a comparison."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reports.compare.difference import Difference
from reports.compare.measures import MEASURES, Measure
from reports.errors import ConditionError
from reports.gates import Status

_FORM = re.compile(r"\s*(?P<name>\w+)\s*(?P<sign>[<>])\s*(?P<amount>[+-]?\d+(\.\d+)?)\s*(?P<unit>%|pp)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """``p99_ttft > +5%``: fails when the measure changed by more than ``amount`` (a share; for failed_share, points)."""

    measure: Measure
    above: bool
    amount: float
    text: str


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """FAILED when the one-sided 95 % bound of the change exceeds the amount; UNDECIDED without such a bound. ``why`` is the
    reason.
    """

    condition: Condition
    status: Status
    why: str

    @property
    def failed(self) -> bool:
        return self.status is Status.FAILED


def parse_condition(text: str) -> Condition:
    """Parse one condition. Raises ConditionError."""
    match = _FORM.fullmatch(text)
    names = {measure.name: measure for measure in MEASURES}
    names |= {f"{name}_ms": measure for name, measure in names.items() if measure.unit == "ms"}
    if match is None or match["name"] not in names:
        raise ConditionError(f"{text!r} is not a condition; write it like 'p99_ttft > +5%'. Measures: {', '.join(names)}")
    measure = names[match["name"]]
    if (match["unit"] == "%") is not measure.relative:
        raise ConditionError(f"{text!r}: {measure.name} changes by {'%' if measure.relative else 'pp (percentage points)'}")
    return Condition(measure, match["sign"] == ">", float(match["amount"]) / 100.0, text.strip())


def check_conditions(conditions: Sequence[Condition], differences: Sequence[Difference]) -> tuple[ConditionResult, ...]:
    """Check each condition; they share the significance level (Bonferroni), so that more conditions do not fail more often."""
    by_name = {difference.measure.name: difference for difference in differences}
    return tuple(_checked(condition, by_name.get(condition.measure.name), len(conditions)) for condition in conditions)


def _checked(condition: Condition, difference: Difference | None, together: int) -> ConditionResult:
    if difference is None:
        return ConditionResult(condition, Status.UNDECIDED, "these runs do not have this measure")
    bound = difference.bound(condition.above, 0.05 / together)
    if bound is None or difference.change is None:
        return ConditionResult(condition, Status.UNDECIDED, difference.reason or "the change is unknown")
    failed = bound > condition.amount if condition.above else bound < condition.amount
    change, shown = _amount(difference.measure, difference.change), _amount(difference.measure, bound)
    least = "at least" if condition.above else "at most"
    starts = " between these starts" if difference.evidence is not None and difference.evidence.single_starts else ""
    return ConditionResult(
        condition,
        Status.FAILED if failed else Status.PASSED,
        f"changed by {change}{starts}, {least} {shown} with 95 % confidence (one-sided)",
    )


def _amount(measure: Measure, change: float) -> str:
    return f"{change:+.1%}" if measure.relative else f"{100 * change:+.1f} pp"
