"""Steady state: the part of a run that is neither ramp nor drain, by a named rule.

The drain begins with the last send, in a closed loop when the first user sends no more; where all is sent at once, it is
detected like the ramp, read backwards. The ramp is detected by MSER-5 (White 1997, "An effective truncation heuristic for bias
reduction in simulation output"): of batches of 5 observations leave out the first d, at most half, that make the standard
error of the rest's mean smallest. Where d is half of them, there is no steady state. The rule is applied to two series of
events over time, and the later start counts: requests in the system (scheduled, not yet ended), and output as it arrives. A
growing queue is never steady.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.in_flight import first_user_end_ns, mean_in_system, queue_growth
from reports.metrics.output_events import Events
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray

RULE = "MSER-5"
_BATCH = 5
_FEWEST_REQUESTS = 100
_BATCHES = 100
_REQUESTS_A_BATCH = 5
_BURST = 0.1  # of the window: sends within less are one burst, after which the rest is not a drain


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady part of a run in ns since its start, or None and the reason for having none."""

    window_ns: tuple[float, float] | None
    reason: str | None
    too_few: bool = False


def find_steady(requests: Requests, output: Events, closed_loop: bool = False) -> Steady:
    """Detect the steady part; ``output`` are tokens, or completions where no tokens are known."""
    known = ~np.isnan(requests.sent_ns) & ~np.isnan(requests.done_ns)
    if np.count_nonzero(known) < _FEWEST_REQUESTS:
        return Steady(None, f"fewer than {_FEWEST_REQUESTS} requests ended", too_few=True)
    start, last_sent = float(requests.scheduled_ns.min()), float(requests.sent_ns[known].max())
    end = float(requests.done_ns[known].max())
    burst = last_sent - start < _BURST * (end - start)
    if not burst:
        end = min(last_sent, first_user_end_ns(requests)) if closed_loop else last_sent
    batches = min(_BATCHES, np.count_nonzero(known) // _REQUESTS_A_BATCH)
    edges = np.linspace(start, end, batches * _BATCH + 1)
    series = [
        mean_in_system(requests.scheduled_ns[known], requests.done_ns[known], edges),
        output.per_bin(start, end, batches * _BATCH),
    ]
    if burst:
        return _plateau(series[1], edges)
    ramps = [ramp for values in series if (ramp := mser5(values)) is not None]
    if len(ramps) < len(series) or queue_growth(requests) is not None:
        return Steady(None, "the load on the server was still changing in the second half of the run")
    return Steady((float(edges[max(ramps)]), end), None)


def mser5(series: FloatArray) -> int | None:
    """The number of leading values to leave out, a multiple of 5; None where that is half of them.

    ``series`` has shape [n], n ≥ 50.
    """
    batches = series[: series.size // _BATCH * _BATCH].reshape(-1, _BATCH).mean(axis=1)
    m = batches.size
    left = np.arange(m, 0, -1)
    centred = batches - batches.mean()  # so that sums of squares lose no digits
    sums, squares = (np.cumsum(values[::-1])[::-1] for values in (centred, centred**2))
    error = np.maximum(0.0, squares - sums**2 / left) / left.astype(np.float64) ** 2
    tested = error[: m // 2 + 1]
    rounding = 1e-12 * (float(squares[0]) + float(batches.mean()) ** 2) / m
    cut = int(np.argmax(tested <= tested.min() + rounding))
    return None if cut >= m // 2 - 1 else cut * _BATCH


def _plateau(output: FloatArray, edges: FloatArray) -> Steady:
    """The steady part of a run whose requests were all sent at once."""
    ramp, drain = mser5(output), mser5(output[::-1])
    if ramp is None or drain is None or ramp + drain > output.size // 2:
        return Steady(None, "output came at no steady rate for half of it")
    return Steady((float(edges[ramp]), float(edges[output.size - drain])), None)
