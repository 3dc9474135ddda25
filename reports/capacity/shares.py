"""The share of requests beyond a limit: of one probe with its interval, and by a fitted curve."""

from __future__ import annotations

import math

from reports.capacity.probe import Violations
from reports.capacity.search import Curve
from reports.statistics.estimate import Interval
from reports.statistics.probability import beta_quantile

_TAIL = 0.025  # of each side of a 95 % interval


def share_interval(violations: Violations) -> Interval | None:
    """The 95 % interval of a probe's share (Clopper and Pearson 1934, with the effective numbers); None where the requests are
    too few to show their design effect.
    """
    if violations.effect is None or not violations.n:
        return None
    n, above = violations.n / violations.effect, violations.above / violations.effect
    low = 0.0 if violations.above == 0 else beta_quantile(_TAIL, above, n - above + 1.0)
    high = 1.0 if violations.above == violations.n else beta_quantile(1.0 - _TAIL, above + 1.0, n - above)
    return low, high


def fitted_share(curve: Curve, load: float) -> float | None:
    """The share at ``load`` by the curve, at most 1; None where no curve was fitted."""
    if curve.intercept is None or curve.slope is None or load <= 0:
        return None
    return min(1.0, math.exp(min(0.0, curve.intercept + curve.slope * math.log(load))))
