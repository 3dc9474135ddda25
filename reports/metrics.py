"""The numbers of a run, by the definitions in docs/metrics.md.

Every latency has two anchors: ``scheduled`` (when the request should have been sent; the headline) and ``sent``.
Latencies are of successful requests. Requests that failed count in their percentiles as slower than all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.records.record import FAILURES, Outcome
from reports.requests import FloatArray, Requests
from reports.statistics import Distribution, summarise, summarise_pooled

# What we broke off or never sent says nothing of the target.
_FAILED_BY_TARGET = [kind.value for kind in FAILURES if kind not in (Outcome.CANCELLED, Outcome.NOT_SENT, Outcome.LOST)]

_NS_PER_MS = 1e6
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Anchored:
    """One latency from both anchors, in ms; None where no request has it."""

    scheduled: Distribution | None
    sent: Distribution | None


@dataclass(frozen=True)
class UpstreamTable:
    """The statistics of upstream's ``benchmark_core_model.py``, by upstream's definitions: latency counts from the send.

    Times in ms, rates per second over (last response − first send); None where nothing succeeded.
    """

    requests_per_s: float | None
    output_tokens_per_s: float | None
    mean_latency_ms: float | None
    p99_latency_ms: float | None
    p90_latency_ms: float | None
    mean_input_tokens: float | None
    mean_output_tokens: float | None
    total_latency_ms: float | None
    total_requests: int


@dataclass(frozen=True)
class Metrics:
    """All numbers of one run. Latencies in ms, rates per second, window in s; None is unknown or does not exist."""

    scheduled: int
    done: int
    failed_by_kind: dict[str, int]
    ttft_ms: Anchored | None
    e2e_ms: Anchored
    tpot_ms: Distribution | None
    itl_ms: Distribution | None
    icl_ms: Distribution | None
    slip_ms: Distribution | None
    window_s: float | None
    request_throughput: float | None
    output_token_throughput: float | None
    offered_rate: float | None
    achieved_rate: float | None
    mean_input_tokens: float | None
    mean_output_tokens: float | None
    upstream: UpstreamTable

    @property
    def failed(self) -> int:
        return sum(self.failed_by_kind.values())


def compute_metrics(requests: Requests, streaming: bool) -> Metrics:
    """Compute every metric. Of an unstreamed run the token latencies do not exist, since tokens arrive together."""
    window_s = _window_s(requests)
    done = int(requests.done.sum())
    output_tokens = requests.output_tokens[requests.done]
    return Metrics(
        scheduled=len(requests.outcome),
        done=done,
        failed_by_kind=_failed_by_kind(requests),
        ttft_ms=_anchored(requests, lambda r: r.first_token_ns) if streaming else None,
        e2e_ms=_anchored(requests, lambda r: r.last_token_ns),
        tpot_ms=summarise(time_per_output_token_ms(requests)) if streaming else None,
        itl_ms=summarise_pooled(inter_token_latencies_ms(requests)) if streaming else None,
        icl_ms=summarise_pooled(inter_chunk_latencies_ms(requests)) if streaming else None,
        slip_ms=summarise(schedule_slip_ms(requests)),
        window_s=window_s,
        request_throughput=None if not window_s else done / window_s,
        output_token_throughput=None if not window_s or np.isnan(output_tokens).any() else output_tokens.sum() / window_s,
        offered_rate=_rate(requests.scheduled_ns),
        achieved_rate=_rate(requests.sent_ns),
        mean_input_tokens=_mean(requests.input_tokens[requests.done]),
        mean_output_tokens=_mean(output_tokens),
        upstream=_upstream_table(requests),
    )


def schedule_slip_ms(requests: Requests) -> FloatArray:
    """How late each request was sent, shape [requests sent]."""
    slip: FloatArray = (requests.sent_ns - requests.scheduled_ns) / _NS_PER_MS
    known: FloatArray = slip[~np.isnan(slip)]
    return known


def time_per_output_token_ms(requests: Requests) -> FloatArray:
    """(last token − first token) / (output tokens − 1) of each successful request with at least 2 tokens.

    Where all came in one response the time between them is unknown, not 0: such a request has no TPOT.
    """
    span_ms = (requests.last_token_ns - requests.first_token_ns) / _NS_PER_MS
    usable = requests.done & (requests.output_tokens >= 2) & (np.diff(requests.token_starts) >= 2)
    values: FloatArray = span_ms[usable] / (requests.output_tokens[usable] - 1)
    return values


def inter_chunk_latencies_ms(requests: Requests) -> FloatArray:
    """Gaps between consecutive responses with tokens, pooled over successful requests."""
    gaps_ns, _ = _gaps(requests)
    return gaps_ns / _NS_PER_MS


def inter_token_latencies_ms(requests: Requests) -> FloatArray:
    """Each gap divided by the tokens of the later response, once for each of those tokens; pooled."""
    gaps_ns, counts = _gaps(requests)
    known = counts > 0
    tokens = counts[known].astype(np.int64)
    return np.repeat(gaps_ns[known] / tokens, tokens) / _NS_PER_MS


def _gaps(requests: Requests) -> tuple[FloatArray, FloatArray]:
    """Gaps between neighbouring token responses of the same successful request, and the later response's tokens."""
    owner = np.repeat(np.arange(len(requests.outcome)), np.diff(requests.token_starts))
    same = (owner[1:] == owner[:-1]) & requests.done[owner[1:]]
    return np.diff(requests.token_times_ns)[same], requests.token_counts[1:][same]


