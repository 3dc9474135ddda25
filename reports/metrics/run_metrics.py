"""The numbers of a run, by the definitions in docs/reference/metrics.md.

Every latency has two anchors: ``scheduled`` (when the request should have been sent; the headline) and ``sent``.
Latencies cover successful requests. Requests that failed count in percentiles as slower than all of them; requests that
the client cut off count with what they had taken by then, which is a lower bound (``reports/metrics/censoring.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench_records.record import FAILURES
from reports.metrics.arrival_law import at_even_rate_ns, index_of_dispersion
from reports.metrics.catalogue import (
    ACHIEVED_RATE,
    ARRIVAL_RATES,
    ATTAINMENT,
    CAUSAL_DELAY,
    CEILING_WAIT,
    E2E,
    FAILED_SHARE,
    ICL,
    ITL,
    LATENCIES,
    OFFERED_RATE,
    OUTPUT_TOKEN_THROUGHPUT,
    REQUEST_THROUGHPUT,
    SCHEDULE_SLIP,
    THROUGHPUTS,
    TPOT,
    TTFO,
    TTFT,
)
from reports.metrics.configuration import OPEN_LOOP, ConfiguredLoad
from reports.metrics.failures import FailedShare, failed_share_of
from reports.metrics.full_batch import FullBatch
from reports.metrics.goodput import Goodput, Objective, goodput
from reports.metrics.metric import Anchored, Latency, MeasuredRun, Metric
from reports.metrics.requests import Requests
from reports.metrics.slip import PartOfRun, Slip, slip_by_worker, slip_over_time
from reports.metrics.upstream import UpstreamTable, upstream_statistics
from reports.metrics.windows import Windows, compute_windows
from reports.statistics.arrays import mean_of_known
from reports.statistics.estimate import UNKNOWN, Cause, Estimate
from reports.statistics.percentiles import Distribution


@dataclass(frozen=True)
class Metrics:
    """All numbers of one run. Latencies in ms, rates per second, window in s; None is unknown or does not exist."""

    scheduled: int
    done: int
    withdrawn: int  # cancelled as planned
    not_sent: int  # the run ended before they were sent
    failed_by_kind: dict[str, int]
    latencies: Mapping[Metric, Latency]  # those of such a run, in the order of the tables; None where no request has one
    windows: Windows
    arrival_rates: Mapping[Metric, Estimate]
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
        return TTFT in self.latencies

    @property
    def latency(self) -> tuple[Metric, Anchored]:
        """The latency that stands for the run where one is shown: TTFT, or E2E latency of an unstreamed run."""
        return (E2E, self.e2e_ms) if self.ttft_ms is None else (TTFT, self.ttft_ms)

    @property
    def ttft_ms(self) -> Anchored | None:
        return self._anchored(TTFT)

    @property
    def ttfo_ms(self) -> Anchored | None:
        """None where no answer has reasoning: it is TTFT then."""
        return self._anchored(TTFO)

    @property
    def e2e_ms(self) -> Anchored:
        return self._anchored(E2E) or Anchored(None, None)

    @property
    def tpot_ms(self) -> Distribution | None:
        return self._distribution(TPOT)

    @property
    def itl_ms(self) -> Distribution | None:
        return self._distribution(ITL)

    @property
    def icl_ms(self) -> Distribution | None:
        return self._distribution(ICL)

    @property
    def slip_ms(self) -> Distribution | None:
        return self._distribution(SCHEDULE_SLIP)

    @property
    def ceiling_wait_ms(self) -> Distribution | None:
        return self._distribution(CEILING_WAIT)

    @property
    def causal_delay_ms(self) -> Distribution | None:
        return self._distribution(CAUSAL_DELAY)

    def _anchored(self, metric: Metric) -> Anchored | None:
        value = self.latencies.get(metric)
        return value if isinstance(value, Anchored) else None

    def _distribution(self, metric: Metric) -> Distribution | None:
        value = self.latencies.get(metric)
        return value if isinstance(value, Distribution) else None

    @property
    def rates(self) -> Mapping[Metric, Estimate]:
        """Throughputs and arrival rates of the whole run. Arrival rates have no interval."""
        whole = self.windows.whole
        return {**(dict.fromkeys(THROUGHPUTS, UNKNOWN) if whole is None else whole.throughputs), **self.arrival_rates}

    @property
    def shares(self) -> Mapping[Metric, Estimate]:
        """Shares of the requests, with their intervals; attainment only where there are objectives."""
        failed = Estimate(None, reason=Cause.NONE_ENDED) if self.failed_share is None else self.failed_share.estimate
        attained = {} if self.goodput is None else {ATTAINMENT: self.goodput.attainment_estimate}
        return {FAILED_SHARE: failed, **attained}

    @property
    def offered_rate(self) -> float | None:
        return self.arrival_rates[OFFERED_RATE].value

    @property
    def achieved_rate(self) -> float | None:
        return self.arrival_rates[ACHIEVED_RATE].value

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
    run = MeasuredRun(requests, streaming, load, batch_limit)
    latencies = _latencies(run)
    ttft_ms, e2e_ms = (_from_schedule(latencies.get(metric)) for metric in (TTFT, E2E))
    return Metrics(
        scheduled=len(requests.outcome),
        done=int(requests.done.sum()),
        withdrawn=int(requests.withdrawn.sum()),
        not_sent=int((~requests.offered).sum()),
        failed_by_kind=failures_by_kind(requests),
        latencies=latencies,
        windows=compute_windows(requests, ttft_ms, e2e_ms, load, run.clustered, run.batch),
        arrival_rates={metric: metric.arrival_rate_of(run) for metric in ARRIVAL_RATES},
        mean_input_tokens=mean_of_known(requests.input_tokens[requests.done]),
        mean_output_tokens=mean_of_known(requests.output_tokens[requests.done]),
        scheduled_dispersion=None if load.waits_for_answers else index_of_dispersion(scheduled_ns),
        sent_dispersion=index_of_dispersion(requests.sent_ns if load.waits_for_answers else sent_ns),
        upstream=upstream_statistics(requests),
        goodput=goodput(requests, objectives, run.clustered),
        failed_share=failed_share_of(requests, run.clustered),
        slip_by_worker=slip_by_worker(requests),
        slip_over_time=slip_over_time(requests),
        full_batch=run.batch,
    )


def _latencies(run: MeasuredRun) -> dict[Metric, Latency]:
    found = {metric: metric.latency_of(run) for metric in LATENCIES if run.streaming or not metric.streamed_only}
    return {metric: value for metric, value in found.items() if value is not None or not metric.of_some_runs}


def _from_schedule(latency: Latency) -> Distribution | None:
    return latency.scheduled if isinstance(latency, Anchored) else latency


def failures_by_kind(requests: Requests) -> dict[str, int]:
    """The number of failed requests of each kind that occurred; those that were not sent did not fail."""
    kinds, counts = np.unique(requests.outcome, return_counts=True)
    by_kind = dict(zip(kinds.tolist(), counts.tolist(), strict=True))
    return {kind.value: by_kind[kind.value] for kind in FAILURES if kind.value in by_kind}
