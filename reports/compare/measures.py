"""The measures of a run that are compared, each with the contribution of every request to it.

A statistic of n requests is, up to terms that are small beside its error, a mean of n contributions (its influence function:
Hampel 1974). Their long-run spread is the error of the statistic, whichever it is; and where two runs had the same schedule,
the contributions of a request to both can be paired, which removes the effect of the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.metrics.latency import latencies_by_request_ms, time_per_output_token_by_request_ms
from reports.metrics.output_events import completions, output_tokens
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import FEWEST_INDEPENDENT, FEWEST_VALUES
from reports.statistics.percentiles import fewest_for_limits, nearest_rank, required_samples

BINS = 1_000  # parts of the window, each one contribution to a rate
_Z = 1.96


@dataclass(frozen=True, slots=True)
class Measure:
    """One number that runs are compared by. ``name`` is how ``--fail_if`` spells it; ``unit`` is the value's.

    ``relative``: differences are of logarithms, and read in per cent; otherwise they are in the unit itself.
    """

    name: str
    title: str
    unit: str
    higher_is_better: bool = False
    relative: bool = True


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure of one run. An unknown value is None, for the ``reason``.

    ``contributions`` has shape [requests], or [BINS] for a rate: value (or its logarithm, if relative) − truth ≈ their mean.
    ``fewest_effective`` is the smallest effective sample size that gives an interval.
    """

    value: float | None
    contributions: FloatArray
    reason: str | None = None
    fewest_effective: int = FEWEST_INDEPENDENT


MEASURES = (
    Measure("p50_ttft", "TTFT p50", "ms"),
    Measure("p99_ttft", "TTFT p99", "ms"),
    Measure("p50_e2e", "E2E latency p50", "ms"),
    Measure("p99_e2e", "E2E latency p99", "ms"),
    Measure("mean_tpot", "TPOT mean", "ms"),
    Measure("request_throughput", "Request throughput", "1/s", higher_is_better=True),
    Measure("output_token_throughput", "Output token throughput", "tokens/s", higher_is_better=True),
    Measure("failed_share", "Failed requests", "share", relative=False),
)


def measure_run(requests: Requests, streaming: bool) -> dict[str, Measured]:
    """Every measure of MEASURES that such a run has, by name; latencies count from the schedule.

    Of a run that did not stream, the token latencies do not exist, since tokens arrive together.
    """
    ttft_ms = latencies_by_request_ms(requests, requests.first_token_ns, requests.scheduled_ns)
    e2e_ms = latencies_by_request_ms(requests, requests.last_token_ns, requests.scheduled_ns)
    found: dict[str, Callable[[], Measured]] = {
        "p50_e2e": lambda: percentile(e2e_ms, 0.50),
        "p99_e2e": lambda: percentile(e2e_ms, 0.99),
        "request_throughput": lambda: _throughput(requests, tokens=False),
        "output_token_throughput": lambda: _throughput(requests, tokens=True),
        "failed_share": lambda: _failed_share(e2e_ms),
    }
    if streaming:
        found["p50_ttft"] = lambda: percentile(ttft_ms, 0.50)
        found["p99_ttft"] = lambda: percentile(ttft_ms, 0.99)
        found["mean_tpot"] = lambda: _mean(time_per_output_token_by_request_ms(requests))
    return {measure.name: found[measure.name]() for measure in MEASURES if measure.name in found}


def percentile(values: FloatArray, q: float) -> Measured:
    """The nearest-rank q-quantile of ``values``, shape [requests]: NaN has no value, a failed request is infinite.

    A request contributes (q − [value ≤ quantile]) / density, on the scale of logarithms; the density is that between the
    order statistics one standard error to either side (Woodruff 1952).
    """
    return percentiles(values, [q])[0]


def percentiles(values: FloatArray, quantiles: Sequence[float]) -> list[Measured]:
    """As ``percentile``, of several quantiles with one sort."""
    known = ~np.isnan(values)
    ordered = np.sort(values[known])
    return [_percentile(values, known, ordered, q) for q in quantiles]


def _percentile(values: FloatArray, known: NDArray[np.bool_], ordered: FloatArray, q: float) -> Measured:
    n = ordered.size
    if n < max(FEWEST_VALUES, required_samples(q) if q > 0.5 else 0):
        return _unknown(values, "n too small", _quantile_or_none(ordered, q))
    quantile = nearest_rank(ordered, q)
    half = min(_Z * math.sqrt(q * (1.0 - q) / n), q, 1.0 - q)
    low, high = nearest_rank(ordered, q - half), nearest_rank(ordered, min(q + half, 1.0 - 0.5 / n))
    if not math.isfinite(high):
        return _unknown(values, "reaches into the failed requests", _finite(quantile))
    if low <= 0:
        return _unknown(values, "some values are 0", quantile)
    slope = math.log(high / low) / (2.0 * half)
    contributions = np.where(known, (q - (values <= quantile)) * slope * (values.size / n), 0.0)
    return Measured(quantile, contributions, fewest_effective=fewest_for_limits(q) if q > 0.5 else FEWEST_INDEPENDENT)


def _mean(values: FloatArray) -> Measured:
    known = np.isfinite(values)
    n = int(known.sum())
    if n < FEWEST_VALUES:
        return _unknown(values, "n too small", float(values[known].mean()) if n else None)
    mean = float(values[known].mean())
    return Measured(mean, np.where(known, (values - mean) / mean * (values.size / n), 0.0))


def _throughput(requests: Requests, *, tokens: bool) -> Measured:
    nothing = np.zeros(BINS)
    events = (output_tokens(requests) if tokens else completions(requests)) if requests.done.any() else None
    if events is None:
        return _unknown(nothing, "no token counts" if tokens and requests.done.any() else "no request succeeded", None)
    start_ns, end_ns = float(requests.scheduled_ns.min()), float(requests.done_ns[requests.done].max())
    per_bin = events.per_bin(start_ns, end_ns, BINS)
    value = float(per_bin.sum()) / (end_ns - start_ns) * 1e9
    if int(requests.done.sum()) < FEWEST_VALUES:
        return _unknown(nothing, "n too small", value)
    return Measured(value, per_bin / per_bin.mean() - 1.0)


def _failed_share(e2e_ms: FloatArray) -> Measured:
    failed = np.isinf(e2e_ms).astype(np.float64)
    known = ~np.isnan(e2e_ms)
    if not known.any():
        return _unknown(e2e_ms, "no request ended", None)
    share = float(failed[known].mean())
    return Measured(share, np.where(known, (failed - share) * (e2e_ms.size / known.sum()), 0.0))


def _unknown(values: NDArray[np.float64], reason: str, value: float | None) -> Measured:
    return Measured(value, np.zeros(values.size), reason)


def _quantile_or_none(ordered: FloatArray, q: float) -> float | None:
    return _finite(nearest_rank(ordered, q)) if ordered.size else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
