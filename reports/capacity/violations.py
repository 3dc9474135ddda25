"""The requests of a run beyond a limit, and how much they come together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reports.capacity.probe import Violations
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import FEWEST_VALUES
from reports.statistics.exceedances import exceedances


def violations(values_ms: FloatArray, limit: float, allowed: float, groups: NDArray[np.int64] | None = None) -> Violations:
    """The ``values_ms`` above ``limit``, shape [n], in the order in which their requests were due, without the ramp.

    A failed request is infinite. 0 < ``allowed`` < 1 is the share that may be above. ``groups``, shape [n], numbers the
    conversation of each request, -1 for none, as ``exceedances`` takes them.
    """
    n, above = int(values_ms.size), int(np.count_nonzero(values_ms > limit))
    if n < FEWEST_VALUES:
        return Violations(n, above, None)
    return Violations(n, above, exceedances(values_ms, limit, allowed, groups).effect)


def stalled(due_ns: FloatArray, answered_ns: FloatArray, limit_ms: float) -> bool:
    """Whether, after an answer within ``limit_ms``, no request was answered for longer than that while one waited; ``due_ns``
    and ``answered_ns``, shape [n], are known times. A target that falls behind goes on to answer, and one that is too slow for
    the limit at any load has no answer within it.
    """
    order = np.lexsort((due_ns, answered_ns))
    silent_ns = np.diff(answered_ns[order])
    waited_ns = (answered_ns - due_ns)[order]
    limit_ns = limit_ms * 1e6
    return bool(((np.minimum(silent_ns, waited_ns[1:]) > limit_ns) & (waited_ns[:-1] <= limit_ns)).any())
