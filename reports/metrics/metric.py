"""What a metric is: its names, how it is computed from a run, and what may be done with it. ``catalogue.py`` lists all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from reports.metrics.censoring import CensoredLatencies, latencies_by_request
from reports.metrics.clustered_arrivals import clustered_arrivals
from reports.metrics.configuration import OPEN_LOOP, ConfiguredLoad
from reports.metrics.full_batch import FullBatch, full_batch, without_rare_tails
from reports.metrics.latency import inter_chunk_latencies_ms
from reports.metrics.output_events import Events, mean_rate
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.estimate import Estimate, Reason
from reports.statistics.percentiles import Distribution, summarise

FROM_SCHEDULE, FROM_SEND = "from schedule", "from send"

OfRequests = Callable[[Requests], FloatArray]


class Better(Enum):
    """In which direction a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True)
class Anchored:
    """One latency from both anchors, in ms; None where no request has it."""

    scheduled: Distribution | None
    sent: Distribution | None

    @property
    def by_anchor(self) -> tuple[tuple[str, Distribution | None], ...]:
        """Both, each with the name of its anchor in tables and pictures."""
        return (FROM_SCHEDULE, self.scheduled), (FROM_SEND, self.sent)


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """What latencies are computed from. ``batch_limit`` is the largest batch of the target, where it is known."""

    requests: Requests
    streaming: bool
    load: ConfiguredLoad = OPEN_LOOP
    batch_limit: int | None = None

    @cached_property
    def clustered(self) -> Reason | None:
        """Why no number that depends on the load has an interval: arrivals in few clusters."""
        return clustered_arrivals(self.requests, self.load.ramp_up_s)

    @cached_property
    def batch(self) -> FullBatch | None:
        return full_batch(self.requests, self.batch_limit)

    @cached_property
    def inter_chunk_ms(self) -> Distribution | None:
        return self.summary(inter_chunk_latencies_ms(self.requests))

    def summary(self, values_ms: FloatArray) -> Distribution | None:
        """The distribution of values that depend on the load."""
        return summarise(values_ms, no_interval_reason=self.clustered)

    def anchored(self, ends_ns: FloatArray) -> Anchored:
        """The latency from both anchors to ``ends_ns``, shape [requests]."""
        anchors_ns = (self.requests.scheduled_ns, self.requests.sent_ns)
        by_anchor = (latencies_by_request(self.requests, ends_ns, anchor_ns) for anchor_ns in anchors_ns)
        return Anchored(*(without_rare_tails(latencies.summary(self.clustered), self.batch) for latencies in by_anchor))


Latency = Anchored | Distribution | None


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """``key`` is the metric's name in ``summary.json``, ``label`` its name in tables and pictures.

    ``definition`` is Markdown, for the documentation. ``better`` is None for a metric that describes the load or the answers
    rather than the target's performance. Where they are given, ``short`` replaces ``label`` in narrow columns, ``title`` in
    the documentation, and ``counted`` names in tables what is counted per second. ``streamed_only``: an unstreamed run does
    not have it, since its tokens arrive together.

    A latency with two anchors has ``ends_ns``, the time of each request at which it ends, shape [requests], NaN where a request
    did not reach it. Another one has ``series_ms``, its values, or ``of_run`` for more than their distribution, and where each
    request has one value ``each_ms``, shape [requests]. ``exists`` says whether a run has it.

    A throughput has ``events``, what it counts per second, None where that is unknown; an arrival rate has ``times_ns``, the
    times of the arrivals, shape [requests]. A share has ``happened``, shape [requests]: 1 or 0, NaN for a request that does not
    count.

    ``compared`` are the quantiles that comparisons and trends show, None for a mean, or for the metric itself. ``in_criteria``:
    --slo and --fail_if may name it. ``is_objective``: --slo may name it of each request, then without anchors by ``judged_ms``.
    ``column_text`` and ``column_null`` describe its column in the DataFrames, where that is not "label from anchor".
    """

    key: str
    label: str
    unit: str
    definition: str
    better: Better | None = None
    short: str = ""
    title: str = ""
    counted: str = ""
    streamed_only: bool = False
    ends_ns: OfRequests | None = None
    series_ms: OfRequests | None = None
    each_ms: OfRequests | None = None
    of_run: Callable[[MeasuredRun], Distribution | None] | None = None
    exists: Callable[[MeasuredRun], bool] | None = None
    events: Callable[[Requests], Events | None] | None = None
    times_ns: OfRequests | None = None
    happened: OfRequests | None = None
    of_some_runs: bool = False  # without a row elsewhere
    compared: tuple[float | None, ...] = ()
    in_criteria: bool = False
    is_objective: bool = False
    judged_ms: Callable[[Requests], CensoredLatencies] | None = None
    column_text: str = ""
    column_null: str = ""
    has_sent_column: bool = True

    @property
    def name(self) -> str:
        """The key without "_ms", as ``--fail_if`` and the documents of comparisons spell it: "ttft" for "ttft_ms"."""
        return self.key.removesuffix("_ms")

    @property
    def full_name(self) -> str:
        """The name in the documentation."""
        return self.title or self.label

    @property
    def table_unit(self) -> str:
        """The unit in tables: "requests/s" where JSON has "1/s"."""
        return f"{self.counted}/s" if self.counted else self.unit

    @property
    def label_with_unit(self) -> str:
        return f"{self.label} ({self.table_unit})"

    @property
    def column(self) -> str:
        """The head of a narrow column: "TTFT ms"."""
        return f"{self.short or self.label} {self.unit}"

    def latency_of(self, run: MeasuredRun) -> Latency:
        """This latency of a run; None where no request has it."""
        if self.exists is not None and not self.exists(run):
            return None
        if self.of_run is not None:
            return self.of_run(run)
        if self.ends_ns is not None:
            return run.anchored(self.ends_ns(run.requests))
        assert self.series_ms is not None
        return run.summary(self.series_ms(run.requests))

    def arrival_rate_of(self, run: MeasuredRun) -> Estimate:
        """This arrival rate of a run, without an interval."""
        assert self.times_ns is not None
        exists = self.exists is None or self.exists(run)
        return Estimate(mean_rate(self.times_ns(run.requests)) if exists else None)

    def from_anchor(self, requests: Requests, anchor_ns: FloatArray) -> CensoredLatencies:
        """Each request's latency from ``anchor_ns``, shape [requests] both; without anchors the same from every one."""
        if self.ends_ns is not None:
            return latencies_by_request(requests, self.ends_ns(requests), anchor_ns)
        assert self.each_ms is not None
        return _exact(self.each_ms(requests))

    def by_request(self, requests: Requests) -> CensoredLatencies:
        """Each request's latency from the schedule, shape [requests], NaN where there is none."""
        return self.from_anchor(requests, requests.scheduled_ns)

    def judged(self, requests: Requests, anchor_ns: FloatArray) -> CensoredLatencies:
        """Each request's latency as an objective, shape [requests]."""
        return self.from_anchor(requests, anchor_ns) if self.judged_ms is None else self.judged_ms(requests)

    def values(self, requests: Requests) -> CensoredLatencies:
        """The values of the distribution, from the schedule, in their order."""
        return self.by_request(requests).counted if self.series_ms is None else _exact(self.series_ms(requests))


def _exact(values_ms: FloatArray) -> CensoredLatencies:
    return CensoredLatencies(values_ms, np.zeros(values_ms.size, dtype=np.bool_))
