"""Goodput: how many requests a second met every objective that was set (``--slo``), and their share of those sent.

Zhong et al. 2024 ("DistServe") and vLLM's and GenAI-Perf's ``--goodput`` mean the same. Latencies count from the schedule.
A request that failed, or never gave a token, met none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.metrics.output_events import Events, Rate, rate
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import FEWEST_VALUES, Interval, mean_of, share_of, student_to_normal
from reports.statistics.percentiles import CONFIDENCE, share_limits

METRICS = ("ttft_ms", "tpot_ms", "e2e_ms")
NEED_STREAMING = ("ttft_ms", "tpot_ms")
_NS_PER_MS = 1e6
_OBJECTIVE = re.compile(r"\s*(\w+)\s*<=\s*([0-9.eE+-]+)\s*")


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective: a request's ``metric``, one of METRICS, is at most ``limit_ms``."""

    metric: str
    limit_ms: float

    def __str__(self) -> str:
        return f"{self.metric}<={self.limit_ms:.15g}"


@dataclass(frozen=True, slots=True)
class Goodput:
    """``good`` requests of those ``sent`` met every objective: ``rate`` a second of the whole run, ``attainment`` their share.

    ``met`` counts the requests that met each objective by itself. An interval that does not exist is None.
    """

    objectives: tuple[Objective, ...]
    met: tuple[int, ...]
    good: int
    sent: int
    rate: Rate | None
    attainment: float
    attainment_interval: Interval | None


def parse_objective(text: str) -> Objective:
    """Read ``ttft_ms<=200``. Raises ValueError, in words for whoever wrote it."""
    match = _OBJECTIVE.fullmatch(text)
    if match is None or match[1] not in METRICS:
        raise ValueError(
            f"{text!r} is no objective: write a metric and its limit in ms, as 'ttft_ms<=200'; of {', '.join(METRICS)}"
        )
    try:
        limit_ms = float(match[2])
    except ValueError:
        limit_ms = np.nan
    if not 0 < limit_ms < np.inf:
        raise ValueError(f"{text!r}: the limit must be a number of ms above 0")
    return Objective(match[1], limit_ms)


def goodput(requests: Requests, objectives: Sequence[Objective]) -> Goodput | None:
    """The goodput of a run; None where no objective was set, or nothing was sent."""
    sent = ~np.isnan(requests.sent_ns)
    if not objectives or not sent.any():
        return None
    met = [_meets(requests, objective) for objective in objectives]
    good = np.logical_and.reduce(met)
    share = float(good[sent].mean())
    return Goodput(
        objectives=tuple(objectives),
        met=tuple(int(np.count_nonzero(which)) for which in met),
        good=int(np.count_nonzero(good)),
        sent=int(np.count_nonzero(sent)),
        rate=_rate(requests, good),
        attainment=share,
        attainment_interval=share_interval(good[sent]),
    )


def _meets(requests: Requests, objective: Objective) -> NDArray[np.bool_]:
    """Which requests met an objective, shape [requests]."""
    values = {"ttft_ms": _ttft_ms, "tpot_ms": _tpot_ms, "e2e_ms": _e2e_ms}[objective.metric](requests)
    return requests.done & requests.has_tokens & (values <= objective.limit_ms)


def _ttft_ms(requests: Requests) -> FloatArray:
    ttft_ms: FloatArray = (requests.first_token_ns - requests.scheduled_ns) / _NS_PER_MS
    return ttft_ms


def _e2e_ms(requests: Requests) -> FloatArray:
    e2e_ms: FloatArray = (requests.last_token_ns - requests.scheduled_ns) / _NS_PER_MS
    return e2e_ms


def _tpot_ms(requests: Requests) -> FloatArray:
    """0 for an answer that came in one response: nobody waited between its tokens. NaN where the tokens are unknown."""
    gaps = np.maximum(requests.output_tokens - 1, 1)
    one_response = np.diff(requests.token_starts) < 2
    return np.where(one_response, 0.0, (requests.last_token_ns - requests.first_token_ns) / _NS_PER_MS / gaps)


def _rate(requests: Requests, good: NDArray[np.bool_]) -> Rate | None:
    """Good requests at their ends, a second of the whole window: first scheduled to the end of the last success."""
    if not requests.done.any():
        return None
    return rate(
        Events(requests.done_ns[good]), float(requests.scheduled_ns.min()), float(requests.done_ns[requests.done].max())
    )


def share_interval(good: NDArray[np.bool_]) -> Interval | None:
    """The 95 % interval of a share; ``good`` has shape [requests], in the order in which they were due. None: there is none."""
    if good.size < FEWEST_VALUES or mean_of(good.astype(np.float64)).why_not is not None:
        return None
    share = share_of(good)
    effect = max(1.0, share.effect * student_to_normal(CONFIDENCE, share.degrees) ** 2)
    return share_limits(float(good.mean()), good.size / effect, CONFIDENCE)
