"""The values of a run's requests that a limit on a share counts, in the order in which they were due.

A failed request is slower than every limit. One that was cut off took longer than what is known of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reports.gates.shares import ShareOfRun
from reports.metrics.catalogue import TPOT
from reports.metrics.censoring import CensoredLatencies
from reports.metrics.failures import SLOWEST_MS, conversations_of_ended, failures_as_slowest_ms
from reports.metrics.goodput import Objective, severities
from reports.metrics.in_flight import QueueGrowth
from reports.metrics.latency import time_per_output_token_by_request_ms
from reports.metrics.metric import Metric
from reports.metrics.requests import Requests

_NS_PER_MS = 1e6


def latency_sample(metric: Metric, requests: Requests) -> ShareOfRun:
    """Latencies in ms, from the schedule."""
    return _sample(limited_latencies(metric, requests), groups_of(metric, requests))


def latency_sample_of_all(metric: Metric, requests: Requests) -> ShareOfRun:
    """The same, where an answer without a token, which has no TTFT and no E2E latency, is slower than every limit on them."""
    if metric.ends_ns is None:
        return latency_sample(metric, requests)
    found = metric.by_request(requests)
    is_empty = requests.done & ~requests.has_tokens & np.isnan(found.values_ms)
    values_ms = np.where(is_empty, np.inf, found.values_ms)
    return _sample(CensoredLatencies(values_ms, found.is_bound).counted, requests.session_of[~np.isnan(values_ms)])


def limited_latencies(metric: Metric, requests: Requests) -> CensoredLatencies:
    """The latencies that a limit on a percentile counts, from the schedule."""
    return _tpot_of_all(requests) if metric is TPOT else metric.values(requests)


def _tpot_of_all(requests: Requests) -> CensoredLatencies:
    """TPOT in ms, also of requests without one that were to have several tokens: a failed one is slower than every limit, and
    one that was cut off took at least as long as if all its tokens had come by then.
    """
    values_ms = time_per_output_token_by_request_ms(requests)
    several = ~(requests.requested_output_tokens < 2)  # NaN is not below 2
    values_ms[requests.failed_by_target & ~requests.cut_off & several] = np.inf
    since_first_ns = np.nan_to_num(requests.done_ns - requests.first_token_ns)
    least_ms = since_first_ns / _NS_PER_MS / np.fmax(requests.requested_output_tokens - 1.0, 1.0)
    is_bound = requests.cut_off & several
    values_ms[is_bound] = np.where(np.isnan(requests.requested_output_tokens), 0.0, least_ms)[is_bound]
    return CensoredLatencies(values_ms, is_bound).counted


def groups_of(metric: Metric, requests: Requests) -> NDArray[np.int64] | None:
    """The conversations of the requests of ``metric.values``; None of latencies that not each request has."""
    if metric.ends_ns is None:
        return None
    return requests.session_of[~np.isnan(metric.by_request(requests).values_ms)]


def failure_sample(requests: Requests, growth: QueueGrowth | None) -> ShareOfRun:
    """Values of the requests that ended, above SLOWEST_MS where they failed: others are as slow as they were, as in its
    interval, but where the queue grows, for latencies show the time there and no clusters.
    """
    values_ms = failures_as_slowest_ms(requests)
    values_ms = values_ms if growth is None else np.where(values_ms > SLOWEST_MS, np.inf, 0.0)
    return ShareOfRun(values_ms, values_ms, conversations_of_ended(requests))


def severity_sample(requests: Requests, objectives: tuple[Objective, ...]) -> ShareOfRun:
    """How far each request that was sent is from its objectives: above 1 where it missed one."""
    return _sample(severities(requests, objectives), requests.session_of[~np.isnan(requests.sent_ns)])


def _sample(latencies: CensoredLatencies, groups: NDArray[np.int64] | None) -> ShareOfRun:
    return ShareOfRun(latencies.values_ms, latencies.slowest_ms, groups)
