"""The tables of a comparison, the same in every format."""

from __future__ import annotations

from reports.compare.comparison import MIXED, ArmComparison
from reports.compare.difference import Difference
from reports.compare.measures import Measure

DIFFERENCE_COLUMNS = ("", "A", "B", "B − A", "change", "95 % interval", "p (Holm)", "could have shown", "evidence says")
ONE_RUN_EACH = "One run each: what differs from start to start is not in these intervals. Repeat, or use 'bench experiment'."
_LARGEST_SHARE = 10.0
_UNKNOWN = "–"


def difference_rows(comparison: ArmComparison) -> list[tuple[str, ...]]:
    """One row a measure under DIFFERENCE_COLUMNS."""
    return [_row(difference) for difference in comparison.differences]


def headline(comparison: ArmComparison) -> str:
    """The verdict in one sentence, with the largest changes that the evidence shows."""
    shown = [d for d in comparison.differences if d.verdict.value in ("better", "worse")]
    name, baseline = comparison.arm.name, comparison.baseline.name
    if not shown:
        told = any(d.spread is not None for d in comparison.differences)
        return (
            f"No difference between {name} and {baseline} is shown by these runs."
            if told
            else f"Whether {name} differs from {baseline} cannot be told from these runs."
        )
    parts = "; ".join(f"{d.measure.title} {change_text(d.measure, d.change)} ({interval_text(d)})" for d in shown)
    says = "better in some and worse in others than" if comparison.verdict == MIXED else f"{comparison.verdict} than"
    return f"{name} is {says} {baseline}: {parts}."


def change_text(measure: Measure, change: float | None) -> str:
    if change is None:
        return _UNKNOWN
    if measure.relative:
        return f"{change:+.1%}" if change < _LARGEST_SHARE else f"above {_LARGEST_SHARE:+,.0%}"
    return f"{100 * change:+.2f} pp"


def interval_text(difference: Difference) -> str:
    """The interval of the change, or why there is none."""
    if difference.interval is None:
        return difference.reason or _UNKNOWN
    low, high = (change_text(difference.measure, bound) for bound in difference.interval)
    return f"{low} to {high}"


def _row(d: Difference) -> tuple[str, ...]:
    smallest = _UNKNOWN if d.smallest_shown is None else change_text(d.measure, d.smallest_shown).replace("+", "±", 1)
    return (
        f"{d.measure.title}, {d.measure.unit}" if d.measure.relative else f"{d.measure.title}, %",
        _value(d.measure, d.a),
        _value(d.measure, d.b),
        _value(d.measure, d.difference, "+"),
        change_text(d.measure, d.change),
        interval_text(d),
        _UNKNOWN if d.p_adjusted is None else f"{d.p_adjusted:.3f}" if d.p_adjusted >= 0.001 else "<0.001",
        smallest,
        d.verdict.value,
    )


def _value(measure: Measure, value: float | None, sign: str = "") -> str:
    if value is None:
        return _UNKNOWN
    return f"{value if measure.relative else 100 * value:{sign},.2f}"
