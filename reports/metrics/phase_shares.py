"""What a percentile of a latency consists of: the phases of the requests around it, and the percentile without each phase."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reports.metrics.censoring import CensoredLatencies
from reports.metrics.metric import Anchored, MeasuredRun, Metric
from reports.metrics.request_phases import ClientClock, Phase, PhaseTimes, phase_times
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray, finite
from reports.statistics.autocorrelation import FEWEST_VALUES, Mean, mean_of, mean_over_groups
from reports.statistics.estimate import UNKNOWN, Cause, Estimate, Reason, TooFew
from reports.statistics.percentiles import CONFIDENCE, Distribution, nearest_rank, percentile_of
from reports.statistics.probability import student_quantile

FEWEST_AROUND = 20  # requests around a percentile
_HALF_BAND = 0.005  # of all requests, to either side
_TAIL = 0.9  # from here on too few requests are made up by the slowest
_FEWEST_SPELLS = 5
_ROUNDING = 1e-9
_NS_PER_MS, _NS_PER_S = 1e6, 1e9


@dataclass(frozen=True, slots=True)
class PhaseShare:
    """A phase of the requests around a percentile: its ``mean_ms``, and its ``share`` of their mean latency, 0 to 1.

    ``without`` is the percentile of all requests in ms, had this phase taken no time of any and all else been the same; its
    value is None where it falls among requests of which no latency is known. Where the percentile itself has a reason for no
    interval, ``without`` has none for the same reason.
    """

    phase: Phase
    mean_ms: Estimate
    share: Estimate
    without: Estimate

    @property
    def without_ms(self) -> float | None:
        return self.without.value


@dataclass(frozen=True, slots=True)
class PercentileParts:
    """The ``q``-quantile of a latency, and what the latency of the requests around it consists of.

    ``percentile`` is that of ``n`` requests, in ms; its value is None where it falls among those that failed, and where those
    that were cut off decide it: then it has a lower bound.
    ``around`` requests are those ranked half a percent of all to either side, at least FEWEST_AROUND; ``left_out`` of them have
    no latency. ``mean_ms`` is their mean latency: the sum of the ``shares``' means and of ``contradiction_ms``, which is at
    most 0, where the sources of ``contradicted`` of them contradict each other. The server timed ``timed`` of them; its
    stamps may be off by ``clock_error_ms`` to either side, None where they are not used.
    """

    q: float
    percentile: Estimate
    n: int
    around: int
    left_out: int
    mean_ms: float
    shares: tuple[PhaseShare, ...]
    contradiction_ms: float
    contradicted: int
    timed: int
    clock_error_ms: float | None

    @property
    def value_ms(self) -> float | None:
        return self.percentile.value

    @property
    def by_phase(self) -> dict[Phase, PhaseShare]:
        return {share.phase: share for share in self.shares}

    @property
    def largest(self) -> PhaseShare | None:
        """The phase with the largest share; None where that is time of which no source is known, or no phase took any."""
        took_time = [share for share in self.shares if share.mean_ms.value]
        found = max(took_time, key=lambda share: share.mean_ms.value or 0.0, default=None)
        return None if found is None or found.phase is Phase.UNATTRIBUTED else found


@dataclass(frozen=True, slots=True)
class RequestParts:
    """A request by its phases, in ms. ``index`` is its number in the schedule, ``due_s`` its due time, on the run's clock.
    ``head_ms`` is when the head of its answer came, from the due time on; None where that is unknown.
    """

    index: int
    due_s: float
    latency_ms: float
    phases_ms: Mapping[Phase, float]
    contradiction_ms: float
    head_ms: float | None


@dataclass(frozen=True, eq=False)
class LatencyParts:
    """A latency of a run by its phases. ``percentiles`` are in the requested order; ``ranking`` are the positions of the
    requests with this latency, the fastest first.
    """

    metric: Metric
    percentiles: tuple[PercentileParts, ...]
    times: PhaseTimes
    ranking: NDArray[np.int64]


def latency_parts(run: MeasuredRun, metric: Metric, clock: ClientClock, quantiles: Sequence[float]) -> LatencyParts | None:
    """The parts of a metric's percentiles, from the schedule; None where no request has the latency."""
    if metric.streamed_only and not run.streaming:
        return None
    latencies = metric.by_request(run.requests)
    ranking = _ranking(latencies)
    if not np.isfinite(latencies.slowest_ms[ranking]).any():
        return None
    times = phase_times(run.requests, metric, run.streaming, clock)
    ranked = _Ranked(run.requests, latencies.slowest_ms, latencies.values_ms, ranking, times)
    found = metric.latency_of(run)
    assert isinstance(found, Anchored)
    distribution = found.scheduled
    assert distribution is not None, "a request has it"
    return LatencyParts(metric, tuple(ranked.parts(q, distribution) for q in quantiles), ranked.times, ranking[: ranked.known])


