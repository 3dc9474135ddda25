"""The tables of a comparison, the same in every format."""

from __future__ import annotations

from collections.abc import Sequence

from reports.compare.comparison import MIXED, Arm, ArmComparison, overall
from reports.compare.difference import Difference, Verdict
from reports.compare.measures import Measure
from reports.render.tables import UNKNOWN, Cell, Quantity, Table

DIFFERENCE_COLUMNS = ("measure", "A", "B", "B − A", "change", "95 % interval", "p (Holm)", "could have shown", "evidence says")
COLUMN_ALIGNMENT = ("left", *["right"] * 7, "left")
_LARGEST_SHARE = 10.0


def difference_table(comparison: ArmComparison, name: str = "differences") -> Table:
    """One row a measure. Of a relative measure ``change`` and what could have been shown are per cent of A, else points."""
    return Table(
        name,
        "Differences",
        DIFFERENCE_COLUMNS,
        tuple(difference_row(difference) for difference in comparison.differences),
        "Latencies count from the schedule. The interval is of each measure alone; p and the verdict of all together (Holm). "
        '"Could have shown" is the smallest change that these runs would have shown in four of five cases.',
    )


def headline(comparison: ArmComparison) -> str:
    """The verdict in one sentence, with the largest changes that the evidence shows."""
    return told_in_words(comparison.arm.name, comparison.baseline.name, comparison.differences)


def told_in_words(name: str, baseline: str, differences: Sequence[Difference]) -> str:
    """What the evidence says of ``name`` against ``baseline``, in one sentence."""
    shown = [d for d in differences if d.verdict.value in ("better", "worse")]
    if not shown:
        return (
            f"No difference between {name} and {baseline} is shown by these runs."
            if overall(differences) == Verdict.NONE
            else f"Whether {name} differs from {baseline} cannot be told from these runs."
        )
    parts = "; ".join(f"{d.measure.title} {change_text(d.measure, d.change)} ({interval_text(d)})" for d in shown)
    verdict = overall(differences)
    says = "better in some and worse in others than" if verdict == MIXED else f"{verdict} than"
    return f"{name} is {says} {baseline}: {parts}."


def notes(comparison: ArmComparison) -> list[str]:
    """What a reader must know beside the table: requests in pairs, what was left out, what the evidence cannot see."""
    a, b, found = comparison.baseline, comparison.arm, []
    if comparison.pairs is not None:
        d = comparison.pairs.difference_ms
        found.append(
            f"Request by request ({d.n:,} pairs of one schedule): B − A in {a.latency_title} is {d.p50:+.2f} ms in the median "
            f"(95 %: {d.percentile(0.50).interval_text}); {comparison.pairs.share_slower:.0%} of the requests were slower in B."
        )
    if b.blocks_left_out:
        blocks = "1 block is" if b.blocks_left_out == 1 else f"{b.blocks_left_out} blocks are"
        found.append(f"{blocks} left out, in which a run is missing or invalid; that run's report says why.")
    if len(a.runs) == len(b.runs) == 1:
        found.append(
            "One run each: what differs from start to start is not in these intervals. Repeat, or use 'bench experiment'."
        )
    return found


def runs_text(arm: Arm) -> str:
    return "1 run" if len(arm.runs) == 1 else f"{len(arm.runs)} runs"


def change_text(measure: Measure, change: float | None) -> str:
    if change is None:
        return UNKNOWN
    if measure.relative:
        return f"{change:+.1%}" if change < _LARGEST_SHARE else f"above {_LARGEST_SHARE:+,.0%}"
    return f"{100 * change:+.2f} pp"


def interval_text(difference: Difference) -> str:
    """The interval of the change, or why there is none."""
    if difference.interval is None:
        return difference.reason or UNKNOWN
    low, high = (change_text(difference.measure, bound) for bound in difference.interval)
    return f"{low} to {high}"


def smallest_shown_text(difference: Difference) -> str:
    """The smallest fall and rise that would have been shown. Of a ratio they are not alike: to a third, or to the threefold."""
    rise = difference.smallest_shown
    if rise is None:
        return UNKNOWN
    if not difference.measure.relative:
        return change_text(difference.measure, rise).replace("+", "±", 1)
    return f"{change_text(difference.measure, -rise / (1.0 + rise))} or {change_text(difference.measure, rise)}"


def difference_row(d: Difference) -> tuple[Cell, ...]:
    """One measure under DIFFERENCE_COLUMNS."""
    return (
        f"{d.measure.title}, {d.measure.unit}" if d.measure.relative else f"{d.measure.title}, %",
        _value(d.measure, d.a),
        _value(d.measure, d.b),
        _value(d.measure, d.difference, "+"),
        _in_percent(d.change, change_text(d.measure, d.change)),
        interval_text(d),
        None if d.p_adjusted is None else Quantity(d.p_adjusted, f"{d.p_adjusted:.3f}" if d.p_adjusted >= 0.001 else "<0.001"),
        _in_percent(d.smallest_shown, smallest_shown_text(d)),
        d.verdict.value,
    )


def _value(measure: Measure, value: float | None, sign: str = "") -> Quantity | None:
    if value is None:
        return None
    shown = value if measure.relative else 100 * value
    return Quantity(shown, f"{shown:{sign},.2f}")


def _in_percent(share: float | None, text: str) -> Quantity | None:
    return None if share is None else Quantity(100 * share, text)
