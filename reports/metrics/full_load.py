"""The part of a run between ramp and drain, and how much the length of the drain depends on chance: what the error of a rate
rests on.

A rate of the whole run counts ramp and drain, which hold less output than the rest. As parts of a series they would look like
fluctuations, although they come in every run alike.

In an open loop the time that a run takes is that of its sends and of the drain. A queue only delays what was sent, and its ups
and downs look like changes of the rate in a run that has few of them, so the error is that of the sends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from reports.metrics.in_flight import first_user_end_ns
from reports.metrics.mser import BATCH, mser5
from reports.metrics.output_events import Events, rate, rate_value, rate_with_error_of
from reports.metrics.requests import Requests
from reports.metrics.waves import BURST
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import BINS, FEWEST_VALUES, mean_of
from reports.statistics.estimate import Estimate
from reports.statistics.percentiles import CONFIDENCE
from reports.statistics.probability import normal_quantile

_FEWEST_REQUESTS = 100
_LEAST_RAMP = 0.1  # of the time until the drain
_RAMP_BINS = 100 * BATCH
_LEAST_SHARE = 0.6  # of the run; in less, the ramp's correlation looks like the run's
_SAMPLED = 10_000  # requests, of which the speed under full load is known well enough
_DRAINS = 200  # times of a run at which its drain might have started
_LATE = 0.99  # quantile of the drains


@dataclass(frozen=True, slots=True)
class FullLoad:
    """The part of a run between ``start_ns`` and ``end_ns``; the ramp began at ``begin_ns``, the drain ended at ``run_end_ns``.

    ``drain_deviation_ns`` is the standard deviation, over runs like this one, of the length of the drain. ``open_loop``: the
    schedule decided when requests were sent, and not the answers. ``late_drain_ns`` is the deviation of the normal law that
    has the run's longest hundredth of drains: one late answer makes a drain long. The deviation is that of as many as
    ``independent_drains``: a queue that lasts is in many of them.
    """

    begin_ns: float
    start_ns: float
    end_ns: float
    run_end_ns: float
    drain_deviation_ns: float
    open_loop: bool = False
    late_drain_ns: float = 0.0
    independent_drains: float = math.inf

    @property
    def share_of_run(self) -> float:
        return (self.end_ns - self.start_ns) / (self.run_end_ns - self.begin_ns)

    @property
    def part_in_error(self) -> float:
        """What the relative error of the mean of ``per_bin`` is multiplied by as a part of the error of the whole run's rate.

        A rate is an amount over a time. What came until the drain took (1 ± error) times as long, and the error shrinks with
        the root of the time.
        """
        sending_ns = self.end_ns - self.begin_ns
        return math.sqrt((self.end_ns - self.start_ns) / sending_ns) * sending_ns / (self.run_end_ns - self.begin_ns)

    @property
    def drain_error(self) -> float:
        """The relative error of the whole run's rate from the length of the drain, which is independent of the other part."""
        return self.drain_deviation_ns / (self.run_end_ns - self.begin_ns)

    @property
    def late_drain_error(self) -> float:
        """As ``drain_error``, for a difference whose other errors cancel, and one late answer at the end may be all of it."""
        return max(self.drain_deviation_ns, self.late_drain_ns) / (self.run_end_ns - self.begin_ns)

    def per_bin(self, events: Events, bins: int = BINS) -> FloatArray:
        """The amount that ended in each of ``bins`` equal parts, shape [bins]."""
        return events.per_bin(self.start_ns, self.end_ns, bins)

    def chance_per_bin(self, events: Events, bins: int = BINS) -> FloatArray:
        """The amounts whose spread is the error of the rate, shape [bins]: of an open loop what was sent, else ``per_bin``."""
        return self.per_bin(events.by_send if self.open_loop and events.by_send is not None else events, bins)


