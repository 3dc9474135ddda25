"""Goodput: requests per second that met every objective (``--slo``), and their share of the requests sent.

Zhong et al. 2024 ("DistServe") and vLLM's and GenAI-Perf's ``--goodput`` mean the same. Latencies count from the schedule.
A request that failed, or never gave a token, met none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from reports.metrics.catalogue import E2E, TPOT, TTFT, Metric
from reports.metrics.full_load import full_load, rate_of_run
from reports.metrics.output_events import Events, Rate
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import FEWEST_VALUES, Interval, mean_of, share_of, student_to_normal
from reports.statistics.percentiles import CONFIDENCE, share_limits

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective: a request's ``metric``, one of OBJECTIVE_METRICS, is at most ``limit_ms``."""

    metric: Metric
    limit_ms: float

    def __str__(self) -> str:
        return f"{self.metric.key}<={self.limit_ms:.15g}"


@dataclass(frozen=True, slots=True)
class Goodput:
    """``good`` of the ``sent`` requests met every objective: ``rate`` per second of the whole run, ``attainment`` their share.

    ``met`` counts the requests that met each objective by itself. An interval that does not exist is None.
    """

    objectives: tuple[Objective, ...]
    met: tuple[int, ...]
    good: int
    sent: int
    rate: Rate | None
    attainment: float
    attainment_interval: Interval | None


def goodput(requests: Requests, objectives: Sequence[Objective]) -> Goodput | None:
    """The goodput of a run; None without objectives, or where nothing was sent."""
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
    values = _VALUES[objective.metric](requests)
    return requests.done & requests.has_tokens & (values <= objective.limit_ms)


def _ttft_ms(requests: Requests) -> FloatArray:
    ttft_ms: FloatArray = (requests.first_token_ns - requests.scheduled_ns) / _NS_PER_MS
    return ttft_ms


def _e2e_ms(requests: Requests) -> FloatArray:
    e2e_ms: FloatArray = (requests.last_token_ns - requests.scheduled_ns) / _NS_PER_MS
    return e2e_ms


def _tpot_ms(requests: Requests) -> FloatArray:
    """0 for an answer in one response, since there was no wait between its tokens. NaN where the tokens are unknown."""
    gaps = np.maximum(requests.output_tokens - 1, 1)
    one_response = np.diff(requests.token_starts) < 2
    return np.where(one_response, 0.0, (requests.last_token_ns - requests.first_token_ns) / _NS_PER_MS / gaps)


_VALUES: Mapping[Metric, Callable[[Requests], FloatArray]] = MappingProxyType({TTFT: _ttft_ms, TPOT: _tpot_ms, E2E: _e2e_ms})


def _rate(requests: Requests, good: NDArray[np.bool_]) -> Rate | None:
    """Good requests, counted at their ends, per second of the whole window: first scheduled to the end of the last success."""
    if not requests.done.any():
        return None
    events = Events(requests.done_ns[good])
    start_ns, end_ns = float(requests.scheduled_ns.min()), float(requests.done_ns[requests.done].max())
    return rate_of_run(events, start_ns, end_ns, full_load(requests, events))


def share_interval(good: NDArray[np.bool_]) -> Interval | None:
    """The 95 % interval of a share; ``good`` has shape [requests], in the order in which they were due. None: no interval."""
    if good.size < FEWEST_VALUES or mean_of(good.astype(np.float64)).no_interval_reason is not None:
        return None
    share = share_of(good)
    effect = max(1.0, share.allowed_effect * student_to_normal(CONFIDENCE, share.degrees) ** 2)
    return share_limits(float(good.mean()), good.size / effect, CONFIDENCE)
