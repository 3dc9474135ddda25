"""When delays apply: in every second window of the monotonic clock, which all processes of a host share.

So a run has requests with a delay and requests without one, on the same machine at nearly the same time, whatever else it does.
A window has 4 s, or what the environment's ``INJECTION_WINDOW_S`` says: in shorter ones the two kinds are nearer to each other
in time, but a request and its delay must end within a third of one.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

WINDOW_S = float(os.environ.get("INJECTION_WINDOW_S", "4"))
_STOPS_S = (0.25 * WINDOW_S, 0.55 * WINDOW_S)  # of a window with delays
# A request that is sent at another time of a window may meet the delays of the window before it, or of the next one.
_FROM_S, _TO_S = 0.075 * WINDOW_S, 0.7 * WINDOW_S


def injects(now_s: float) -> bool:
    """Whether delays apply at this time, in s of the monotonic clock."""
    return int(now_s / WINDOW_S) % 2 == 1


def until_stop_s(now_s: float) -> float:
    """The time from now to when something is stopped or held again, twice in each window with delays, for 0.6 s at most."""
    since_s = now_s % (2.0 * WINDOW_S) - WINDOW_S
    return next((at_s for at_s in _STOPS_S if at_s > since_s), _STOPS_S[0] + 2.0 * WINDOW_S) - since_s


def with_delay(sent_ns: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which requests, sent at these times in ns of the monotonic clock, shape [n], are delayed throughout."""
    return _inside(sent_ns, 1)


def without_delay(sent_ns: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which requests are not delayed at all."""
    return _inside(sent_ns, 0)


def cycle_of(sent_ns: NDArray[np.float64]) -> NDArray[np.int64]:
    """The number of the window with delays and of the one before it, in which these times are, shape [n]."""
    return (sent_ns / 1e9 // (2.0 * WINDOW_S)).astype(np.int64)


def _inside(sent_ns: NDArray[np.float64], parity: int) -> NDArray[np.bool_]:
    windows, within_s = np.divmod(sent_ns / 1e9, WINDOW_S)
    inside: NDArray[np.bool_] = (within_s >= _FROM_S) & (within_s < _TO_S) & (windows % 2 == parity)
    return inside
