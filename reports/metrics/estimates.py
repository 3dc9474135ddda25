"""A number with its interval: of one run, or of several runs of one configuration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reports.metrics.output_events import Rate
from reports.render.tables import cell_text
from reports.statistics.autocorrelation import Interval
from reports.statistics.percentiles import CONFIDENCE, Distribution
from reports.statistics.probability import student_quantile

NO_VALUE = "no value"
_NO_SPREAD = "no spread"


@dataclass(frozen=True, slots=True)
class Estimate:
    """``value`` in its own unit, None where it is unknown, with its two-sided 95 % interval; where there is none, ``reason`` is
    why, and ``at_least`` the lower limit where that one is known.
    """

    value: float | None
    interval: Interval | None
    reason: str | None
    at_least: float | None = None

    @property
    def interval_text(self) -> str:
        """The interval, or the reason for having none, after the lower limit where there is one."""
        if self.interval is not None:
            return f"{cell_text(self.interval[0])} – {cell_text(self.interval[1])}"
        reason = self.reason or NO_VALUE
        return reason if self.at_least is None else f"≥ {cell_text(self.at_least)}; {reason}"


UNKNOWN = Estimate(None, None, NO_VALUE)


def of_mean(distribution: Distribution | None) -> Estimate:
    """The mean of one run's values."""
    if distribution is None:
        return UNKNOWN
    mean = distribution.mean
    return Estimate(mean.value, mean.interval, mean.reason, mean.at_least)


def of_percentile(distribution: Distribution | None, q: float) -> Estimate:
    """A percentile of one run's values."""
    if distribution is None:
        return UNKNOWN
    percentile = distribution.percentile(q)
    return Estimate(percentile.value, percentile.interval, percentile.reason, percentile.at_least)


def of_rate(rate: Rate | None) -> Estimate:
    """A rate of one run."""
    if rate is None or not math.isfinite(rate.value):
        return UNKNOWN
    return Estimate(rate.value, rate.interval, rate.reason)


def over_runs(runs: Sequence[Estimate]) -> Estimate:
    """The mean over runs of one configuration: with several, Student's interval of their values; at least one run.

    Such an interval also holds what differs from start to start. Nothing that is counted or timed lies below 0.
    """
    if len(runs) == 1:
        return runs[0]
    values = [run.value for run in runs if run.value is not None]
    if len(values) < len(runs):
        return Estimate(None, None, next(run.reason or NO_VALUE for run in runs if run.value is None))
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    if variance == 0:
        return Estimate(mean, None, _NO_SPREAD)
    half = student_quantile((1.0 + CONFIDENCE) / 2.0, len(values) - 1) * math.sqrt(variance / len(values))
    return Estimate(mean, (max(0.0, mean - half), mean + half), None)
