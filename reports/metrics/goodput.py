"""Goodput: requests per second that met every objective (``--slo``), and their share of the requests sent.

Zhong et al. 2024 ("DistServe") and vLLM's and GenAI-Perf's ``--goodput`` mean the same. Latencies count from the schedule;
attainment from the send stands beside it, since a client that sends late costs objectives that the target met.
A request that failed, or never gave a token, met none. One that the client cancelled as planned is not judged, for its answer
did not end: it counts among neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from reports.metrics.catalogue import E2E, TPOT, TTFT, Metric
from reports.metrics.full_load import full_load, rate_of_run
from reports.metrics.output_events import Events, Rate, without_interval
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
        return f"{self.metric.name}<={self.limit_ms:.15g}ms"


@dataclass(frozen=True, slots=True)
class Goodput:
    """``good`` of the ``sent`` requests met every objective: ``rate`` per second of the whole run, ``attainment`` their share.
    Those that were cancelled as planned are not among the ``sent`` ones.

    ``met`` counts the requests that met each objective by itself. ``good_from_send`` met every objective counted from the
    actual send, and ``good_from_release`` counted from when they were due and below a ceiling (--max_concurrency): the client
    alone delayed those in the first and not in the second. An interval that does not exist is None.
    """

    objectives: tuple[Objective, ...]
    met: tuple[int, ...]
    good: int
    good_from_release: int
    good_from_send: int
    sent: int
    rate: Rate | None
    attainment: float
    attainment_interval: Interval | None
    from_send_interval: Interval | None

    @property
    def attainment_from_send(self) -> float:
        return self.good_from_send / self.sent

    @property
    def lost_to_client(self) -> int:
        """Requests that met every objective from the send, and missed one because the client sent them late."""
        return self.good_from_send - self.good_from_release


def goodput(requests: Requests, objectives: Sequence[Objective], no_interval_reason: str | None = None) -> Goodput | None:
    """The goodput of a run; None without objectives, or where nothing was sent. No number has an interval where there is a
    ``no_interval_reason``.
    """
    sent = ~np.isnan(requests.sent_ns) & ~requests.withdrawn
    if not objectives or not sent.any():
        return None
    met = [_meets(requests, objective, requests.scheduled_ns) for objective in objectives]
    good = np.logical_and.reduce(met)
    released_ns = requests.scheduled_ns + requests.ceiling_wait_ns
    from_release = _meets_all(requests, objectives, released_ns)
    from_send = _meets_all(requests, objectives, requests.sent_ns)
    share = float(good[sent].mean())
    interval, from_send_interval = (
        share_interval(which[sent]) if no_interval_reason is None else None for which in (good, from_send)
    )
    return Goodput(
        objectives=tuple(objectives),
        met=tuple(int(np.count_nonzero(which)) for which in met),
        good=int(np.count_nonzero(good)),
        good_from_release=int(np.count_nonzero(from_release)),
        good_from_send=int(np.count_nonzero(from_send)),
        sent=int(np.count_nonzero(sent)),
        rate=without_interval(_rate(requests, good), no_interval_reason),
        attainment=share,
        attainment_interval=interval,
        from_send_interval=from_send_interval,
    )


def _meets_all(requests: Requests, objectives: Sequence[Objective], anchor_ns: FloatArray) -> NDArray[np.bool_]:
    """Which requests met every objective, shape [requests]."""
    every: NDArray[np.bool_] = np.logical_and.reduce([_meets(requests, objective, anchor_ns) for objective in objectives])
    return every


def _meets(requests: Requests, objective: Objective, anchor_ns: FloatArray) -> NDArray[np.bool_]:
    """Which requests met an objective whose latency counts from ``anchor_ns``, shape [requests]."""
    values = _VALUES[objective.metric](requests, anchor_ns)
    return requests.done & requests.has_tokens & (values <= objective.limit_ms)


def _ttft_ms(requests: Requests, anchor_ns: FloatArray) -> FloatArray:
    ttft_ms: FloatArray = (requests.first_token_ns - anchor_ns) / _NS_PER_MS
    return ttft_ms


def _e2e_ms(requests: Requests, anchor_ns: FloatArray) -> FloatArray:
    e2e_ms: FloatArray = (requests.last_token_ns - anchor_ns) / _NS_PER_MS
    return e2e_ms


def _tpot_ms(requests: Requests, anchor_ns: FloatArray) -> FloatArray:
    """0 for an answer in one response, since there was no wait between its tokens. NaN where the tokens are unknown.

    The same from every anchor.
    """
    gaps = np.maximum(requests.output_tokens - 1, 1)
    one_response = np.diff(requests.token_starts) < 2
    return np.where(one_response, 0.0, (requests.last_token_ns - requests.first_token_ns) / _NS_PER_MS / gaps)


_VALUES: Mapping[Metric, Callable[[Requests, FloatArray], FloatArray]] = MappingProxyType(
    {TTFT: _ttft_ms, TPOT: _tpot_ms, E2E: _e2e_ms}
)


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
