"""Loads, limits and shares of a search in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reports.capacity.result import LoadUnit
from reports.capacity.search import Bracket
from reports.criteria import Requirement
from reports.gates.words import SHARES, percentage
from reports.metrics.catalogue import ATTAINMENT, FAILED_SHARE, ICL, ITL
from reports.statistics.percentiles import percentile_key

_DIGITS = 3


def load_text(load: float, unit: LoadUnit) -> str:
    """ "142 requests/s", "1 user": users are whole."""
    number = f"{load:,.0f}" if unit is LoadUnit.USERS else load_number(load)
    return f"{number} {'user' if unit is LoadUnit.USERS and number == '1' else unit}"


def load_number(load: float) -> str:
    """A load to three digits, or to the whole where it has more."""
    return f"{load:,.0f}" if load >= 10 ** (_DIGITS - 1) else f"{load:.{_DIGITS}g}"


def certified_number(load: float, unit: LoadUnit) -> float:
    """A certified load to three digits, rounded down: what is shown was shown to hold."""
    return math.floor(round(load / _step(load, unit), 6)) * _step(load, unit)


def refused_number(load: float, unit: LoadUnit) -> float:
    """A refused load to three digits, rounded up."""
    return math.ceil(round(load / _step(load, unit), 6)) * _step(load, unit)


def _step(load: float, unit: LoadUnit) -> float:
    if unit is LoadUnit.USERS or load <= 0:
        return 1.0
    return 10.0 ** min(0, math.floor(math.log10(load)) - _DIGITS + 1)


def count_text(count: float, name: str) -> str:
    """ "38 users", "1.4 users", "1 user"."""
    number = f"{count:,.0f}" if count >= 9.95 else f"{count:.2g}"
    return f"{number} {name}{'' if number == '1' else 's'}"


def limit_text(limit: Requirement) -> str:
    """What has to hold, after "with": "p99 TTFT of at most 500 ms"."""
    bound = f"at {'most' if limit.at_most else 'least'} {_bound(limit)}"
    if limit.metric is FAILED_SHARE:
        return f"{bound} of the requests failed"
    if limit.metric is ATTAINMENT:
        return f"{bound} of the requests within their objectives"
    if limit.metric in SHARES or limit.metric.unit != "ms":
        return f"{limit.metric.label} of {bound}"
    percentile = "mean" if limit.q is None else percentile_key(limit.q).replace("_", ".")
    return f"{percentile} {limit.metric.label} of {bound}"


def limits_text(limits: tuple[Requirement, ...]) -> str:
    """Several limits in one phrase."""
    texts = [limit_text(limit) for limit in limits]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def column_names(limits: Sequence[Requirement]) -> tuple[str, ...]:
    """The name of each limit in a column: "p99_ttft", or "p99_ttft<=500ms" where sets have several of that name."""
    names = [limit.name for limit in limits]
    return tuple(str(limit) if names.count(limit.name) > 1 else limit.name for limit in limits)


def counted_text(limit: Requirement) -> str:
    """What a limit counts: "requests", or where it is one on single gaps "tokens"."""
    return {ITL: "tokens", ICL: "gaps between responses"}.get(limit.metric, "requests")


def beyond_text(limit: Requirement) -> str:
    """After what is counted, that it is beyond a limit: "with TTFT over 500 ms"."""
    if limit.metric is FAILED_SHARE:
        return "failed"
    if limit.metric is ATTAINMENT:
        return "beyond an objective"
    return f"with {limit.metric.label} over {_bound(limit)}"


def _bound(limit: Requirement) -> str:
    """The limit as it was given, with its unit."""
    if limit.metric in SHARES:
        return allowed_text(limit.limit)
    return f"{limit.limit:,.10g} {limit.metric.table_unit}"


def share_text(share: float) -> str:
    """ "0.83 %"; less than one in 100,000 is none."""
    return f"{percentage(share if share >= 1e-5 else 0.0)} %"


def allowed_text(share: float) -> str:
    """ "1 %"."""
    return f"{100.0 * share:.10g} %"


def confidence_text(confidence: float) -> str:
    """ "95 %"."""
    return f"{100.0 * confidence:.6g} %"


def width_text(ratio: float) -> str:
    """The width of a bracket, from its ends' ratio: "±10 %" of 1.2."""
    half = 50.0 * (ratio - 1.0)
    return f"±{half:,.0f} %" if half >= 99.5 else f"±{half:.2g} %"


def precision_text(ratio: float) -> str:
    """The precision that is requested: "±12.5 %" for a ratio of 1.25."""
    return f"±{50.0 * (ratio - 1.0):.3g} %"


def requests_text(requests: int) -> str:
    """An estimate of requests to two digits: "54,000"."""
    unit = 10 ** max(0, len(str(requests)) - 2)
    return f"{math.ceil(requests / unit) * unit:,}"


def time_text(seconds: float) -> str:
    """ "100 s", "3.1 min", "15 min", "2.5 h"."""
    for length, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2.0 * length:
            return f"{seconds / length:.{1 if seconds < 9.95 * length else 0}f} {unit}".replace(".0 ", " ")
    return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"


def bracket_text(bracket: Bracket, unit: LoadUnit) -> str:
    """Both ends: "142 to 165 requests/s"; an unknown end is a dash."""
    ends = (
        "–" if bracket.certified is None else load_number(certified_number(bracket.certified, unit)),
        "–" if bracket.refused is None else load_number(refused_number(bracket.refused, unit)),
    )
    return f"{ends[0]} to {ends[1]} {unit}"
