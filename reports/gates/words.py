"""Numbers of a gate in words."""

from __future__ import annotations

import math

from reports.criteria import Requirement
from reports.metrics.catalogue import ATTAINMENT, FAILED_SHARE
from reports.render.counts import decimals_that_show

SHARES = (ATTAINMENT, FAILED_SHARE)
_MOST_DECIMALS = 7
_MORE = 1.1  # times the requests of a run that they left undecided: as many may do so again
NO_VALUE = "no request has a value"
OTHER_OBJECTIVES = "the runs have different objectives: give those that are to hold with --slo"
NO_OBJECTIVE = "give a per-request objective, for example --slo 'ttft<=200ms'"


def amount(requirement: Requirement, value: float) -> str:
    """The value with its unit."""
    unit = "%" if requirement.metric in SHARES else requirement.metric.table_unit
    return f"{number(requirement, value)} {unit}"


def number(requirement: Requirement, value: float) -> str:
    """The value in the unit of ``amount``, with the digits that show on which side of the limit it lies."""
    if requirement.metric in SHARES:
        return percentage_beside(value, requirement.limit)
    return _beside(significant(value), value, requirement.limit)


def percentage_beside(share: float, limit: float) -> str:
    """As ``percentage``, with the digits that show on which side of a ``limit`` the share lies."""
    return _beside(percentage(share), 100.0 * share, 100.0 * limit)


def _beside(text: str, value: float, limit: float) -> str:
    """The ``text`` of a value, or one with as many decimals as it takes."""

    def shows(shown: float) -> bool:
        return (shown > limit, shown < limit) == (value > limit, value < limit)

    if shows(float(text.replace(",", ""))):
        return text
    decimals = decimals_that_show(value, 1, _MOST_DECIMALS, shows)
    return text if decimals is None else f"{value:,.{decimals}f}"


def significant(value: float) -> str:
    """A number to three significant digits, or to the whole where it has more."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def percentage(share: float) -> str:
    """A share in per cent with the digits that distinguish it from 0 and from 100, without the sign."""
    per_cent = 100.0 * share
    if min(per_cent, 100.0 - per_cent) >= 0.995 or per_cent in (0.0, 100.0):
        return f"{per_cent:.1f}"
    if per_cent < 0.05:
        return f"{per_cent:.2g}"
    return f"{per_cent:.2f}" if 100.0 - per_cent >= 0.005 else f"{per_cent:.4f}"


def duration(seconds: float) -> str:
    """ "40 s", "2.5 h"."""
    for length, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * length:
            return f"{significant(seconds / length)} {unit}"
    return f"{seconds:.2g} s" if seconds < 99.5 else f"{seconds:.0f} s"


def would_decide(least: float, most: float | None, seen: int) -> str:
    """How many requests would decide what the ``seen`` ones leave undecided, from ``least`` to ``most``, in round numbers that
    are larger than theirs: "3,000 to 8,000 requests would decide it". ``most`` is None where it is unknown.
    """

    def larger(count: float) -> int:
        return rounded_up(max(count, _MORE * seen))

    return f"{several((larger(least), None if most is None else larger(most)))} requests would decide it"


def several(counts: tuple[int, int | None]) -> str:
    """How many requests would decide: "3,000 to 8,000", "3,000 or more" where the larger number is unknown."""
    least, most = counts
    if most is None:
        return f"{least:,} or more"
    return f"about {least:,}" if most <= least else f"{least:,} to {most:,}"


def rounded_up(count: float) -> int:
    """A number of requests to one or two digits: 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten, or the next above."""
    power = 10.0 ** (len(f"{max(1.0, count):.0f}") - 1)
    steps = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
    return math.ceil(power * next(step for step in steps if step * power >= count or step == steps[-1]))
