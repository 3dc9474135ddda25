"""The measures of a run that are compared, each with the contribution of every request to it.

A statistic of n requests is, up to terms that are small beside its error, a mean of n contributions (its influence function:
Hampel 1974). Their long-run spread is the error of the statistic, whichever it is; and where two runs had the same schedule,
the contributions of a request to both can be paired, which removes the effect of the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from reports.metrics.catalogue import LATENCIES, METRICS
from reports.metrics.censoring import CensoredLatencies
from reports.metrics.full_load import full_load
from reports.metrics.metric import Better, Metric
from reports.metrics.output_events import rate_value
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray, finite, shifted_mean
from reports.statistics.autocorrelation import FEWEST_VALUES
from reports.statistics.estimate import Cause, Reason, TooFew
from reports.statistics.percentiles import nearest_rank, percentile_key, required_samples

BINS = 1_000  # parts of the window, each one contribution to a rate


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a run that is compared: the ``q``-quantile of a metric's values, or without ``q`` the mean of a latency,
    or the metric itself.
    """

    metric: Metric
    q: float | None = None

    @property
    def name(self) -> str:
        """The spelling of ``--fail_if``, JSON and CSV: "p99_ttft", "mean_tpot", "request_throughput"."""
        return "_".join(filter(None, (self._statistic, self.metric.name)))

    @property
    def title(self) -> str:
        return " ".join(filter(None, (self.metric.label, self._statistic)))

    @property
    def unit(self) -> str:
        return self.metric.unit

    @property
    def higher_is_better(self) -> bool:
        return self.metric.better is Better.HIGHER

    @property
    def relative(self) -> bool:
        """Whether differences are differences of logarithms, and read in per cent; otherwise they are in the unit itself."""
        return self.metric.happened is None

    @property
    def _statistic(self) -> str:
        if self.q is not None:
            return percentile_key(self.q)
        return "mean" if self.metric in LATENCIES else ""


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure of one run. An unknown value is None, for the ``reason``.

    ``sample`` has shape [requests]: of a quantile the values (NaN unknown, infinite failed), with ``ordered`` the known ones,
    sorted; of a mean or share the contribution of each request, of which value (or its logarithm, if relative) − truth ≈ the
    mean. For a rate it has shape [BINS]. ``other_error`` is a standard error that the contributions lack, of the logarithm,
    from this many ``other_independent`` values. ``covariates``, shape [requests, k], are what the schedule fixed of each
    request. ``gap``, of a run in an open loop, is the logarithm of the mean gap between scheduled sends, and its standard
    error if gaps are independent. ``sample_of_run`` takes the place of ``sample``, and ``other_error`` that of
    ``paired_error``, where requests of one schedule are not paired.
    """

    value: float | None
    sample: FloatArray
    reason: Reason | None = None
    other_error: float = 0.0
    covariates: FloatArray | None = None
    ordered: FloatArray = field(default_factory=lambda: np.empty(0))
    gap: tuple[float, float] | None = None
    sample_of_run: FloatArray | None = None
    paired_error: float = 0.0
    other_independent: float = math.inf


MEASURES = tuple(Measure(metric, q) for metric in METRICS for q in metric.compared)


def measure_run(requests: Requests, streaming: bool) -> dict[str, Measured]:
    """Every measure of MEASURES that such a run has, by name; latencies count from the schedule."""
    gap = open_loop_gap(requests)
    chosen = [measure for measure in MEASURES if streaming or not measure.metric.streamed_only]
    latencies = {
        metric: metric.by_request(requests) for metric in LATENCIES if any(measure.metric is metric for measure in chosen)
    }
    covariates = schedule_covariates(requests)

    def measured(measure: Measure) -> Measured:
        if measure.metric in latencies:
            of_requests = latencies[measure.metric]
            run = mean(of_requests.values_ms) if measure.q is None else exact_percentiles(of_requests, [measure.q])[0]
            return replace(run, covariates=covariates)
        if measure.metric.happened is not None:
            return share(measure.metric.happened(requests))
        return throughput(requests, measure.metric)

    return {measure.name: replace(measured(measure), gap=gap) for measure in chosen}


def schedule_covariates(requests: Requests) -> FloatArray:
    """What the schedule fixed of each request: logarithms of the requested input and output lengths, and their squares.

    Shape [requests, k]; a length that some request lacks, or that all have in common, is left out.
    """
    columns = []
    for tokens in (requests.requested_input_tokens, requests.requested_output_tokens):
        logarithms = np.log1p(tokens)
        if logarithms.size and not np.isnan(logarithms).any() and np.ptp(logarithms) > 0:
            columns += [logarithms, logarithms**2]
    return np.stack(columns, axis=1) if columns else np.empty((len(requests.outcome), 0))


def percentile(values: FloatArray, q: float) -> Measured:
    """The nearest-rank q-quantile of ``values``, shape [requests]: NaN has no value, a failed request is infinite."""
    return percentiles(values, [q])[0]


def percentiles(values: FloatArray, quantiles: Sequence[float]) -> list[Measured]:
    """As ``percentile``, of several quantiles with one sort."""
    ordered = np.sort(values[~np.isnan(values)])
    return [_percentile(values, ordered, q) for q in quantiles]


def exact_percentiles(latencies: CensoredLatencies, quantiles: Sequence[float]) -> list[Measured]:
    """As ``percentiles``, of latencies of which some are bounds; a percentile that these decide is unknown."""
    found = percentiles(latencies.slowest_ms, quantiles)
    if not latencies.is_bound.any():
        return found
    fastest = np.sort(latencies.counted.values_ms)
    return [
        point
        if nearest_rank(fastest, q) == (math.inf if point.value is None else point.value)
        else _unknown(point.sample, Cause.REACHES_CUT, None)
        for point, q in zip(found, quantiles, strict=True)
    ]


def _percentile(values: FloatArray, ordered: FloatArray, q: float) -> Measured:
    n = ordered.size
    needed = max(FEWEST_VALUES, required_samples(q))
    if n < needed:
        return _unknown(values, TooFew(n, needed), _quantile_or_none(ordered, q))
    quantile = nearest_rank(ordered, q)
    if not math.isfinite(quantile):
        return _unknown(values, Cause.REACHES_FAILED, None)
    if ordered[0] <= 0:
        return _unknown(values, Cause.ZEROS, quantile)
    return Measured(quantile, values, ordered=ordered)


def mean(values: FloatArray) -> Measured:
    """The mean of ``values``, shape [requests]: NaN has no value."""
    known = np.isfinite(values)
    n = int(known.sum())
    if n < FEWEST_VALUES:
        return _unknown(values, TooFew(n, FEWEST_VALUES), shifted_mean(values[known]) if n else None)
    value = shifted_mean(values[known])
    if value == 0.0:  # as TPOT where a proxy holds answers back and sends all their tokens at once
        return _unknown(values, Cause.ALL_ZERO, value)
    return Measured(value, np.where(known, (values - value) / value * (values.size / n), 0.0))


def throughput(requests: Requests, metric: Metric) -> Measured:
    """A throughput: what it counts per second of the whole window.

    The contributions cover the time between ramp and drain, where there is enough of it: ramp and drain come in every run
    alike, and only the length of the drain adds an error by chance (``reports/metrics/full_load.py``).
    """
    nothing = np.zeros(BINS)
    if not requests.done.any():
        return _unknown(nothing, Cause.NONE_SUCCEEDED, None)
    assert metric.events is not None
    events = metric.events(requests)
    if events is None:
        return _unknown(nothing, Cause.UNCOUNTED, None)
    start_ns, end_ns = float(requests.scheduled_ns.min()), float(requests.done_ns[requests.done].max())
    value = rate_value(events, start_ns, end_ns)
    done = int(requests.done.sum())
    if done < FEWEST_VALUES or value is None:
        return _unknown(nothing, TooFew(done, FEWEST_VALUES), value)
    if value == 0.0:  # tokens/s of answers without a token
        return _unknown(nothing, Cause.ALL_ZERO, value)
    full = full_load(requests, events)
    if full is None:
        return Measured(value, _deviations(events.per_bin(start_ns, end_ns, BINS)))
    sample, of_run = (
        _deviations(per_bin(events, BINS)) * full.part_in_error for per_bin in (full.per_bin, full.chance_per_bin)
    )
    return Measured(value, sample, None, full.drain_error, sample_of_run=of_run, paired_error=full.late_drain_error,
        other_independent=full.independent_drains if full.open_loop else math.inf,
    )  # fmt: skip


def open_loop_gap(requests: Requests) -> tuple[float, float] | None:
    """The value of ``Measured.gap``; None where answers decided when the next request was due, or all were due at once."""
    if requests.scheduled_ns.size < 2:
        return None
    gaps_ns = np.diff(np.sort(requests.scheduled_ns))
    mean_ns = float(gaps_ns.mean())
    if mean_ns <= 0 or not requests.is_open_loop:
        return None
    return math.log(mean_ns), float(gaps_ns.std()) / mean_ns / math.sqrt(gaps_ns.size)


def _deviations(per_bin: FloatArray) -> FloatArray:
    deviations: FloatArray = per_bin / per_bin.mean() - 1.0
    return deviations


def share(happened: FloatArray) -> Measured:
    """The share of requests to which something ``happened``, shape [requests]: 1 or 0, NaN for one that does not count."""
    known = ~np.isnan(happened)
    if not known.any():
        return _unknown(happened, Cause.NONE_ENDED, None)
    value = float(happened[known].mean())
    return Measured(value, np.where(known, (happened - value) * (happened.size / known.sum()), 0.0))


def _unknown(values: NDArray[np.float64], reason: Reason, value: float | None) -> Measured:
    return Measured(value, np.zeros(values.size), reason)


def _quantile_or_none(ordered: FloatArray, q: float) -> float | None:
    return finite(nearest_rank(ordered, q)) if ordered.size else None
