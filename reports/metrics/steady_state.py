"""Steady state: the part of a run that is neither ramp nor drain, by a named rule.

The drain begins with the last send; in a closed loop when the first user stops, and with conversations when the last one has
started and the first one has ended; where all is sent at once, it is detected like the ramp, read backwards. The ramp is
detected by MSER-5 (White 1997, "An effective truncation heuristic for bias reduction in simulation output"): of batches of 5
observations leave out the first d, at most half, that make the standard error of the rest's mean smallest. Where d is half of
them, there is no steady state. The rule is applied to three series, and the latest start counts: requests in the system
(scheduled, not yet ended) and output as it arrives, both over time, and TTFT in the order of the schedule, since a target may
be slow to start with at an even load. A growing queue is never steady, nor are latencies that fall to the end. In a closed
loop, whose users may be in step, a part of less than five latencies is none; nor is one of less than five waves of answers,
where all is sent at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.metrics.configuration import OPEN_LOOP, ConfiguredLoad
from reports.metrics.in_flight import drain_start_ns, mean_in_system, queue_growth
from reports.metrics.last_answer import last_answer
from reports.metrics.mser import BATCH, mser5
from reports.metrics.output_events import Events
from reports.metrics.requests import Requests
from reports.metrics.waves import is_burst, waves_of
from reports.statistics.arrays import FloatArray

_FEWEST_REQUESTS = 100
FEWEST_LATENCIES = 5  # in the steady part of a closed loop: in a shorter one, waves of users in step make the rate
_BATCHES = 100
_REQUESTS_A_BATCH = 5
_PARTS = 10  # of a window in which latencies may fall
_FALLING_RANKS = -0.8  # Spearman's correlation of the parts' means with time
_FALLING_RATIO = 1.5  # of the first three parts' mean to the last three's
_STILL_CHANGING = "the load on the server was still changing in the second half of the run"


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady part of a run in ns since its start, or None and the reason for having none."""

    window_ns: tuple[float, float] | None
    reason: str | None
    too_few: bool = False


def find_steady(requests: Requests, output: Events, load: ConfiguredLoad = OPEN_LOOP) -> Steady:
    """Detect the steady part; ``output`` are tokens, or completions where no tokens are known.

    It ends at the latest when the target stopped answering.
    """
    last = last_answer(requests)
    if last is not None:
        requests = requests.only(requests.sent_ns <= last.at_ns)
    known = ~np.isnan(requests.sent_ns) & ~np.isnan(requests.done_ns)
    if np.count_nonzero(known) < _FEWEST_REQUESTS:
        return Steady(None, f"fewer than {_FEWEST_REQUESTS} requests ended", too_few=True)
    start, last_sent = float(requests.scheduled_ns.min()), float(requests.sent_ns[known].max())
    ended = known & ~requests.cut_off
    end = float(requests.done_ns[ended if ended.any() else known].max())
    burst = is_burst(requests)  # after which the rest is not a drain
    if not burst:
        end = drain_start_ns(requests, last_sent) if load.waits_for_answers else last_sent
        if load.sessions and end - start < (last_sent - start) / 2:
            return Steady(None, _STILL_CHANGING)
    batches = min(_BATCHES, np.count_nonzero(known) // _REQUESTS_A_BATCH)
    edges = np.linspace(start, end, batches * BATCH + 1)
    series = [
        mean_in_system(requests.scheduled_ns[known], requests.done_ns[known], edges),
        output.per_bin(start, end, batches * BATCH),
    ]
    if burst:
        return _without_few_waves(_plateau(series[1], edges), requests)
    ramps = [ramp for values in series if (ramp := mser5(values)) is not None]
    if len(ramps) < len(series) or queue_growth(requests, load.rate_per_s) is not None:
        return Steady(None, _STILL_CHANGING)
    due_ns, latency_ns = latencies_by_due(requests)
    settled_ns = _settled_ns(due_ns, latency_ns)
    if settled_ns is None:
        return Steady(None, "latencies were still changing in the second half of the run")
    start = max(float(edges[max(ramps)]), settled_ns)
    if load.closed and end - start < FEWEST_LATENCIES * _median_latency_ns(requests):
        return Steady(None, f"without ramp and drain it is shorter than {FEWEST_LATENCIES} median E2E latencies")
    if _falls(*(values[due_ns >= start] for values in (due_ns, latency_ns))):
        return Steady(None, "latencies fell to the end of the run")
    return Steady((start, end), None)


def _median_latency_ns(requests: Requests) -> float:
    """From send to end, of successes; 0 where there are none."""
    latencies_ns = (requests.done_ns - requests.sent_ns)[requests.done]
    return float(np.median(latencies_ns)) if latencies_ns.size else 0.0


def latencies_by_due(requests: Requests) -> tuple[FloatArray, FloatArray]:
    """When each success was due, and its time to the first token (or to an answer in one piece) from then, both in ns."""
    known = requests.done & requests.has_tokens
    return requests.scheduled_ns[known], (requests.first_token_ns - requests.scheduled_ns)[known]


def _settled_ns(due_ns: FloatArray, latency_ns: FloatArray) -> float | None:
    """The time from which latencies are steady, by MSER-5 of their means over equal numbers of requests; None: never."""
    if due_ns.size < _FEWEST_REQUESTS:
        return -math.inf
    groups = min(_BATCHES, due_ns.size // _REQUESTS_A_BATCH) * BATCH
    starts = np.arange(groups) * due_ns.size // groups
    cut = mser5(np.add.reduceat(latency_ns, starts) / np.diff(starts, append=due_ns.size))
    return None if cut is None else float(due_ns[starts[cut]])


def _falls(due_ns: FloatArray, latency_ns: FloatArray) -> bool:
    """Whether latencies fall from part to part of a window, as those of a target that works off a backlog."""
    if due_ns.size < _FEWEST_REQUESTS:
        return False
    edges = np.arange(1, _PARTS) * due_ns.size // _PARTS
    parts = np.array([part.mean() for part in np.split(latency_ns, edges)])
    return _rank_correlation_with_time(parts) < _FALLING_RANKS and parts[:3].mean() > _FALLING_RATIO * parts[-3:].mean()


def _rank_correlation_with_time(values: NDArray[np.float64]) -> float:
    ranks = np.argsort(np.argsort(values, kind="stable"))
    return float(np.corrcoef(ranks, np.arange(values.size))[0, 1])


def _plateau(output: FloatArray, edges: FloatArray) -> Steady:
    """The steady part of a run whose requests were all sent at once."""
    ramp, drain = mser5(output), mser5(output[::-1])
    if ramp is None or drain is None or ramp + drain > output.size // 2:
        return Steady(None, "output came at no steady rate for half of it")
    return Steady((float(edges[ramp]), float(edges[output.size - drain])), None)


def _without_few_waves(steady: Steady, requests: Requests) -> Steady:
    """``steady`` of a burst; without a window where that holds fewer than FEWEST_LATENCIES waves of answers."""
    waves = None if steady.window_ns is None else waves_of(requests)
    if waves is None or steady.window_ns is None:
        return steady
    start_ns, end_ns = steady.window_ns
    if end_ns - start_ns >= FEWEST_LATENCIES * waves.period_s * 1e9:
        return steady
    return Steady(None, f"answers end in waves, and without ramp and drain it is shorter than {FEWEST_LATENCIES} of them")
