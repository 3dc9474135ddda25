"""Per-request latencies and token latencies, as series in the order of the schedule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reports.metrics.censoring import CensoredLatencies
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray, known

_NS_PER_MS = 1e6
_PARTS_OF_RUN = 1 << 16


def schedule_slip_ms(requests: Requests) -> FloatArray:
    """How late each request was sent, shape [requests sent]."""
    return known(schedule_slip_by_request_ms(requests))


def schedule_slip_by_request_ms(requests: Requests) -> FloatArray:
    """The same for every request, shape [requests]; NaN where a request was not sent."""
    slip_ms: FloatArray = (requests.sent_ns - requests.scheduled_ns) / _NS_PER_MS
    return slip_ms


def client_slip_ms(requests: Requests) -> FloatArray:
    """The schedule slip without the wait at the ceiling, which is no delay of the client; shape [requests sent]."""
    return known(client_slip_by_request_ms(requests))


def client_slip_by_request_ms(requests: Requests) -> FloatArray:
    """The same for every request, shape [requests]; NaN where a request was not sent."""
    slip_ms: FloatArray = (requests.sent_ns - requests.scheduled_ns - requests.ceiling_wait_ns) / _NS_PER_MS
    return slip_ms


def ceiling_waits_ms(requests: Requests) -> FloatArray:
    """How long each request waited at the ceiling on requests in flight, shape [requests sent]."""
    waits: FloatArray = requests.ceiling_wait_ns[~np.isnan(requests.sent_ns)] / _NS_PER_MS
    return waits


def causal_delays_ms(requests: Requests) -> FloatArray:
    """How much later than its own time each later turn became due, shape [turns sent that have such a time]."""
    delays: FloatArray = (requests.scheduled_ns - requests.planned_ns)[~np.isnan(requests.sent_ns)] / _NS_PER_MS
    return known(delays)


def time_per_output_token_ms(requests: Requests) -> FloatArray:
    """(last token − first token) / (output tokens − 1) of each successful request with at least 2 tokens, without reasoning
    that the server did not send.

    Where all came in one response the time between them is unknown, not 0: such a request has no TPOT.
    """
    return known(time_per_output_token_by_request_ms(requests))


def time_per_output_token_by_request_ms(requests: Requests) -> FloatArray:
    """The same for every request, shape [requests]: NaN for those that have none."""
    span_ms = (requests.last_token_ns - requests.first_token_ns) / _NS_PER_MS
    usable = requests.done & (requests.sent_tokens >= 2) & (np.diff(requests.token_starts) >= 2)
    values = np.full(len(requests.outcome), np.nan)
    values[usable] = span_ms[usable] / (requests.sent_tokens[usable] - 1)
    return values


def time_per_output_token_as_objective(requests: Requests) -> CensoredLatencies:
    """TPOT of every request, shape [requests]: 0 for an answer in one response, since there was no wait between its tokens. NaN
    where the tokens are unknown, or none came; above 0 where the request was cut off.
    """
    gaps = np.maximum(requests.sent_tokens - 1, 1)
    one_response = np.diff(requests.token_starts) < 2
    values_ms = np.where(one_response, 0.0, (requests.last_token_ns - requests.first_token_ns) / _NS_PER_MS / gaps)
    values_ms[~requests.has_tokens] = np.nan
    return CensoredLatencies(np.where(requests.cut_off, 0.0, values_ms), requests.cut_off)


def answers_without_time_per_output_token(requests: Requests) -> NDArray[np.bool_]:
    """Which successes have no TPOT although they have several tokens, or an unknown number of them; shape [requests]."""
    tpot_ms = time_per_output_token_by_request_ms(requests)
    single = (requests.sent_tokens < 2) | (requests.requested_output_tokens < 2)  # NaN is not below 2
    without: NDArray[np.bool_] = requests.done & ~single & np.isnan(tpot_ms)
    return without


def inter_chunk_latencies_ms(requests: Requests) -> FloatArray:
    """Gaps between consecutive responses with tokens, pooled over successful requests, in the order in which they ended.

    Requests that are in flight together wait for the same step of the target, so their gaps are correlated, and an interval
    needs them side by side.
    """
    followers = _followers(requests)
    return _gaps_ms(requests, followers)[_order_of_arrival(requests, followers)]


def counted_gap_share(requests: Requests) -> float | None:
    """Share of the inter-chunk gaps whose later response has a known number of tokens; None where there is no gap."""
    counts = requests.token_counts[1:][_followers(requests)]
    return float(np.count_nonzero(counts > 0) / counts.size) if counts.size else None


def inter_token_latencies_ms(requests: Requests) -> FloatArray:
    """Each gap divided by the tokens of the later response, once for each of those tokens; pooled in the same order."""
    followers = _followers(requests)
    order = _order_of_arrival(requests, followers)
    counts = requests.token_counts[1:][followers][order]
    gaps_ms = _gaps_ms(requests, followers)[order]
    if (counts == 1.0).all():
        return gaps_ms
    counted = counts > 0
    tokens = counts[counted].astype(np.int64)
    return np.repeat(gaps_ms[counted] / tokens, tokens)


def _followers(requests: Requests) -> NDArray[np.bool_]:
    """Whether each response but the very first follows another one of the same successful request; shape [responses − 1]."""
    lengths = np.diff(requests.token_starts)
    follows = np.repeat(requests.done, lengths)
    follows[requests.token_starts[:-1][lengths > 0]] = False
    return follows[1:]


def _gaps_ms(requests: Requests, followers: NDArray[np.bool_]) -> FloatArray:
    gaps_ms: FloatArray = np.diff(requests.token_times_ns)[followers]
    gaps_ms /= _NS_PER_MS
    return gaps_ms


def _order_of_arrival(requests: Requests, followers: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The order in which the later responses arrived, to 1/65,535 of the run: a radix sort of 16 bits is linear in their
    number.
    """
    times_ns = requests.token_times_ns[1:][followers]
    if times_ns.size == 0:
        return np.empty(0, dtype=np.int64)
    times_ns -= times_ns.min()
    times_ns *= (_PARTS_OF_RUN - 1) / max(float(times_ns.max()), 1.0)
    return np.argsort(times_ns.astype(np.uint16), kind="stable")
