"""Whether a target keeps up with a load, by how its queue moved in each of several probes.

At a target exactly at its capacity growth and spread of the queue (reports/metrics/in_flight.py) have one distribution each,
whatever the target: by simulation gamma distributions that are shifted, also for the mean of several probes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.metrics.in_flight import QueueCourse
from reports.statistics.probability import gamma_quantile

_LIKELY = 0.7  # a mean spread: at 94 % of capacity it is below 0.4 in probes of 6,000 requests
_FEWEST_LIKELY = 3
_LEAST_LEVEL = 0.3  # standard deviations: a smaller one would count a single probe for more than ten


@dataclass(frozen=True, slots=True)
class _AtCapacity:
    """The distribution of a statistic of a probe at capacity: ``shift`` + ``scale`` · a gamma variable of this ``shape``."""

    shape: float
    scale: float
    shift: float

    def mean_of(self, probes: int, q: float) -> float:
        """The ``q`` quantile of the mean of this many probes."""
        return self.shift + self.scale * gamma_quantile(q, self.shape * probes) / probes


# By 20,000 paths of 3,000 steps: means 0.56 and 0.93, deviations 0.51 and 0.46, skewness 1.0 and 1.15.
_GROWTH = _AtCapacity(shape=3.98, scale=0.254, shift=-0.45)
_SPREAD = _AtCapacity(shape=3.0, scale=0.2645, shift=0.141)


def keeps_up(queues: Sequence[QueueCourse], tail: float) -> bool:
    """Whether so steady queues have at most the probability ``tail`` at a load of capacity or more; false without a probe."""
    return bool(queues) and float(np.mean([queue.spread for queue in queues])) <= _SPREAD.mean_of(len(queues), tail)


def falls_behind(queues: Sequence[QueueCourse], tail: float) -> bool:
    """Whether so much growth has at most the probability ``tail`` at a load of capacity or less; false without a probe."""
    return bool(queues) and float(np.mean([queue.growth for queue in queues])) >= _GROWTH.mean_of(len(queues), 1.0 - tail)


def none_at_capacity(queue: float | None, course: QueueCourse | None) -> float:
    """At least the probability that the number in the system stays below ``queue`` for a probe of this course, from an empty
    target on, at a load of capacity or more; 1 where one of them is unknown.

    It is that of the maximum of a reflected Brownian motion (Feller, *Introduction to Probability Theory* II, X.5): the first
    term of its series, which is larger than the sum.
    """
    if queue is None or course is None:
        return 1.0
    level = max(queue / course.deviation, _LEAST_LEVEL)
    return min(1.0, 4.0 / math.pi * math.exp(-(math.pi**2) / (8.0 * level * level)))


def likely_falls_behind(queues: Sequence[QueueCourse]) -> bool:
    """Whether queues are nearer to those at capacity than to those well below it; false of fewer than three probes."""
    return len(queues) >= _FEWEST_LIKELY and float(np.mean([queue.spread for queue in queues])) >= _LIKELY
