"""A comparison on a terminal."""

from __future__ import annotations

from tabulate import tabulate

from reports.compare.comparable import Disagreement
from reports.compare.comparison import ArmComparison, Comparison
from reports.compare.rows import DIFFERENCE_COLUMNS, ONE_RUN_EACH, difference_rows, headline
from reports.prose import printable


def render(comparison: Comparison) -> str:
    """The whole text, without a trailing newline."""
    return "\n\n".join(_arm(one) for one in comparison.comparisons)


def _arm(one: ArmComparison) -> str:
    a, b = one.baseline, one.arm
    parts = [
        printable(f"A: {a.name} ({_runs(len(a.runs))})   B: {b.name} ({_runs(len(b.runs))})"),
        _table(one),
        _pairs(one),
        printable(headline(one)),
        _notes(one),
        "\n".join(_disagreement(d) for d in one.disagreements),
        "\n".join(f"{'FAILED' if r.failed else 'passed'}: {r.condition.text}: {r.why}" for r in one.conditions),
    ]
    return "\n\n".join(part for part in parts if part)


def _table(one: ArmComparison) -> str:
    alignment = ("left", *["right"] * 7, "left")
    return tabulate(difference_rows(one), headers=DIFFERENCE_COLUMNS, colalign=alignment, disable_numparse=True)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _pairs(one: ArmComparison) -> str:
    if one.pairs is None:
        return ""
    d, title = one.pairs.difference_ms, one.baseline.latency_title
    return (
        f"Request by request ({d.n:,} pairs of one schedule): B − A in {title} is {d.p50:+.2f} ms in the median "
        f"(95 %: {d.interval_text('p50')}); {one.pairs.share_slower:.0%} of the requests were slower in B."
    )


def _notes(one: ArmComparison) -> str:
    if one.arm.blocks_left_out:
        return f"{one.arm.blocks_left_out} blocks are left out: a run of theirs is missing or invalid."
    if len(one.baseline.runs) == len(one.arm.runs) == 1:
        return ONE_RUN_EACH
    return ""


def _disagreement(one: Disagreement) -> str:
    return printable(f"{one.weight.value:>8}  {one.what}: {' | '.join(one.values)}\n          {one.advice}")
