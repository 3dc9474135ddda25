"""The one grammar of criteria: ``p99_ttft<=300ms``, ``goodput>=20``, ``ttft<=200``, ``p99_ttft>+5%``.

A criterion is a number of a run, a sign and a limit. ``--slo`` names what has to hold, ``--fail_if`` what must not. Without a
statistic a latency is that of each request: an objective, which makes goodput. Letter case is free: ``P99_TTFT<=300MS``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from reports.metrics.catalogue import ATTAINMENT, FAILED_SHARE, METRICS, OBJECTIVE_METRICS
from reports.metrics.goodput import Objective
from reports.metrics.metric import Metric
from reports.metrics.precision import PrecisionGoal
from reports.statistics.percentiles import percentile_key

_METRICS = tuple(metric for metric in METRICS if metric.in_criteria)
_AT_MOST = ("<=", "<", "=<")
_HELD = "held"
QUANTILES = (0.50, 0.99)
"""The percentiles of a latency that a criterion may name: they have an interval."""
_FORM = re.compile(
    r"\s*(?:(?P<statistic>p\d+(?:[._]\d+)?|mean)_)?(?P<name>[a-z]\w*?)\s*(?P<sign><=|>=|<|>|=<|=>)\s*"
    r"(?P<amount>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(?P<unit>[a-z%]*(?:/s)?)\s*",
    re.IGNORECASE,
)
_PRECISION = re.compile(
    r"\s*(?P<statistic>p\d+(?:[._]\d+)?|mean)_(?P<name>[a-z]\w*?)\s*(?:±|\+/?-)\s*(?P<amount>\d+\.?\d*|\.\d+)\s*%\s*",
    re.IGNORECASE,
)
_UNITS: dict[str, dict[str, float]] = {
    "latency": {"": 1.0, "ms": 1.0, "s": 1e3, "us": 1e-3},
    "rate": {"": 1.0, "/s": 1.0},  # and the metric's own: requests/s, or tokens/s
    "share": {"": 1.0, "%": 0.01},
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """What has to hold of a run: its ``metric`` is at most, or at least, ``limit``, in the metric's unit (a share for %).

    The number of a latency is its mean, or its ``q``-quantile.
    """

    metric: Metric
    q: float | None
    at_most: bool
    limit: float

    @property
    def name(self) -> str:
        """The number's name in the grammar: "p99_ttft"."""
        if _kind(self.metric) != "latency":
            return self.metric.name
        return f"{'mean' if self.q is None else percentile_key(self.q)}_{self.metric.name}"

    def __str__(self) -> str:
        unit = {"latency": "ms", "rate": "", "share": "%"}[_kind(self.metric)]
        limit = 100.0 * self.limit if unit == "%" else self.limit
        return f"{self.name}{'<=' if self.at_most else '>='}{limit:.15g}{unit}"


Criterion = Objective | Requirement


@dataclass(frozen=True, slots=True)
class HeldRequirement:
    """What has to hold of a sweep: a load of at least ``at_least``, in the unit of the option that was swept, is held."""

    at_least: float

    def __str__(self) -> str:
        return f"{_HELD}>={self.at_least:.15g}"


def parse_slo(text: str) -> Criterion:
    """What has to hold: an objective of each request, or a requirement of the run. Raises ValueError, for the command line."""
    match = _matched(text, "p99_ttft<=300ms, ttft<=200ms or goodput>=20")
    metric, at_most = _metric(text, match["name"]), match["sign"] in _AT_MOST
    limit = _limit(text, metric, match)
    if _kind(metric) != "latency" or match["statistic"] is not None:
        return Requirement(metric, _statistic(text, metric, match["statistic"]), at_most, limit)
    if not metric.is_objective:
        names = ", ".join(metric.name for metric in OBJECTIVE_METRICS)
        raise ValueError(f"{text!r}: objectives of each request limit {names}; for the run write p99_{metric.name} or its mean")
    if not at_most:
        upper = f"{metric.name}<={match['amount']}{match['unit'] or 'ms'}"
        raise ValueError(f"{text!r}: an objective of each request is an upper limit; write {upper}")
    if limit <= 0:
        raise ValueError(f"{text!r}: the limit must be above 0 ms")
    return Objective(metric, limit)


def parse_limit(text: str) -> Criterion:
    """What has to hold of a share of the requests: as ``parse_slo`` reads it, and any percentile of a latency.

    Raises ValueError, for the command line.
    """
    match = _FORM.fullmatch(text)
    if match is None or (match["statistic"] or "mean").lower() == "mean":
        return parse_slo(text)
    metric = _metric(text, match["name"])
    if _kind(metric) != "latency":
        return parse_slo(text)
    q = _quantile(text, match["statistic"].lower())
    return Requirement(metric, q, match["sign"] in _AT_MOST, _limit(text, metric, match))


def parse_fail_if(text: str) -> Requirement:
    """The requirement that fails where ``text`` holds. Raises ValueError, for the command line."""
    match = _matched(text, "p99_ttft>300ms, attainment<95% or goodput<20")
    metric = _metric(text, match["name"])
    limit = _limit(text, metric, match)
    if _kind(metric) == "latency" and match["statistic"] is None:
        name = metric.name
        raise ValueError(f"{text!r}: a run fails by a number of its own: write p99_{name}, p50_{name} or mean_{name}")
    return Requirement(metric, _statistic(text, metric, match["statistic"]), match["sign"] not in _AT_MOST, limit)


