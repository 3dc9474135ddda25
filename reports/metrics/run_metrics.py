"""The numbers of a run, by the definitions in docs/reference/metrics.md.

Every latency has two anchors: ``scheduled`` (when the request should have been sent; the headline) and ``sent``.
Latencies are of successful requests. Requests that failed count in their percentiles as slower than all of them; requests that
the client cut off count with what they had taken by then, which is a lower bound (``reports/metrics/censoring.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench_records.record import FAILURES, Outcome
from reports.metrics.arrival_law import at_even_rate_ns, index_of_dispersion
from reports.metrics.catalogue import (
    ACHIEVED_RATE,
    CAUSAL_DELAY,
    CEILING_WAIT,
    E2E,
    ICL,
    ITL,
    OFFERED_RATE,
    OUTPUT_TOKEN_THROUGHPUT,
    REQUEST_THROUGHPUT,
    SCHEDULE_SLIP,
    TPOT,
    TTFO,
    TTFT,
    Metric,
)  # fmt: skip
from reports.metrics.censoring import latencies_by_request
from reports.metrics.clustered_arrivals import clustered_arrivals
from reports.metrics.configuration import OPEN_LOOP, ConfiguredLoad
from reports.metrics.failures import FailedShare, failed_share_of
from reports.metrics.full_batch import FullBatch, full_batch, without_rare_tails
from reports.metrics.goodput import Goodput, Objective, goodput
from reports.metrics.latency import (
    causal_delays_ms,
    ceiling_waits_ms,
    counted_gap_share,
    inter_chunk_latencies_ms,
    inter_token_latencies_ms,
    schedule_slip_ms,
    time_per_output_token_ms,
)
from reports.metrics.output_events import mean_rate
from reports.metrics.requests import Requests
from reports.metrics.slip import PartOfRun, Slip, slip_by_worker, slip_over_time
from reports.metrics.upstream import UpstreamTable, upstream_statistics
from reports.metrics.windows import Windows, compute_windows
from reports.statistics.arrays import FloatArray, mean_of_known
from reports.statistics.estimate import UNKNOWN, Estimate, Reason
from reports.statistics.percentiles import Distribution, summarise

ITL_COVERAGE = 0.99  # share of the inter-chunk gaps that ITL must cover
_ONLY_OF_SOME_RUNS = (TTFO, CEILING_WAIT, CAUSAL_DELAY)  # without a row elsewhere

FROM_SCHEDULE, FROM_SEND = "from schedule", "from send"


@dataclass(frozen=True)
class Anchored:
    """One latency from both anchors, in ms; None where no request has it."""

    scheduled: Distribution | None
    sent: Distribution | None

    @property
    def by_anchor(self) -> tuple[tuple[str, Distribution | None], ...]:
        """Both, each with the name of its anchor in tables and pictures."""
        return (FROM_SCHEDULE, self.scheduled), (FROM_SEND, self.sent)


@dataclass(frozen=True)
class Metrics:
    """All numbers of one run. Latencies in ms, rates per second, window in s; None is unknown or does not exist."""

    scheduled: int
    done: int
    withdrawn: int  # cancelled as planned
    not_sent: int  # the run ended before they were sent
    failed_by_kind: dict[str, int]
    ttft_ms: Anchored | None
    ttfo_ms: Anchored | None  # None where no answer has reasoning: it is TTFT then
    e2e_ms: Anchored
    tpot_ms: Distribution | None
    itl_ms: Distribution | None
    icl_ms: Distribution | None
    slip_ms: Distribution | None
    ceiling_wait_ms: Distribution | None
    causal_delay_ms: Distribution | None
    windows: Windows
    offered_rate: float | None
    achieved_rate: float | None
    mean_input_tokens: float | None
    mean_output_tokens: float | None
    scheduled_dispersion: float | None
    sent_dispersion: float | None
    upstream: UpstreamTable
    goodput: Goodput | None  # None without objectives
    failed_share: FailedShare | None
    slip_by_worker: dict[int, Slip]
    slip_over_time: tuple[PartOfRun, ...]
    full_batch: FullBatch | None

    @property
    def streamed(self) -> bool:
        """Whether the run has the metrics that are ``streamed_only``."""
        return self.ttft_ms is not None

    @property
    def latency(self) -> tuple[Metric, Anchored]:
        """The latency that stands for the run where one is shown: TTFT, or E2E latency of an unstreamed run."""
        return (E2E, self.e2e_ms) if self.ttft_ms is None else (TTFT, self.ttft_ms)

    @property
    def latencies(self) -> Mapping[Metric, Anchored | Distribution | None]:
        """The latencies of such a run, in the order of the tables; None where no request has one."""
        values: dict[Metric, Anchored | Distribution | None] = {
            TTFT: self.ttft_ms,
            TTFO: self.ttfo_ms,
            E2E: self.e2e_ms,
            TPOT: self.tpot_ms,
            ITL: self.itl_ms,
            ICL: self.icl_ms,
            SCHEDULE_SLIP: self.slip_ms,
            CEILING_WAIT: self.ceiling_wait_ms,
            CAUSAL_DELAY: self.causal_delay_ms,
        }
        return {
            metric: value
            for metric, value in values.items()
            if (self.streamed or not metric.streamed_only) and (value is not None or metric not in _ONLY_OF_SOME_RUNS)
        }

    @property
    def rates(self) -> Mapping[Metric, Estimate]:
        """Throughputs and arrival rates of the whole run. Arrival rates have no interval."""
        whole = self.windows.whole
        return {
            REQUEST_THROUGHPUT: UNKNOWN if whole is None else whole.request_throughput,
            OUTPUT_TOKEN_THROUGHPUT: UNKNOWN if whole is None else whole.output_token_throughput,
            OFFERED_RATE: Estimate(self.offered_rate),
            ACHIEVED_RATE: Estimate(self.achieved_rate),
        }

    @property
    def window_s(self) -> float | None:
        return None if self.windows.whole is None else self.windows.whole.length_s

    @property
    def request_throughput(self) -> float | None:
        return self.rates[REQUEST_THROUGHPUT].value

    @property
    def output_token_throughput(self) -> float | None:
        return self.rates[OUTPUT_TOKEN_THROUGHPUT].value

    @property
    def failed(self) -> int:
        return sum(self.failed_by_kind.values())


def compute_metrics(
    requests: Requests,
    streaming: bool,
    load: ConfiguredLoad = OPEN_LOOP,
    objectives: Sequence[Objective] = (),
    batch_limit: int | None = None,
) -> Metrics:
    """Compute every metric. An unstreamed run has no token latencies, since its tokens arrive together; a closed loop and
    sessions have no offered rate, since answers set it. A ramp of the rate is evened out before the dispersion is computed.
    ``batch_limit`` is the largest batch of the target, where it is known.
    """
    scheduled_ns, sent_ns = (at_even_rate_ns(times, load.ramp_up_s) for times in (requests.scheduled_ns, requests.sent_ns))
    clustered = clustered_arrivals(requests, load.ramp_up_s)
    batch = full_batch(requests, batch_limit)
    ttft_ms = _anchored(requests, requests.first_token_ns, clustered, batch) if streaming else None
    e2e_ms = _anchored(requests, requests.last_token_ns, clustered, batch)
    itl_ms, icl_ms = _token_latencies(requests, clustered) if streaming else (None, None)
    return Metrics(
        scheduled=len(requests.outcome),
        done=int(requests.done.sum()),
        withdrawn=int(requests.withdrawn.sum()),
        not_sent=int((requests.outcome == Outcome.NOT_SENT.value).sum()),
        failed_by_kind=failures_by_kind(requests),
        ttft_ms=ttft_ms,
        ttfo_ms=(
            _anchored(requests, requests.first_output_token_ns, clustered, batch)
            if streaming and requests.has_reasoning.any()
            else None
        ),
        e2e_ms=e2e_ms,
        tpot_ms=summarise(time_per_output_token_ms(requests), no_interval_reason=clustered) if streaming else None,
        itl_ms=itl_ms,
        icl_ms=icl_ms,
        slip_ms=summarise(schedule_slip_ms(requests)),
        ceiling_wait_ms=None if load.max_concurrency is None else summarise(ceiling_waits_ms(requests)),
        causal_delay_ms=summarise(causal_delays_ms(requests)),
        windows=compute_windows(
            requests, None if ttft_ms is None else ttft_ms.scheduled, e2e_ms.scheduled, load, clustered, batch
        ),
        offered_rate=None if load.waits_for_answers else mean_rate(requests.scheduled_ns),
        achieved_rate=mean_rate(requests.sent_ns),
        mean_input_tokens=mean_of_known(requests.input_tokens[requests.done]),
        mean_output_tokens=mean_of_known(requests.output_tokens[requests.done]),
        scheduled_dispersion=None if load.waits_for_answers else index_of_dispersion(scheduled_ns),
        sent_dispersion=index_of_dispersion(requests.sent_ns if load.waits_for_answers else sent_ns),
        upstream=upstream_statistics(requests),
        goodput=goodput(requests, objectives, clustered),
        failed_share=failed_share_of(requests, clustered),
        slip_by_worker=slip_by_worker(requests),
        slip_over_time=slip_over_time(requests),
        full_batch=batch,
    )


def _anchored(requests: Requests, ends_ns: FloatArray, no_interval_reason: Reason | None, batch: FullBatch | None) -> Anchored:
    anchors_ns = (requests.scheduled_ns, requests.sent_ns)
    by_anchor = (latencies_by_request(requests, ends_ns, anchor_ns) for anchor_ns in anchors_ns)
    return Anchored(*(without_rare_tails(latencies.summary(no_interval_reason), batch) for latencies in by_anchor))


def _token_latencies(requests: Requests, no_interval_reason: Reason | None) -> tuple[Distribution | None, Distribution | None]:
    """ITL and ICL, in ms; with one token a response they are the same.

    Answers with known counts are those whose chunks were not joined, so they are faster than the others: ITL of them alone
    would be biased, and is None below ``ITL_COVERAGE`` of the gaps.
    """
    icl_ms = summarise(inter_chunk_latencies_ms(requests), no_interval_reason=no_interval_reason)
    if requests.token_counts.size and (requests.token_counts == 1.0).all():
        return icl_ms, icl_ms
    if (counted_gap_share(requests) or 0.0) < ITL_COVERAGE:
        return None, icl_ms
    return summarise(inter_token_latencies_ms(requests), no_interval_reason=no_interval_reason), icl_ms


def failures_by_kind(requests: Requests) -> dict[str, int]:
    """The number of failed requests of each kind that occurred; those that were not sent did not fail."""
    kinds, counts = np.unique(requests.outcome, return_counts=True)
    by_kind = dict(zip(kinds.tolist(), counts.tolist(), strict=True))
    return {kind.value: by_kind[kind.value] for kind in FAILURES if kind.value in by_kind}