def _anchored(requests: Requests, end_ns: Callable[[Requests], FloatArray]) -> Anchored:
    ends = np.where(requests.done, end_ns(requests), np.nan)
    failed = int(np.isin(requests.outcome, _FAILED_BY_TARGET).sum())
    latencies_ms = ((ends - anchor_ns) / _NS_PER_MS for anchor_ns in (requests.scheduled_ns, requests.sent_ns))
    return Anchored(*(summarise(values[~np.isnan(values)], failed) for values in latencies_ms))


def _window_s(requests: Requests) -> float | None:
    """From the first scheduled arrival to the end of the last success."""
    if not requests.done.any():
        return None
    return float((requests.done_ns[requests.done].max() - requests.scheduled_ns.min()) / _NS_PER_S)


def _rate(times_ns: FloatArray) -> float | None:
    """(n − 1) / (last − first) of the known times; None for fewer than 2, or all at once."""
    known = times_ns[~np.isnan(times_ns)]
    span_s = (known.max() - known.min()) / _NS_PER_S if known.size > 1 else 0.0
    return float((known.size - 1) / span_s) if span_s > 0 else None


def _failed_by_kind(requests: Requests) -> dict[str, int]:
    kinds, counts = np.unique(requests.outcome, return_counts=True)
    found = dict(zip(kinds.tolist(), counts.tolist(), strict=True))
    return {kind.value: found[kind.value] for kind in FAILURES if kind.value in found}


def _mean(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _upstream_table(requests: Requests) -> UpstreamTable:
    done = requests.done
    if not done.any():
        return UpstreamTable(None, None, None, None, None, None, None, None, 0)
    latency = summarise((requests.done_ns[done] - requests.sent_ns[done]) / _NS_PER_MS)
    assert latency is not None
    span_s = float(requests.done_ns[done].max() - requests.sent_ns[done].min()) / _NS_PER_S
    output_tokens = requests.output_tokens[done]
    return UpstreamTable(
        requests_per_s=float(done.sum()) / span_s if span_s else None,
        output_tokens_per_s=None if not span_s or np.isnan(output_tokens).any() else float(output_tokens.sum()) / span_s,
        mean_latency_ms=latency.mean,
        p99_latency_ms=latency.p99,
        p90_latency_ms=latency.p90,
        mean_input_tokens=_mean(requests.input_tokens[done]),
        mean_output_tokens=_mean(output_tokens),
        total_latency_ms=span_s * 1e3,
        total_requests=int(done.sum()),
    )