def slowest_requests(requests: Requests, latency: LatencyParts, count: int) -> tuple[RequestParts, ...]:
    """The ``count`` slowest of the requests with a latency, by their phases; the slowest comes first."""
    return _by_phases(requests, latency.times, latency.ranking[::-1][:count])


def chosen_requests(requests: Requests, latency: LatencyParts, numbers: Sequence[int]) -> tuple[RequestParts, ...]:
    """The requests of these numbers in the schedule, by their phases, once each; those without this latency are left out."""
    place_of = {number: place for number in numbers for place in np.flatnonzero(requests.index == number).tolist()}
    places = place_of.values()
    return _by_phases(requests, latency.times, [place for place in places if not np.isnan(latency.times.latency_ns[place])])


def _by_phases(requests: Requests, times: PhaseTimes, places: NDArray[np.int64] | Sequence[int]) -> tuple[RequestParts, ...]:
    return tuple(
        RequestParts(
            index=int(requests.index[k]),
            due_s=float(requests.scheduled_ns[k]) / _NS_PER_S,
            latency_ms=float(times.latency_ns[k]) / _NS_PER_MS,
            phases_ms={phase: float(span_ns[k]) / _NS_PER_MS for phase, span_ns in times.by_phase.items()},
            contradiction_ms=float(times.contradiction_ns[k]) / _NS_PER_MS,
            head_ms=finite(float(requests.head_ns[k] - requests.scheduled_ns[k]) / _NS_PER_MS),
        )
        for k in places
    )


def _ranking(latencies: CensoredLatencies) -> NDArray[np.int64]:
    """The positions of the requests that count, the fastest first; those without a known latency are last."""
    slowest_ms = latencies.slowest_ms
    order: NDArray[np.int64] = np.argsort(slowest_ms, kind="stable")
    return order[: int(np.count_nonzero(~np.isnan(slowest_ms)))]  # NaN is sorted last


@dataclass(frozen=True, eq=False)
class _Ranked:
    """Requests by their latency: ``ranking`` are the positions of those that count, the fastest first. A request that
    was cut off has an infinite ``slowest_ms``, and what it had taken by then as ``least_ms``.
    """

    requests: Requests
    slowest_ms: FloatArray
    least_ms: FloatArray
    ranking: NDArray[np.int64]
    times: PhaseTimes

    @property
    def known(self) -> int:
        """How many of them have a latency."""
        return int(np.count_nonzero(np.isfinite(self.slowest_ms[self.ranking])))

    def parts(self, q: float, distribution: Distribution) -> PercentileParts:
        times, chosen = self.times, self.ranking[_ranks_around(q, self.ranking.size)]
        around = np.sort(chosen[np.isfinite(self.slowest_ms[chosen])])  # in the order in which they were due
        percentile = self._percentile(q, distribution)
        contradiction_ns = times.contradiction_ns[around]
        return PercentileParts(
            q=q,
            percentile=percentile,
            n=self.ranking.size,
            around=around.size,
            left_out=chosen.size - around.size,
            mean_ms=_mean(times.latency_ns[around]) / _NS_PER_MS,
            shares=tuple(self._share(phase, around, percentile, q) for phase in times.by_phase),
            contradiction_ms=_mean(contradiction_ns) / _NS_PER_MS,
            contradicted=int(np.count_nonzero(contradiction_ns < 0)),
            timed=int(np.count_nonzero(times.timed[around])),
            clock_error_ms=None if times.clock_error_ns is None else times.clock_error_ns / _NS_PER_MS,
        )

    def _percentile(self, q: float, distribution: Distribution) -> Estimate:
        """The percentile, with the interval that the reports have; a lower bound where requests that were cut off decide it."""
        most_ms = nearest_rank(self.slowest_ms[self.ranking], q)
        least_ms = nearest_rank(np.sort(self.least_ms[self.ranking]), q)
        if least_ms < most_ms:
            return Estimate(None, reason=Cause.CUT_OFF, lower_bound=least_ms)
        if not math.isfinite(most_ms):
            return Estimate(None)
        return replace(distribution.percentiles.get(q, Estimate(None)), value=most_ms)

    def _share(self, phase: Phase, around: NDArray[np.int64], percentile: Estimate, q: float) -> PhaseShare:
        requests, times = self.requests, self.times
        spells = _spells(requests.scheduled_ns[around], requests.done_ns[around])
        part_ns, latency_ns = times.by_phase[phase][around], times.latency_ns[around]
        share = _share_estimate(part_ns, latency_ns, spells)
        mean_ms = _mean_estimate(_mean(part_ns) / _NS_PER_MS, _mean(latency_ns) / _NS_PER_MS, share, percentile)
        return PhaseShare(phase, mean_ms, share, self._without(phase, percentile, q))

    def _without(self, phase: Phase, percentile: Estimate, q: float) -> Estimate:
        """The percentile if every request had been faster by its time in the phase, which is not more than its latency,
        whatever its source says; one without a latency stays the slowest.
        """
        if percentile.value is None:
            return percentile
        counted = ~np.isnan(self.slowest_ms)
        phase_ms = np.nan_to_num(self.times.by_phase[phase][counted]) / _NS_PER_MS
        if not phase_ms.any():
            return percentile
        return percentile_of(np.maximum(self.slowest_ms[counted] - phase_ms, 0.0), q, percentile.reason)


