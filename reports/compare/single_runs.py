"""The error of a difference from within one run each: from the requests' contributions, or their pairs.

A schedule's lengths explain much of the variance of latencies. They were drawn before any server answered, so the part of a
difference that they explain is taken off it, and out of its error: control variates (Lavenberg and Welch 1981), with
coefficients from both runs. Only lengths that were requested serve: those of answers may be what changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.compare.measures import Measured
from reports.compare.spread import Evidence, QuantileSpread, Spread, common_threshold
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import (
    FEWEST_INDEPENDENT,
    Mean,
    mean_cluster_size,
    mean_of,
)
from reports.statistics.estimate import Cause, Correlated, FewClusters, Reason

FEWEST_CLUSTERS = 5  # of requests above a quantile, in each run
FEWEST_CROSSINGS = 20  # paired requests that exceed a quantile in one run alone
FEWEST_CROSSING_CLUSTERS = 10.0
_MIDDLE = (0.05, 0.95)  # quantiles to which the latencies of a pair are limited before they are subtracted
_VALUES_A_DEGREE = 6.0  # independent ones, of freedom of an error; chosen by benchmarks/compare_honesty.py near capacity
_FARTHEST_MEANS = 4.0  # standard errors between the runs' mean lengths, or gaps, beyond which they have other workloads
_LEAST_APART = 0.01  # of the mean gaps of two loads that differ


@dataclass(frozen=True, eq=False)
class _Explained:
    """Two series without what lengths explain of their variance, and how much lengths explain of the difference of means."""

    a: FloatArray
    b: FloatArray
    expected: float


def within_runs(a: Measured, b: Measured, estimate: float) -> Spread | Reason:
    """The spread of a difference from the contributions of one run each (Welch 1947), or the reason why it is unknown.

    The rate of an open loop is that of its arrivals, and latencies follow from it. Where two schedules differ by more than
    independent gaps do by chance, so do all numbers, whatever the server.
    """
    if _sent_unlike(a.gap, b.gap):
        return Cause.SENT_UNLIKE
    of_a, of_b = (run.sample if run.sample_of_run is None else run.sample_of_run for run in (a, b))
    explained = _explained(of_a, of_b, a.covariates, b.covariates)
    means = [mean_of(series) for series in (explained.a, explained.b)]
    problem = next((why for mean in means if (why := _why_not(mean)) is not None), None)
    if problem is not None:
        return problem
    parts = [(mean.standard_error**2, _degrees(mean)) for mean in means]
    parts += [(run.other_error**2, max(1.0, run.other_independent / _VALUES_A_DEGREE)) for run in (a, b) if run.other_error]
    variance, freedom = _welch(parts)
    return Spread(estimate - explained.expected, math.sqrt(variance), freedom, Evidence.REQUESTS)


def within_pairs(a: Measured, b: Measured, estimate: float) -> Spread | Reason:
    """As ``within_runs``, of contributions paired by request."""
    difference = mean_of(_residuals(b.sample - a.sample, a.covariates))
    if difference.long_run.drifts:
        return Cause.DRIFTS
    problem = next((why for run in (a, b) if (why := _too_few(mean_of(run.sample))) is not None), None)
    if problem is not None:
        return problem
    error = math.hypot(difference.standard_error, a.paired_error, b.paired_error)
    degrees = min(difference.long_run.degrees, *(_degrees(mean_of(run.sample)) for run in (a, b)))
    return Spread(estimate, error, degrees, Evidence.REQUEST_PAIRS)


def quantiles_within_runs(q: float, a: Measured, b: Measured) -> QuantileSpread | Reason:
    """The spread of the difference of two runs' ``q``-quantiles, or the reason why it is unknown.

    Its error is the larger one of the shares above the common threshold, which a test of equality needs, and above the runs'
    own quantiles, which an interval needs where the runs are far apart. Schedules of other rates as in ``within_runs``. Where
    the runs' own quantiles are equal, other shares above the common one show a difference elsewhere.
    """
    if _sent_unlike(a.gap, b.gap):
        return Cause.SENT_UNLIKE
    threshold = _threshold_between(q, a, b)
    own, common = _above(a, b, float(a.value or 0.0), float(b.value or 0.0)), _above(a, b, threshold, threshold)
    means = [mean_of(series) for series in (own.a, own.b)]
    problem = next((why for mean in means if (why := _too_few_clusters(mean, q)) is not None), None)
    if problem is not None:
        return problem
    at_common = [mean_of(series) for series in (common.a, common.b)]
    excess = common.expected if a.value == b.value else at_common[1].value - at_common[0].value
    variance, freedom = max(
        _welch([(mean.standard_error**2, _degrees(mean)) for mean in of_shares]) for of_shares in (means, at_common)
    )
    return _quantile_spread(q, a, b, excess, common.expected, math.sqrt(variance), freedom, Evidence.REQUESTS)


def quantiles_within_pairs(q: float, a: Measured, b: Measured) -> QuantileSpread | Reason | None:
    """The same of paired requests; None where too few of them exceed the quantile in one run alone to know their spread.

    The error is that of equal servers, whose pairs cross in either direction alike (McNemar 1947): pairs that all cross in one
    show no spread, however few of them are independent. One run that is slower for a long time crosses in one direction then,
    in the few pairs that lie near the threshold, so the error knows how long the sign of the pairs' differences lasts: of a
    share p of correlated values, chosen independently, the correlation between two is p times theirs.
    """
    known = ~np.isnan(a.sample) & ~np.isnan(b.sample)
    threshold = _threshold_between(q, a, b)
    crossed = (b.sample[known] > threshold).astype(np.float64) - (a.sample[known] > threshold)
    crossings = int(np.count_nonzero(crossed))
    if crossings < FEWEST_CROSSINGS:
        return None
    unexplained = _residuals(crossed, _chosen(a.covariates, known))
    mean = mean_of(unexplained)
    if crossings / mean_cluster_size(mean.long_run.effect) < FEWEST_CROSSING_CLUSTERS:
        return None
    if mean.long_run.drifts:
        return Cause.DRIFTS
    apart = mean_of(_apart(a, b, known))
    thinned_effect = 1.0 + crossings / mean.n * (apart.long_run.allowed_effect - 1.0)
    effect = max(mean.long_run.allowed_effect, thinned_effect)
    error = math.sqrt(float(np.square(unexplained).mean()) * effect / mean.n)
    degrees = min(_degrees(mean), _degrees(apart))
    excess = 0.0 if a.value == b.value else float(crossed.mean())
    return _quantile_spread(q, a, b, excess, 0.0, error, degrees, Evidence.REQUEST_PAIRS)


def _threshold_between(q: float, a: Measured, b: Measured) -> float:
    """The ``q``-quantile of both runs together; just below it where it is the higher one of the runs' own quantiles and several
    values are equal to it, as to a constant latency: neither run may have any above it, however far apart they are.

    So at least 1 − q of the values of the run with the higher quantile are above, and at most that of the other's.
    """
    threshold = common_threshold(a.ordered, b.ordered, q)
    is_higher = a.value != b.value and threshold == max(a.value or 0.0, b.value or 0.0)
    if is_higher and sum(_count_of(threshold, run.ordered) for run in (a, b)) > 1:
        return math.nextafter(threshold, -math.inf)
    return threshold


def _count_of(value: float, ordered: FloatArray) -> int:
    return int(np.searchsorted(ordered, value, "right") - np.searchsorted(ordered, value, "left"))


def _apart(a: Measured, b: Measured, known: NDArray[np.bool_]) -> FloatArray:
    """The logarithms of B's latencies less A's, of ``known`` pairs, without what lengths explain and without the tails."""
    together = np.concatenate([a.ordered, b.ordered])
    low, high = np.log(np.quantile(together[np.isfinite(together)], _MIDDLE))
    apart = np.clip(np.log(b.sample[known]), low, high) - np.clip(np.log(a.sample[known]), low, high)
    return _residuals(apart, _chosen(a.covariates, known))


def _quantile_spread(
    q: float, a: Measured, b: Measured, excess: float, expected: float, error: float, freedom: float, evidence: Evidence
) -> QuantileSpread:
    return QuantileSpread(q, np.log(a.ordered), np.log(b.ordered), excess, expected, error, freedom, evidence)


def _explained(a: FloatArray, b: FloatArray, za: FloatArray | None, zb: FloatArray | None) -> _Explained:
    """Take what the covariates ``za`` and ``zb``, shape [values, covariates], explain off two series, shape [values] each."""
    if za is None or zb is None or za.shape[1] == 0 or za.shape[1] != zb.shape[1]:
        return _Explained(a, b, 0.0)
    centred_a, centred_b = za - za.mean(axis=0), zb - zb.mean(axis=0)
    apart = zb.mean(axis=0) - za.mean(axis=0)
    error = np.sqrt(za.var(axis=0) / len(za) + zb.var(axis=0) / len(zb))
    if (np.abs(apart) > _FARTHEST_MEANS * error).any():
        return _Explained(a, b, 0.0)
    slopes = _slopes(centred_a.T @ centred_a + centred_b.T @ centred_b, centred_a.T @ a + centred_b.T @ b)
    return _Explained(a - centred_a @ slopes, b - centred_b @ slopes, float(apart @ slopes))


def _sent_unlike(a: tuple[float, float] | None, b: tuple[float, float] | None) -> bool:
    if a is None or b is None:
        return False
    return abs(b[0] - a[0]) > max(_LEAST_APART, _FARTHEST_MEANS * math.hypot(a[1], b[1]))


def _residuals(values: FloatArray, covariates: FloatArray | None) -> FloatArray:
    if covariates is None or covariates.shape[1] == 0:
        return values
    centred = covariates - covariates.mean(axis=0)
    residuals: FloatArray = values - centred @ _slopes(centred.T @ centred, centred.T @ values)
    return residuals


def _slopes(products: FloatArray, with_values: FloatArray) -> FloatArray:
    """The least-squares slopes by the normal equations, which need no decomposition of all requests; the smallest ones where
    covariates determine each other.
    """
    slopes: FloatArray = np.linalg.lstsq(products, with_values, rcond=1e-10)[0]
    return slopes


def _above(a: Measured, b: Measured, a_threshold: float, b_threshold: float) -> _Explained:
    """Which known values of each run exceed a threshold, as 0 and 1, without what lengths explain of it."""
    known_a, known_b = ~np.isnan(a.sample), ~np.isnan(b.sample)
    return _explained(
        (a.sample[known_a] > a_threshold).astype(np.float64),
        (b.sample[known_b] > b_threshold).astype(np.float64),
        _chosen(a.covariates, known_a),
        _chosen(b.covariates, known_b),
    )


def _chosen(covariates: FloatArray | None, rows: NDArray[np.bool_]) -> FloatArray | None:
    return None if covariates is None else covariates[rows]


def _welch(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The sum of independent variances, and its degrees of freedom (Welch 1947); ``parts`` are each a variance and its own."""
    total = sum(variance for variance, _ in parts)
    if not total:
        return 0.0, sum(degrees for _, degrees in parts)
    return total, total**2 / sum(variance**2 / degrees for variance, degrees in parts)


