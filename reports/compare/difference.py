"""Whether two groups of runs differ in a measure, by how much, and what these runs could have shown.

With one run each, the error comes from within the runs: the mean of the requests' contributions, with a standard error that
allows for correlated neighbours (``reports/statistics/autocorrelation.py``). Where the schedules are equal, it is that
of the differences of paired requests. With several runs each, it comes from between the runs (Welch 1947; paired where they
were measured in turn), which includes the variation between starts; where each side repeats a schedule of its own, what one
schedule differs from another comes to it from within the runs. The p-values of all measures are adjusted together (Holm
1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeGuard

import numpy as np

from reports.compare.looks import FIRST_LOOK, Looks, weighted_holm
from reports.compare.measures import Measure, Measured
from reports.compare.single_runs import quantiles_within_pairs, quantiles_within_runs, within_pairs, within_runs
from reports.compare.spread import CONFIDENCE, Evidence, Interval, QuantileSpread, Spread
from reports.statistics.arrays import FloatArray, shifted_mean, shifted_variance
from reports.statistics.autocorrelation import mean_of
from reports.statistics.estimate import Cause, OtherSchedules, Reason

_LARGEST_LOGARITHM = 50.0  # avoids overflow; a larger share is meaningless
_ROUNDING = 1e-12  # of a share: 3/1000 − 2/1000 and 10/1000 − 9/1000 differ by less, and so do no counts of requests


class Verdict(StrEnum):
    """The result of B against A. With one run on each side, it is about these two starts of the servers, since the variation
    from one start to the next is unknown.
    """

    BETTER = "better"
    WORSE = "worse"
    STARTS_BETTER = "better between these starts"
    STARTS_WORSE = "worse between these starts"
    NONE = "no difference shown"
    UNKNOWN = "cannot be told"

    @property
    def is_better(self) -> bool:
        return self in (Verdict.BETTER, Verdict.STARTS_BETTER)

    @property
    def is_worse(self) -> bool:
        return self in (Verdict.WORSE, Verdict.STARTS_WORSE)

    @property
    def differs(self) -> bool:
        return self.is_better or self.is_worse


@dataclass(frozen=True, slots=True)
class Difference:
    """One line of a comparison. ``a`` and ``b`` are in the measure's unit (of several runs: their geometric mean).

    ``change``, ``interval`` (95 %, of this measure alone) and ``smallest_shown`` (at the family's first step) are shares
    of A for a relative measure (0.05 is +5 %), else differences in the unit. ``p_adjusted`` is Holm's. A value that does not
    exist is None, for the ``reason``.
    """

    measure: Measure
    a: float | None
    b: float | None
    change: float | None
    interval: Interval | None
    smallest_shown: float | None
    p_value: float | None
    p_adjusted: float | None
    evidence: Evidence | None
    verdict: Verdict
    reason: Reason | None
    spread: Spread | QuantileSpread | None = field(default=None, compare=False, repr=False)

    def bound(self, lower: bool, significance: float) -> float | None:
        """One-sided bound of the change; None where it is unknown."""
        if self.spread is None:
            return None
        low, high = self.spread.interval(1.0 - 2.0 * significance)
        return _read(self.measure, low if lower else high)

    @property
    def has_upper_limit(self) -> bool:
        """Whether the interval ends, as it does not where a quantile's upper limit lies beyond all latencies."""
        return self.interval is not None and not is_unlimited(self.measure, self.interval[1])

    @property
    def difference(self) -> float | None:
        """B − A in the measure's unit."""
        return None if self.a is None or self.b is None else self.b - self.a


def compare_measures(
    measures: Sequence[Measure],
    a_runs: Sequence[dict[str, Measured]],
    b_runs: Sequence[dict[str, Measured]],
    *,
    requests_paired: bool,
    runs_paired: bool,
    schedules_apart: bool = False,
    looks: Looks | None = None,
) -> tuple[Difference, ...]:
    """The differences of every measure that all runs have, judged together.

    ``requests_paired``: one run each, of the same requests. ``runs_paired``: run i of A was measured in turn with run i of B.
    ``schedules_apart``: each side repeats schedules that the other lacks (``comparable.schedules_apart``). ``looks``: those at
    an experiment that ends when it is decided.
    """
    common = [m for m in measures if all(m.name in run for run in (*a_runs, *b_runs))]
    groups = [([run[m.name] for run in a_runs], [run[m.name] for run in b_runs]) for m in common]
    spreads = [
        _spread(measure, a, b, requests_paired=requests_paired, runs_paired=runs_paired, schedules_apart=schedules_apart)
        for measure, (a, b) in zip(common, groups, strict=True)
    ]
    if looks is not None:
        spreads = [_at_look(spread, looks, len(a_runs)) for spread in spreads]
    known = {m.name: s for m, s in zip(common, spreads, strict=True) if isinstance(s, Spread | QuantileSpread)}
    weights = _weights({name: spread.error for name, spread in known.items()}, looks)
    adjusted = iter(weighted_holm([spread.p_value for spread in known.values()], list(weights.values())))
    return tuple(
        _judged(measure, a, b, spread, next(adjusted), (1.0 - CONFIDENCE) * weights[measure.name])
        if isinstance(spread, Spread | QuantileSpread)
        else _unknown(measure, a, b, spread)
        for measure, (a, b), spread in zip(common, groups, spreads, strict=True)
    )


def _weights(errors: Mapping[str, float], looks: Looks | None) -> dict[str, float]:
    return {name: 1.0 / len(errors) for name in errors} if looks is None else looks.weights(errors)


def _at_look(spread: Spread | QuantileSpread | Reason, looks: Looks, blocks: int) -> Spread | QuantileSpread | Reason:
    """The spread with what the looks cost; before the first one no interval holds."""
    if not _is_of_blocks(spread):
        return spread
    return looks.at(spread, blocks) if blocks >= FIRST_LOOK else Cause.BEFORE_LOOKS


def _is_of_blocks(spread: Spread | QuantileSpread | Reason) -> TypeGuard[Spread]:
    return isinstance(spread, Spread) and spread.evidence is Evidence.RUN_PAIRS


def between_runs(a: FloatArray, b: FloatArray) -> Spread:
    """Welch's test of the values of repeated runs; a side with one run takes the variance of the other."""
    variances = [shifted_variance(side) if side.size > 1 else None for side in (a, b)]
    known = next(v for v in variances if v is not None)
    shares = [(known if v is None else v) / side.size for v, side in zip(variances, (a, b), strict=True)]
    freedoms = [side.size - 1 for side in (a, b) if side.size > 1]
    if len(freedoms) == 1 or not sum(shares):
        freedom = float(sum(freedoms))
    else:
        freedom = sum(shares) ** 2 / sum(s**2 / f for s, f in zip(shares, freedoms, strict=True))
    return Spread(shifted_mean(b) - shifted_mean(a), math.sqrt(sum(shares)), freedom, Evidence.RUNS)


def between_pairs(a: FloatArray, b: FloatArray) -> Spread:
    """Student's paired test; shapes [pairs]."""
    differences = b - a
    error = math.sqrt(shifted_variance(differences) / differences.size)
    return Spread(shifted_mean(differences), error, differences.size - 1.0, Evidence.RUN_PAIRS)


def between_schedules(measure: Measure, a: Sequence[Measured], b: Sequence[Measured], runs: Spread) -> Spread | Reason:
    """``runs``, the spread of repeats, with what one schedule differs from another; or the reason why that is unknown.

    It is the error of one run a side, the largest of those in turn, with what lengths explain: they are part of a schedule.
    """
    errors = []
    for mine, other in zip(a, b, strict=False):
        within = _within(measure, replace(mine, covariates=None), replace(other, covariates=None), requests_paired=False)
        if not isinstance(within, Spread | QuantileSpread):
            return OtherSchedules(within)
        errors.append((within.error, within.freedom))
    error, freedom = max(errors)
    if math.isinf(error):
        return OtherSchedules(Cause.SHORT_RUNS)
    total = runs.error**2 + error**2
    if total:
        freedom = total**2 / (runs.error**4 / runs.freedom + error**4 / freedom)
    return Spread(runs.estimate, math.sqrt(total), freedom, Evidence.SCHEDULES)


def _spread(
    measure: Measure,
    a: Sequence[Measured],
    b: Sequence[Measured],
    *,
    requests_paired: bool,
    runs_paired: bool,
    schedules_apart: bool,
) -> Spread | QuantileSpread | Reason:
    unknown = next((run.reason for run in (*a, *b) if run.reason is not None), None)
    if unknown is not None:
        return _fallen_to_zero(measure, a, b, runs_paired=runs_paired) or unknown
    sides = [np.array([_scaled(measure, run.value) for run in side]) for side in (a, b)]
    if len(a) > 1 or len(b) > 1:
        runs = between_pairs(*sides) if runs_paired else between_runs(*sides)
        if not measure.relative and runs.error < _ROUNDING:
            runs = replace(runs, error=_error_of_shares(a, b))
        return between_schedules(measure, a, b, runs) if schedules_apart else runs
    return _within(measure, a[0], b[0], requests_paired=requests_paired)


def _fallen_to_zero(measure: Measure, a: Sequence[Measured], b: Sequence[Measured], *, runs_paired: bool) -> Spread | None:
    """The spread of a throughput that no run of B has and every run of A has, which no ratio of runs could show: it is certain,
    since a run with a throughput of 0 has a hundred successes; None of any other measure.
    """
    is_nothing = all(run.reason is Cause.ALL_ZERO for run in b) and all(run.reason is None for run in a)
    if not (is_nothing and measure.higher_is_better):
        return None
    repeats = Evidence.RUN_PAIRS if runs_paired else Evidence.RUNS
    return Spread(-math.inf, 0.0, 1.0, Evidence.REQUESTS if len(a) == len(b) == 1 else repeats)


def _within(measure: Measure, a: Measured, b: Measured, *, requests_paired: bool) -> Spread | QuantileSpread | Reason:
    """The spread of two runs with known values, or the reason why it is unknown."""
    if measure.q is not None:
        pairs = quantiles_within_pairs(measure.q, a, b) if requests_paired else None
        return quantiles_within_runs(measure.q, a, b) if pairs is None else pairs
    judge = within_pairs if requests_paired else within_runs
    return judge(a, b, _scaled(measure, b.value) - _scaled(measure, a.value))


def _error_of_shares(a: Sequence[Measured], b: Sequence[Measured]) -> float:
    """The standard error of a difference of shares, each the mean over the runs of a side, from within the runs.

    Counts of a few failures are often equal in all repeats of a side, and no spread between them is no certainty.
    """
    return math.sqrt(sum((mean_of(run.sample).standard_error / len(side)) ** 2 for side in (a, b) for run in side))


def _scaled(measure: Measure, value: float | None) -> float:
    assert value is not None
    return math.log(value) if measure.relative else value


def _judged(
    measure: Measure,
    a: Sequence[Measured],
    b: Sequence[Measured],
    spread: Spread | QuantileSpread,
    p_adjusted: float,
    significance: float,
) -> Difference:
    low, high = spread.interval(CONFIDENCE)
    no_spread = spread.error == 0.0
    smallest = spread.smallest_shown(significance)
    verdict = Verdict.NONE
    if p_adjusted < 1.0 - CONFIDENCE:
        better = (spread.estimate > 0) is measure.higher_is_better
        if spread.evidence.single_starts:
            verdict = Verdict.STARTS_BETTER if better else Verdict.STARTS_WORSE
        else:
            verdict = Verdict.BETTER if better else Verdict.WORSE
    return Difference(
        measure=measure,
        a=_middle(measure, a),
        b=_middle(measure, b),
        change=_read(measure, spread.estimate),
        interval=None if no_spread else (_read(measure, low), _read(measure, high)),
        smallest_shown=None if no_spread or math.isinf(smallest) else _read(measure, smallest),
        p_value=spread.p_value,
        p_adjusted=p_adjusted,
        evidence=spread.evidence,
        verdict=verdict,
        reason=None if not no_spread else Cause.ALL_ZERO if math.isinf(spread.estimate) else Cause.NO_SPREAD,
        spread=spread,
    )


def _unknown(measure: Measure, a: Sequence[Measured], b: Sequence[Measured], reason: Reason) -> Difference:
    a_value, b_value = _middle(measure, a), _middle(measure, b)
    change = None
    if a_value is not None and b_value is not None and (a_value > 0 or not measure.relative):
        change = b_value / a_value - 1.0 if measure.relative else b_value - a_value
    return Difference(measure, a_value, b_value, change, None, None, None, None, None, Verdict.UNKNOWN, reason)


def _read(measure: Measure, scaled: float) -> float:
    """Conversion from the tested scale to the reported one."""
    return math.expm1(min(scaled, _LARGEST_LOGARITHM)) if measure.relative else scaled


def is_unlimited(measure: Measure, upper: float) -> bool:
    """Whether an ``upper`` limit of a change, as it is reported, means that there is none."""
    return upper >= _read(measure, math.inf)


def _middle(measure: Measure, runs: Sequence[Measured]) -> float | None:
    values = [run.value for run in runs if run.value is not None]
    if len(values) < len(runs):
        return None
    if measure.relative and min(values) > 0:
        return math.exp(sum(map(math.log, values)) / len(values))
    return sum(values) / len(values)