def parse_stop_if(text: str) -> Requirement:
    """The requirement that a run can no longer meet when it is to end: of any percentile of an objective's latency, or of the
    share of failures. Raises ValueError, for the command line.
    """
    match = _matched(text, "p99_ttft>500ms or failed_share>5%")
    metric, statistic = _metric(text, match["name"]), (match["statistic"] or "").lower()
    limit = _limit(text, metric, match)
    if match["sign"] in _AT_MOST:
        number = text[: match.start("sign")].strip()
        raise ValueError(
            f"{text!r}: a run ends where requests are beyond a limit; write {number}>{match['amount']}{match['unit']}"
        )
    if metric is FAILED_SHARE and not statistic:
        return Requirement(metric, None, True, limit)
    if not metric.is_objective or not statistic.startswith("p"):
        names = ", ".join(f"p99_{metric.name}" for metric in OBJECTIVE_METRICS)
        raise ValueError(f"{text!r}: a run ends by requests that can be counted: {names}, or {FAILED_SHARE.name}")
    return Requirement(metric, _quantile(text, statistic), True, limit)


def parse_until(text: str) -> PrecisionGoal:
    """The precision at which a run may end: ``p99_ttft±5%``, also ``+-5%``. Raises ValueError, for the command line."""
    match = _PRECISION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r}: write a number and its precision, for example 'p99_ttft±5%' or 'mean_e2e+-2%'")
    metric, share = _metric(text, match["name"]), _as_written(float(match["amount"]) / 100.0)
    if not metric.is_objective:
        names = ", ".join(f"p99_{metric.name}" for metric in OBJECTIVE_METRICS)
        raise ValueError(f"{text!r}: a run ends by the precision of a latency: {names}, or their p50 or mean")
    if not 0.0 < share < 1.0:
        raise ValueError(f"{text!r}: the precision must be above 0 % and below 100 %")
    q = _statistic(text, metric, match["statistic"])
    return PrecisionGoal(metric, q, share, f"{'mean' if q is None else percentile_key(q)}_{metric.name}")


def parse_held(text: str) -> HeldRequirement:
    """The requirement of a sweep that fails where ``text`` holds: ``held<20``. Raises ValueError, for the command line."""
    match = _matched(text, "held<20")
    if match["statistic"] or match["name"].lower() != _HELD or match["sign"] != "<" or match["unit"]:
        raise ValueError(
            f"{text!r}: a sweep fails by the highest load that held, as held<20; criteria of a run go after its verb"
        )
    limit = _amount(text, match)
    if not math.isfinite(limit) or limit <= 0:
        raise ValueError(f"{text!r}: the limit must be a number above 0")
    return HeldRequirement(limit)


def _matched(text: str, examples: str) -> re.Match[str]:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r}: write a number, a sign and a limit, as {examples}")
    return match


def _metric(text: str, name: str) -> Metric:
    """The metric of a name, in any letter case."""
    known = {spelling: metric for metric in _METRICS for spelling in (metric.name, metric.key)}
    if name.lower() not in known:
        raise ValueError(f"{text!r}: {name!r} is none of {', '.join(dict.fromkeys(metric.name for metric in known.values()))}")
    return known[name.lower()]


def _statistic(text: str, metric: Metric, statistic: str | None) -> float | None:
    if _kind(metric) != "latency":
        if statistic is not None:
            raise ValueError(f"{text!r}: {metric.name} has no {statistic}; write {metric.name} alone")
        return None
    if statistic is None or statistic.lower() == "mean":
        return None
    q = float(statistic[1:].replace("_", ".")) / 100.0
    if q not in QUANTILES:
        raise ValueError(f"{text!r}: of {statistic} no interval is computed; use p50, p99 or mean")
    return q


def _quantile(text: str, statistic: str) -> float:
    """The quantile of any percentile: 0.999 of "p99_9"."""
    q = _as_written(float(statistic[1:].replace("_", ".")) / 100.0)
    if not 0.0 < q < 1.0:
        raise ValueError(f"{text!r}: {statistic} is no percentile between 0 and 100")
    return q


def _limit(text: str, metric: Metric, match: re.Match[str]) -> float:
    unit = match["unit"].lower()
    factors = _UNITS[_kind(metric)]
    if _kind(metric) == "rate":
        factors = {**factors, metric.table_unit: 1.0}
    if unit == "%" and unit not in factors:
        raise ValueError(f"{text!r}: a change in % needs a baseline: give it to bench compare")
    if unit not in factors:
        raise ValueError(f"{text!r}: {unit!r} is no unit of {metric.name}; use {' or '.join(filter(None, factors))}")
    limit = _as_written(_amount(text, match) * factors[unit])
    if not math.isfinite(limit) or limit < 0:
        raise ValueError(f"{text!r}: the limit must be a number of at least 0")
    if _kind(metric) == "share" and (limit > 1 or (limit == 1 and not unit)):  # a bare 1 is more likely meant as 1 %
        example = match["amount"] if float(match["amount"]) <= 100 else "99" if metric is ATTAINMENT else "1"
        raise ValueError(
            f"{text!r}: the limit of a share goes from 0% to 100%; write its unit, as in {metric.name}{match['sign']}{example}%"
        )
    return limit


def _amount(text: str, match: re.Match[str]) -> float:
    if match["amount"].startswith("+"):  # +5ms is no limit of 5 ms, which would fail whatever the baseline was
        raise ValueError(
            f"{text!r}: a limit has no '+': it is the sign of a change in %, which needs a baseline (bench compare)"
        )
    return float(match["amount"])


def _as_written(value: float) -> float:
    """The number nearest to the decimal one that was meant: 0.95 of 95 %, where 95 times 0.01 is more."""
    return float(f"{value:.15g}")


def _kind(metric: Metric) -> str:
    return {"ms": "latency", "share": "share"}.get(metric.unit, "rate")
