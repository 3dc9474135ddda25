"""Limits of a search for capacity: those on a share of the requests, which each request exceeds or does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.capacity.probe import Violations
from reports.capacity.violations import stalled, violations
from reports.criteria import Requirement, parse_limit
from reports.gates.samples import failure_sample, latency_sample_of_all, severity_sample
from reports.gates.shares import ShareOfRun
from reports.metrics.catalogue import ATTAINMENT, E2E, FAILED_SHARE, TPOT, TTFT
from reports.metrics.failures import SLOWEST_MS
from reports.metrics.goodput import Objective
from reports.metrics.in_flight import QueueGrowth
from reports.metrics.requests import Requests
from reports.statistics.exceedances import MARKOV

_MOST_HOPELESS = 0.5  # of the requests
_DIGITS = 12  # of a share: those that the binary error of a difference leaves


@dataclass(frozen=True, slots=True)
class Limit:
    """At most the ``allowed`` share of the requests, 0 < allowed < 1, may be beyond what the ``requirement`` says; of
    attainment those that miss one of the ``objectives``.
    """

    requirement: Requirement
    objectives: tuple[Objective, ...] = ()

    @property
    def allowed(self) -> float:
        limit = self.requirement.limit
        if self.requirement.metric is FAILED_SHARE:
            return limit
        return round(1.0 - (limit if self.requirement.q is None else self.requirement.q), _DIGITS)

    @property
    def latencies_ms(self) -> tuple[float, ...]:
        """The limits of single latencies, in ms; none of a limit on failures."""
        if self.requirement.metric is ATTAINMENT:
            return tuple(objective.limit_ms for objective in self.objectives)
        return () if self.requirement.metric is FAILED_SHARE else (self.requirement.limit,)

    @property
    def streamed_text(self) -> str | None:
        """What of it unstreamed answers do not have, as it is written; None of a limit that they have."""
        criteria = self.objectives if self.requirement.metric is ATTAINMENT else (self.requirement,)
        return next((str(criterion) for criterion in criteria if criterion.metric.streamed_only), None)

    def queue(self, load: float) -> float | None:
        """The requests in the system at which those that arrive at ``load``, in requests/s, are surely beyond the limit, by
        Little's law; None of a limit on anything but TTFT or E2E latency.
        """
        is_wait = self.requirement.metric in (TTFT, E2E)
        return load * self.requirement.limit / 1e3 if is_wait else None

    def violations(self, requests: Requests, growth: QueueGrowth | None) -> Violations:
        """Violations by a run's ``requests``, whose queue shows this ``growth``. One that was cut off before it is known if
        it is beyond the limit is not counted.
        """
        sample, limit = self._sample(requests, growth)
        known = (sample.least == sample.most) | (sample.least > limit)
        groups = None if sample.groups is None else sample.groups[known]
        return violations(sample.least[known], limit, self.allowed, groups)

    def stalled(self, requests: Requests) -> bool:
        """Whether the target ``stalled`` for longer than the limit; false of a limit on anything but TTFT or E2E latency. A
        request that ended without a token waited until then.
        """
        metric = self.requirement.metric
        if metric not in (TTFT, E2E):
            return False
        first_ns = requests.first_token_ns
        answered_ns = np.where(np.isnan(first_ns), requests.done_ns, first_ns) if metric is TTFT else requests.done_ns
        known = ~np.isnan(answered_ns) & ~np.isnan(requests.scheduled_ns)
        return stalled(requests.scheduled_ns[known], answered_ns[known], self.requirement.limit)

    def reach(self, requests: Requests) -> float | None:
        """The value that the allowed share of the ``requests`` is beyond, over the limit: above 1 where it is exceeded. None of
        no requests, and of a limit on failures.
        """
        if not self.latencies_ms:
            return None
        sample, limit = self._sample(requests, None)
        if not sample.least.size:
            return None
        return float(np.quantile(sample.least, 1.0 - self.allowed, method="higher")) / limit

    def _sample(self, requests: Requests, growth: QueueGrowth | None) -> tuple[ShareOfRun, float]:
        """The values, and the limit that they are beyond."""
        metric = self.requirement.metric
        if metric is FAILED_SHARE:
            return failure_sample(requests, growth), SLOWEST_MS
        if metric is ATTAINMENT:
            return severity_sample(requests, self.objectives), 1.0
        return latency_sample_of_all(metric, requests), self.requirement.limit


@dataclass(frozen=True, slots=True)
class LimitSet:
    """Limits that hold together; ``name`` is None where there is one set alone."""

    name: str | None
    limits: tuple[Limit, ...]

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """What a request has to meet to be a good one: the limits on latencies, and the objectives of attainment."""
        own = [objective for limit in self.limits for objective in limit.objectives]
        of_run = [
            Objective(limit.requirement.metric, limit.requirement.limit)
            for limit in self.limits
            if limit.requirement.metric.is_objective
        ]
        return tuple(dict.fromkeys([*own, *of_run]))


def limit_set(name: str | None, texts: Sequence[str]) -> LimitSet:
    """The set of limits that ``texts`` name in the grammar of --slo. Raises ValueError, for the command line."""
    criteria = [(text, parse_limit(text)) for text in texts]
    objectives = tuple(criterion for _, criterion in criteria if isinstance(criterion, Objective))
    requirements = [(text, criterion) for text, criterion in criteria if isinstance(criterion, Requirement)]
    attained = any(requirement.metric is ATTAINMENT for _, requirement in requirements)
    for text, requirement in requirements:
        _check(text, requirement)
        if requirement.metric is ATTAINMENT and not objectives:
            raise ValueError(f"{text!r}: attainment needs what each request has to meet, for example 'ttft<=200ms' beside it")
    if objectives and not attained:
        first = objectives[0]
        raise ValueError(
            f"'{first}' is an objective of each request: say how many have to meet it, for example 'attainment>=99%', or "
            f"write 'p99_{first}'"
        )
    return LimitSet(name, _limits([requirement for _, requirement in requirements], objectives))


def share_limits(requirements: Sequence[Requirement], objectives: tuple[Objective, ...]) -> tuple[Limit, ...]:
    """The ``requirements`` of runs as limits; none where one of them is no limit on a share of the requests."""
    try:
        for requirement in requirements:
            _check(str(requirement), requirement)
    except ValueError:
        return ()
    return _limits(requirements, objectives)


def _limits(requirements: Sequence[Requirement], objectives: tuple[Objective, ...]) -> tuple[Limit, ...]:
    """Each limit once; the objectives belong to attainment."""
    own = (Limit(requirement, objectives if requirement.metric is ATTAINMENT else ()) for requirement in requirements)
    return tuple(dict.fromkeys(own))


def _check(text: str, requirement: Requirement) -> None:
    """Raises ValueError for a requirement that is no upper limit of a share of the requests."""
    metric, limit = requirement.metric, requirement.limit
    if metric is ATTAINMENT:
        if requirement.at_most:
            raise ValueError(f"{text!r}: attainment falls as the load rises, so its limit is a lower one: attainment>=99%")
        if not 0.0 < limit < 1.0:
            raise ValueError(
                f"{text!r}: no number of requests shows that; write a share between 0% and 100%, as attainment>=99%"
            )
        return
    if metric is FAILED_SHARE:
        if not requirement.at_most:
            raise ValueError(f"{text!r}: failures grow as the load rises, so their limit is an upper one: failed_share<=0.1%")
        if not 0.0 < limit < 1.0:
            raise ValueError(
                f"{text!r}: no number of requests shows that; write a share between 0% and 100%, as failed_share<=0.1%"
            )
        return
    if metric.unit != "ms":
        raise ValueError(
            f"{text!r}: capacity is searched by what each request meets or not, and {metric.name} is a number of the run; "
            "write a limit such as p99_ttft<=500ms, or attainment>=99% with ttft<=500ms"
        )
    if requirement.q is None:
        raise ValueError(
            f"{text!r}: capacity is searched by what each request meets or not, and a mean is no such limit; write "
            f"p99_{metric.name}<=…ms, or p50_{metric.name}<=…ms"
        )
    if not requirement.at_most:
        raise ValueError(f"{text!r}: latency grows with the load, so its limit is an upper one: {requirement.name}<=…ms")


def every_limit(sets: Sequence[LimitSet]) -> tuple[Limit, ...]:
    """The limits of all sets, each once, in their order."""
    return tuple(dict.fromkeys(limit for each in sets for limit in each.limits))


def hopeless(sets: Sequence[LimitSet]) -> str | None:
    """The criterion of --stop_if that ends a probe whose load is too high for every set: 20 times as many of its requests are
    beyond a limit as may be, which happens by chance in at most 5 % of runs (Markov). None where no latency is limited in each
    set, or that many would be most requests.
    """
    for metric in (TTFT, E2E, TPOT):
        limits = [[limit for limit in each.limits if limit.requirement.metric is metric] for each in sets]
        if not all(limits):
            continue
        loosest = max((limit.requirement.limit for own in limits for limit in own), default=0.0)
        share = MARKOV * max(limit.allowed for own in limits for limit in own)
        if share <= _MOST_HOPELESS:
            return f"p{100.0 * (1.0 - share):g}_{metric.name}>{loosest:.15g}ms"
    return None