def full_load(requests: Requests, output: Events) -> FullLoad | None:
    """The part of a run between the ramp of ``output`` and the drain; None where fewer than 100 requests succeeded, or the part
    is less than 60 % of the run or holds less than 100 events of ``output``.

    The ramp is that by MSER-5, and at least a tenth. The drain begins with the last send, in a closed loop when the first user
    has nothing to send, and where all is sent at once with the last first token. Its deviation is that of the times which the
    requests in flight took to end from other sends on, at the speed that a request has when few are left.
    """
    done = requests.done & ~np.isnan(requests.sent_ns)
    if np.count_nonzero(done) < _FEWEST_REQUESTS:
        return None
    begin, entered_ns, left_ns = float(requests.scheduled_ns.min()), requests.sent_ns[done], requests.done_ns[done]
    burst = bool(entered_ns.max() - begin < BURST * (left_ns.max() - begin))
    if burst:
        entered_ns = np.where(requests.has_tokens, requests.first_token_ns, requests.sent_ns)[done]
    # drain_start_ns, by which a rate is found, ends the load of conversations earlier. Here their drain stays in the series: it
    # looks like a change of the rate, so that its interval is wider, or there is none.
    end = min(float(entered_ns.max()), first_user_end_ns(requests)) if requests.in_turns else float(entered_ns.max())
    if end <= begin:
        return None
    ramp = mser5(output.per_bin(begin, end, _RAMP_BINS)) or 0
    start = begin + (end - begin) * max(_LEAST_RAMP, ramp / _RAMP_BINS)
    slower = _slower_than_in_drain(requests, left_ns, (start, end))
    drains_ns = _drains_ns(entered_ns, left_ns, start, end) / slower
    full = FullLoad(
        begin, start, end, float(left_ns.max()), float(drains_ns.std()), not burst and requests.is_open_loop, _late(drains_ns),
        drains_ns.size / max(1.0, mean_of(drains_ns).long_run.effect),
    )  # fmt: skip
    within = np.count_nonzero((output.times_ns >= start) & (output.times_ns <= end))
    return full if full.share_of_run >= _LEAST_SHARE and within >= FEWEST_VALUES else None


def _drains_ns(entered_ns: FloatArray, left_ns: FloatArray, start: float, end: float) -> FloatArray:
    """The times from sends between ``start`` and ``end`` to the end of the last request then in flight, of 200 to 400 at most;
    0 where there are no sends.

    Sends, and not any times: requests may run in step with each other, and a drain begins at a send.
    """
    order = np.argsort(entered_ns)
    entered = entered_ns[order]
    sends = np.flatnonzero((entered >= start) & (entered <= end))
    chosen = sends[:: max(1, sends.size // _DRAINS)]
    return np.maximum.accumulate(left_ns[order])[chosen] - entered[chosen] if chosen.size else np.zeros(1)


def _late(drains_ns: FloatArray) -> float:
    """How far the hundredth of the longest drains lies from the median, in deviations of a normal law."""
    median, late = np.quantile(drains_ns, [0.5, _LATE])
    return float(late - median) / normal_quantile(_LATE)


def _slower_than_in_drain(requests: Requests, left_ns: FloatArray, full_ns: tuple[float, float]) -> float:
    """How many times slower a request gets its tokens under full load, in ``full_ns``, than in the second half of the drain,
    at least 1. In a long run, the requests under full load are a sample.

    The tokens of a response were made since the one before it, or since the send where an answer has one response.
    """
    last = float(left_ns.max())
    half = (full_ns[1] + last) / 2
    if not last > half:
        return 1.0
    known = np.flatnonzero(requests.done & requests.has_tokens)
    in_drain = known[requests.done_ns[known] > half]
    chosen = np.zeros(requests.done.size, dtype=np.bool_)
    chosen[np.concatenate([known[:: max(1, known.size // _SAMPLED)], in_drain])] = True
    responses = np.diff(requests.token_starts)
    of_chosen = np.repeat(chosen, responses)
    times, counts = requests.token_times_ns[of_chosen], requests.token_counts[of_chosen]
    if np.isnan(counts).any():
        return 1.0
    firsts = np.cumsum(responses[chosen]) - responses[chosen]
    begins = np.concatenate([times[:1], times[:-1]])
    begins[firsts] = np.where(responses[chosen] == 1, requests.sent_ns[chosen], times[firsts])
    made = times > begins
    loaded, alone = (
        _token_speed(begins[made], times[made], counts[made], start, end) for start, end in (full_ns, (half, last))
    )
    return max(1.0, alone / loaded) if loaded > 0 else 1.0


def _token_speed(begins_ns: FloatArray, ends_ns: FloatArray, tokens: FloatArray, start: float, end: float) -> float:
    """Tokens per ns of a request that is getting them, between ``start`` and ``end``: responses' tokens are made evenly from
    ``begins_ns`` to ``ends_ns``, shape [responses] each.
    """
    within_ns = np.clip(np.minimum(ends_ns, end) - np.maximum(begins_ns, start), 0.0, None)
    total_ns = float(within_ns.sum())
    return float(within_ns @ (tokens / (ends_ns - begins_ns))) / total_ns if total_ns > 0 else 0.0


def rate_of_run(
    events: Events, start_ns: float, end_ns: float, full: FullLoad | None, confidence: float = CONFIDENCE
) -> Estimate:
    """The amount per second in [start, end], the whole run, with an interval from its part under full load.

    Where that is None, the interval is from equal parts of the whole.
    """
    value = rate_value(events, start_ns, end_ns)
    if value is None or full is None:
        return rate(events, start_ns, end_ns, confidence)
    mean = mean_of(full.chance_per_bin(events))
    error = math.hypot(mean.standard_error * full.part_in_error, mean.value * full.drain_error)
    return rate_with_error_of(value, replace(mean, standard_error=error), confidence)
