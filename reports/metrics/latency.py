"""Per-request latencies and token latencies, as series in the order of the schedule (docs/reference/metrics.md)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.records.record import FAILURES, Outcome
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray

# What we broke off or never sent says nothing of the target.
_FAILED_BY_TARGET = [kind.value for kind in FAILURES if kind not in (Outcome.CANCELLED, Outcome.NOT_SENT, Outcome.LOST)]
_NS_PER_MS = 1e6
_PARTS_OF_RUN = 1 << 16


def latencies_ms(
    requests: Requests, ends_ns: FloatArray, anchor_ns: FloatArray, chosen: NDArray[np.bool_] | None = None
) -> FloatArray:
    """End − anchor of each success; infinite for each request that the target failed. Of the ``chosen`` requests, or all."""
    latency = latencies_by_request_ms(requests, ends_ns, anchor_ns)
    known: FloatArray = latency[~np.isnan(latency) if chosen is None else chosen & ~np.isnan(latency)]
    return known


def latencies_by_request_ms(requests: Requests, ends_ns: FloatArray, anchor_ns: FloatArray) -> FloatArray:
    """The same for every request, shape [requests]: NaN for those of which nothing can be said."""
    latency = np.where(requests.done, (ends_ns - anchor_ns) / _NS_PER_MS, np.nan)
    latency[np.isin(requests.outcome, _FAILED_BY_TARGET)] = np.inf
    return latency


def schedule_slip_ms(requests: Requests) -> FloatArray:
    """How late each request was sent, shape [requests sent]."""
    slip: FloatArray = (requests.sent_ns - requests.scheduled_ns) / _NS_PER_MS
    known: FloatArray = slip[~np.isnan(slip)]
    return known


def client_slip_ms(requests: Requests) -> FloatArray:
    """How late each request was sent by the client's own fault, shape [requests sent]: the wait at the ceiling is none."""
    slip: FloatArray = (requests.sent_ns - requests.scheduled_ns - requests.ceiling_wait_ns) / _NS_PER_MS
    known: FloatArray = slip[~np.isnan(slip)]
    return known


def ceiling_waits_ms(requests: Requests) -> FloatArray:
    """How long each request waited at the ceiling on requests in flight, shape [requests sent]."""
    waits: FloatArray = requests.ceiling_wait_ns[~np.isnan(requests.sent_ns)] / _NS_PER_MS
    return waits


def time_per_output_token_ms(requests: Requests) -> FloatArray:
    """(last token − first token) / (output tokens − 1) of each successful request with at least 2 tokens.

    Where all came in one response the time between them is unknown, not 0: such a request has no TPOT.
    """
    values = time_per_output_token_by_request_ms(requests)
    return values[~np.isnan(values)]


def time_per_output_token_by_request_ms(requests: Requests) -> FloatArray:
    """The same for every request, shape [requests]: NaN for those that have none."""
    span_ms = (requests.last_token_ns - requests.first_token_ns) / _NS_PER_MS
    usable = requests.done & (requests.output_tokens >= 2) & (np.diff(requests.token_starts) >= 2)
    values = np.full(len(requests.outcome), np.nan)
    values[usable] = span_ms[usable] / (requests.output_tokens[usable] - 1)
    return values


def inter_chunk_latencies_ms(requests: Requests) -> FloatArray:
    """Gaps between consecutive responses with tokens, pooled over successful requests, in the order in which they ended.

    Requests that are in flight together wait for the same step of the target, so their gaps are alike: an interval must
    see them side by side.
    """
    followers = _followers(requests)
    return _gaps_ms(requests, followers)[_order_of_arrival(requests, followers)]


def inter_token_latencies_ms(requests: Requests) -> FloatArray:
    """Each gap divided by the tokens of the later response, once for each of those tokens; pooled in the same order."""
    followers = _followers(requests)
    order = _order_of_arrival(requests, followers)
    counts = requests.token_counts[1:][followers][order]
    gaps_ms = _gaps_ms(requests, followers)[order]
    if (counts == 1.0).all():
        return gaps_ms
    known = counts > 0
    tokens = counts[known].astype(np.int64)
    return np.repeat(gaps_ms[known] / tokens, tokens)


def _followers(requests: Requests) -> NDArray[np.bool_]:
    """Which responses but the very first follow another one of the same successful request; shape [responses − 1]."""
    lengths = np.diff(requests.token_starts)
    follows = np.repeat(requests.done, lengths)
    follows[requests.token_starts[:-1][lengths > 0]] = False
    return follows[1:]


def _gaps_ms(requests: Requests, followers: NDArray[np.bool_]) -> FloatArray:
    gaps_ms: FloatArray = np.diff(requests.token_times_ns)[followers]
    gaps_ms /= _NS_PER_MS
    return gaps_ms


def _order_of_arrival(requests: Requests, followers: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The order in which the later responses came, to 1/65,535 of the run: 16 bits sort in one pass, however many millions."""
    times_ns = requests.token_times_ns[1:][followers]
    if times_ns.size == 0:
        return np.empty(0, dtype=np.int64)
    times_ns -= times_ns.min()
    times_ns *= (_PARTS_OF_RUN - 1) / max(float(times_ns.max()), 1.0)
    return np.argsort(times_ns.astype(np.uint16), kind="stable")
