"""Numbers of one run, which may not have them, and of several runs of one configuration."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reports.statistics.arrays import shifted_mean, shifted_variance
from reports.statistics.estimate import UNKNOWN, Cause, Estimate
from reports.statistics.percentiles import CONFIDENCE, Distribution
from reports.statistics.probability import student_quantile


def of_percentile(distribution: Distribution | None, q: float) -> Estimate:
    """A percentile of one run's values."""
    return UNKNOWN if distribution is None else distribution.percentile(q)


def over_runs(runs: Sequence[Estimate]) -> Estimate:
    """The mean over runs of one configuration: with several, Student's interval of their values; at least one run.

    Such an interval also holds what differs from start to start. Nothing that is counted or timed lies below 0.
    """
    if len(runs) == 1:
        return runs[0]
    values = [run.value for run in runs if run.value is not None]
    if len(values) < len(runs):
        return Estimate(None, reason=next(run.reason for run in runs if run.value is None) or UNKNOWN.reason)
    mean, variance = shifted_mean(np.array(values)), shifted_variance(np.array(values))
    if variance == 0:
        return Estimate(mean, reason=Cause.NO_SPREAD)
    half = student_quantile((1.0 + CONFIDENCE) / 2.0, len(values) - 1) * math.sqrt(variance / len(values))
    return Estimate(mean, (max(0.0, mean - half), mean + half))
