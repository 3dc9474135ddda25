"""Limits on a share of the requests, judged on a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click
import numpy as np

from bench_records.search import PlannedTier
from reports.capacity.limits import Limit, limit_set
from reports.metrics.catalogue import ATTAINMENT, FAILED_SHARE, TPOT
from reports.statistics.percentiles import nearest_rank
from simulator.answers import Answers
from simulator.arrays import BoolArray, FloatArray, IntArray
from simulator.figures import LatencyFactors
from simulator.latencies import LATENCIES, Latencies

_AS_SIMULATED = dict.fromkeys(LATENCIES, 1.0)


@dataclass(frozen=True)
class SimulatedLimits:
    """Limits that hold together; ``name`` is None where there is one set alone."""

    name: str | None
    limits: tuple[Limit, ...]

    def reached(self, due_s: FloatArray, answers: Answers, factors: LatencyFactors) -> tuple[float, ...]:
        """For each limit the value that the allowed share of the requests is beyond, over the limit: above 1 where it does not
        hold. ``due_s`` is when each request was due; latencies are longer by ``factors``.
        """
        was_sent = answers.replicas >= 0
        times = (due_s[was_sent], answers.first_s[was_sent], answers.last_s[was_sent])
        latencies = Latencies.of_times(*times, answers.output_tokens[was_sent])
        return tuple(_reached(limit, latencies, factors) for limit in self.limits)

    def beyond(self, latencies: Latencies) -> tuple[BoolArray, ...]:
        """Which requests are beyond each limit, shape [requests] each; one without the latency is not."""
        return tuple(_worst(limit, latencies, _AS_SIMULATED) > 1.0 for limit in self.limits)

    def shares(self, latencies: Latencies, chosen: BoolArray) -> FloatArray:
        """The share of the ``chosen`` requests, shape [requests], beyond each limit, shape [limits]: of those that have the
        latency, as in a measured run; 0 where none has it.
        """
        return np.array([_share(_worst(limit, latencies, _AS_SIMULATED)[chosen]) for limit in self.limits])


def simulated_limits(tier: PlannedTier) -> SimulatedLimits:
    """The limits of a set. Raises UsageError for one that a simulation does not show."""
    limits = limit_set(tier.name, (*tier.limits, *tier.objectives)).limits
    for limit in limits:
        names = {objective.metric.name for objective in limit.objectives} or {limit.requirement.metric.name}
        if limit.requirement.metric is FAILED_SHARE:
            raise click.UsageError(f"--slo {limit.requirement}: no request fails in a simulation; limit latencies")
        if not names <= set(LATENCIES):
            raise click.UsageError(f"--slo {limit.requirement}: a simulation is judged by {', '.join(LATENCIES)}")
    return SimulatedLimits(tier.name, limits)


def check_shown(sets: Sequence[SimulatedLimits], output_tokens: IntArray) -> None:
    """Raises UsageError for a limit on TPOT where no answer has the two tokens that one takes; ``output_tokens`` are those of
    each, shape [requests].
    """
    if output_tokens.max(initial=0) >= 2:
        return
    for limit in (limit for each in sets for limit in each.limits if limit.requirement.metric is TPOT):
        raise click.UsageError(f"--slo {limit.requirement}: no answer of this workload has two tokens, so none has a TPOT")


def _share(worst: FloatArray) -> float:
    counted = np.count_nonzero(~np.isnan(worst))
    return np.count_nonzero(worst > 1.0) / counted if counted else 0.0


def _reached(limit: Limit, latencies: Latencies, factors: LatencyFactors) -> float:
    worst = _worst(limit, latencies, factors)
    worst = np.sort(worst[~np.isnan(worst)])
    return nearest_rank(worst, 1.0 - limit.allowed) if worst.size else 0.0


def _worst(limit: Limit, latencies: Latencies, factors: LatencyFactors) -> FloatArray:
    """How far each request is from the limit, NaN where it has no such latency; or from the worst of its objectives, of which
    one of TPOT says nothing about an answer of one token.
    """
    if limit.requirement.metric is not ATTAINMENT:
        return _over(limit.requirement.metric.name, limit.requirement.limit, latencies, factors)
    shares = [_over(each.metric.name, each.limit_ms, latencies, factors) for each in limit.objectives]
    worst: FloatArray = np.nan_to_num(np.fmax.reduce(shares))
    return worst


def _over(metric: str, limit_ms: float, latencies: Latencies, factors: LatencyFactors) -> FloatArray:
    """Each request's latency over the limit; NaN where it has none."""
    values: FloatArray = getattr(latencies, metric) * factors[metric] / limit_ms
    return values
