"""The numbers of a run, by the definitions in docs/reference/metrics.md.

Every latency has two anchors: ``scheduled`` (when the request should have been sent; the headline) and ``sent``.
Latencies are of successful requests. Requests that failed count in their percentiles as slower than all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.records.record import FAILURES
from reports.metrics.arrival_law import at_even_rate_ns, index_of_dispersion
from reports.metrics.asked_load import AskedLoad
from reports.metrics.goodput import Goodput, Objective, goodput
from reports.metrics.latency import (
    ceiling_waits_ms,
    inter_chunk_latencies_ms,
    inter_token_latencies_ms,
    latencies_ms,
    schedule_slip_ms,
    time_per_output_token_ms,
)
from reports.metrics.requests import Requests
from reports.metrics.slip import PartOfRun, Slip, slip_by_worker, slip_over_time
from reports.metrics.windows import Windows, compute_windows, known_rate
from reports.statistics.arrays import FloatArray
from reports.statistics.percentiles import Distribution, nearest_rank, summarise

_NS_PER_MS = 1e6
_NS_PER_S = 1e9
_ANY_OPEN_LOOP = AskedLoad()


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
    ceiling_wait_ms: Distribution | None
    windows: Windows
    offered_rate: float | None
    achieved_rate: float | None
    mean_input_tokens: float | None
    mean_output_tokens: float | None
    scheduled_dispersion: float | None
    sent_dispersion: float | None
    upstream: UpstreamTable
    goodput: Goodput | None  # of the objectives that were set
    slip_by_worker: dict[int, Slip]
    slip_over_time: tuple[PartOfRun, ...]

    @property
    def window_s(self) -> float | None:
        return None if self.windows.whole is None else self.windows.whole.length_s

    @property
    def request_throughput(self) -> float | None:
        return None if self.windows.whole is None else known_rate(self.windows.whole.request_throughput)

    @property
    def output_token_throughput(self) -> float | None:
        return None if self.windows.whole is None else known_rate(self.windows.whole.output_token_throughput)

    @property
    def failed(self) -> int:
        return sum(self.failed_by_kind.values())


def compute_metrics(
    requests: Requests, streaming: bool, load: AskedLoad = _ANY_OPEN_LOOP, objectives: Sequence[Objective] = ()
) -> Metrics:
    """Compute every metric. Of an unstreamed run the token latencies do not exist, since tokens arrive together; of a
    closed loop no rate was offered, since its users set none. A rate that was to rise is evened before its dispersion is told.
    """
    scheduled_ns, sent_ns = (at_even_rate_ns(times, load.ramp_up_s) for times in (requests.scheduled_ns, requests.sent_ns))
    ttft_ms = _anchored(requests, requests.first_token_ns) if streaming else None
    e2e_ms = _anchored(requests, requests.last_token_ns)
    itl_ms, icl_ms = _token_latencies(requests) if streaming else (None, None)
    return Metrics(
        scheduled=len(requests.outcome),
        done=int(requests.done.sum()),
        failed_by_kind=_failed_by_kind(requests),
        ttft_ms=ttft_ms,
        e2e_ms=e2e_ms,
        tpot_ms=summarise(time_per_output_token_ms(requests)) if streaming else None,
        itl_ms=itl_ms,
        icl_ms=icl_ms,
        slip_ms=summarise(schedule_slip_ms(requests)),
        ceiling_wait_ms=None if load.max_concurrency is None else summarise(ceiling_waits_ms(requests)),
        windows=compute_windows(requests, None if ttft_ms is None else ttft_ms.scheduled, e2e_ms.scheduled, load.closed),
        offered_rate=None if load.closed else mean_rate(requests.scheduled_ns),
        achieved_rate=mean_rate(requests.sent_ns),
        mean_input_tokens=_mean(requests.input_tokens[requests.done]),
        mean_output_tokens=_mean(requests.output_tokens[requests.done]),
        scheduled_dispersion=None if load.closed else index_of_dispersion(scheduled_ns),
        sent_dispersion=index_of_dispersion(requests.sent_ns if load.closed else sent_ns),
        upstream=_upstream_table(requests),
        goodput=goodput(requests, objectives),
        slip_by_worker=slip_by_worker(requests),
        slip_over_time=slip_over_time(requests),
    )


def _anchored(requests: Requests, ends_ns: FloatArray) -> Anchored:
    return Anchored(*(summarise(latencies_ms(requests, ends_ns, a)) for a in (requests.scheduled_ns, requests.sent_ns)))


def _token_latencies(requests: Requests) -> tuple[Distribution | None, Distribution | None]:
    """ITL and ICL, in ms; with one token a response they are the same."""
    icl_ms = summarise(inter_chunk_latencies_ms(requests))
    if requests.token_counts.size and (requests.token_counts == 1.0).all():
        return icl_ms, icl_ms
    return summarise(inter_token_latencies_ms(requests)), icl_ms


def mean_rate(times_ns: FloatArray) -> float | None:
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
    latency_ms = np.sort((requests.done_ns[done] - requests.sent_ns[done]) / _NS_PER_MS)
    span_s = float(requests.done_ns[done].max() - requests.sent_ns[done].min()) / _NS_PER_S
    output_tokens = requests.output_tokens[done]
    return UpstreamTable(
        requests_per_s=float(done.sum()) / span_s if span_s else None,
        output_tokens_per_s=None if not span_s or np.isnan(output_tokens).any() else float(output_tokens.sum()) / span_s,
        mean_latency_ms=float(latency_ms.mean()),
        p99_latency_ms=nearest_rank(latency_ms, 0.99),
        p90_latency_ms=nearest_rank(latency_ms, 0.90),
        mean_input_tokens=_mean(requests.input_tokens[done]),
        mean_output_tokens=_mean(output_tokens),
        total_latency_ms=span_s * 1e3,
        total_requests=int(done.sum()),
    )