def _degrees(mean: Mean) -> float:
    """The degrees of freedom of a mean's error: the fewer independent values, the less is known of their spread."""
    return max(1.0, min(mean.long_run.degrees, _effective(mean) / _VALUES_A_DEGREE))


def _effective(mean: Mean) -> float:
    """The effective sample size (Kish's design effect)."""
    return mean.n / max(1.0, mean.long_run.effect)


def _why_not(mean: Mean) -> Reason | None:
    return mean.no_interval_reason or _too_few(mean)


def _too_few(mean: Mean) -> Reason | None:
    """The reason where the effective sample size is too small, else None."""
    effective = _effective(mean)
    if effective >= FEWEST_INDEPENDENT:
        return None
    requests = _would_do(mean.n, FEWEST_INDEPENDENT / max(effective, 1.0))
    return Correlated(math.floor(effective), FEWEST_INDEPENDENT, requests)


def _too_few_clusters(above: Mean, q: float) -> Reason | None:
    """The reason where the values above a ``q``-quantile, or below it, come in too few clusters, else None.

    Clusters are independent, not the values (Leadbetter 1983).
    """
    if above.long_run.drifts:
        return Cause.DRIFTS
    clusters = above.n * min(q, 1.0 - q) / mean_cluster_size(above.long_run.effect)
    if clusters >= FEWEST_CLUSTERS:
        return None
    requests = _would_do(above.n, FEWEST_CLUSTERS / max(clusters, 0.5))
    return FewClusters(math.floor(clusters), FEWEST_CLUSTERS, requests)


def _would_do(n: int, factor: float) -> int:
    """The number of requests that would do, ``factor`` times ``n`` to two digits; at least 30."""
    unit = 10.0 ** (math.floor(math.log10(n * factor)) - 1)
    return round(math.ceil(round(n * factor / unit, 6)) * unit)