def _ranks_around(q: float, n: int) -> slice:
    """The ranks of half a percent of ``n`` requests to either side of the quantile; where these are too few, the slowest ones
    of a tail, or as many to either side.
    """
    start = math.floor((q - _HALF_BAND) * n + _ROUNDING)
    stop = math.ceil((q + _HALF_BAND) * n - _ROUNDING)
    if stop - start < FEWEST_AROUND:
        start = n if q >= _TAIL else round(q * n) - FEWEST_AROUND // 2
    start = max(0, min(start, n - FEWEST_AROUND))
    return slice(start, min(n, max(stop, start + FEWEST_AROUND)))


def _spells(due_ns: FloatArray, done_ns: FloatArray) -> NDArray[np.int64]:
    """The number of the spell of each request, shape [n], in the order in which they were due: one that was due before all
    earlier ones had ended waited in the same queue as they.
    """
    free_ns = np.maximum.accumulate(done_ns)[:-1]
    spells: NDArray[np.int64] = np.concatenate([[0], np.cumsum(due_ns[1:] > free_ns)])
    return spells


def _mean_estimate(mean_ms: float, whole_ms: float, share: Estimate, percentile: Estimate) -> Estimate:
    """The mean of a phase around a percentile, as its share of the latency there.

    The requests around a percentile are chosen by their latency, so that their own spread does not show how far the percentile
    lies from that of other runs: the interval combines the limits of the share with those of the percentile.
    """
    if not whole_ms:
        return UNKNOWN
    if share.interval is None or percentile.interval is None or not percentile.value:
        return Estimate(mean_ms, reason=share.reason or percentile.reason)
    value, scale = share.value or 0.0, mean_ms / percentile.value
    low, high = (
        math.hypot(whole_ms * (limit - value), scale * (of_percentile - percentile.value))
        for limit, of_percentile in zip(share.interval, percentile.interval, strict=True)
    )
    return Estimate(mean_ms, (max(0.0, mean_ms - low), mean_ms + high))


def _share_estimate(values: FloatArray, latencies: FloatArray, spells: NDArray[np.int64]) -> Estimate:
    """The ratio of two means, by the mean of its linearised values (Cochran, Sampling Techniques, 6.4)."""
    whole = _mean(latencies)
    if not whole:
        return Estimate(None, reason=Cause.NO_VALUE)
    share = _mean(values) / whole
    found, reason = _correlated_mean(share + (values - share * latencies) / whole, spells)
    if found is None or reason is not None:
        return Estimate(share, reason=reason)
    half = student_quantile((1.0 + CONFIDENCE) / 2.0, found.long_run.degrees) * found.standard_error
    return Estimate(share, (max(0.0, share - half), min(1.0, share + half)))


def _correlated_mean(values: FloatArray, spells: NDArray[np.int64]) -> tuple[Mean | None, Reason | None]:
    """The mean with its error, or the reason for none. Many values are a series of correlated neighbours, as everywhere in a
    report; of few, those of one spell are one cluster.
    """
    if values.size >= FEWEST_VALUES:
        found = mean_of(values)
        return found, found.no_interval_reason
    if values.size < _FEWEST_SPELLS:
        return None, TooFew(values.size, _FEWEST_SPELLS)
    if spells[-1] + 1 < _FEWEST_SPELLS:
        return None, Cause.FEW_QUEUES
    return mean_over_groups(values, spells), None


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if values.size else 0.0
