"""The part of a run between ramp and drain, and how much the length of the drain depends on chance: what the error of a rate
rests on.

A rate of the whole run counts ramp and drain, which hold less output than the rest. As parts of a series they would look like
fluctuations, although they come in every run alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from reports.metrics.in_flight import first_user_end_ns, mean_in_system
from reports.metrics.mser import BATCH, mser5
from reports.metrics.output_events import Events, Rate, output_tokens, rate, rate_value, rate_with_error_of
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import BINS, FEWEST_VALUES, mean_of
from reports.statistics.percentiles import CONFIDENCE

_FEWEST_REQUESTS = 100
_LEAST_RAMP = 0.1  # of the time until the drain
_RAMP_BINS = 100 * BATCH
_BURST = 0.1  # of the run: sends within less are one burst
_LEAST_SHARE = 0.6  # of the run; in less, the ramp's correlation looks like the run's
_DRAINS = 200  # times of a run at which its drain might have started


@dataclass(frozen=True, slots=True)
class FullLoad:
    """The part of a run between ``start_ns`` and ``end_ns``; the ramp began at ``begin_ns``.

    ``drain_deviation_ns`` is the standard deviation, over runs like this one, of the time from ``end_ns`` to the run's end.
    """

    begin_ns: float
    start_ns: float
    end_ns: float
    drain_deviation_ns: float

    def per_bin(self, events: Events, bins: int = BINS) -> FloatArray:
        """The amount in each of ``bins`` equal parts, shape [bins]."""
        return events.per_bin(self.start_ns, self.end_ns, bins)

    def share_of_error(self, share: float, window_ns: float) -> float:
        """The relative error of a rate over the whole run of ``window_ns``, where ``share`` is that of the mean of ``per_bin``.

        A rate is an amount over a time. What came until the drain took (1 ± error) times as long, where the error shrinks with
        the root of the time; the length of the drain is independent of it.
        """
        sending_ns = self.end_ns - self.begin_ns
        until_drain = share * math.sqrt((self.end_ns - self.start_ns) / sending_ns) * sending_ns / window_ns
        return math.hypot(until_drain, self.drain_deviation_ns / window_ns)


def full_load(requests: Requests, output: Events) -> FullLoad | None:
    """The part of a run between the ramp of ``output`` and the drain; None where fewer than 100 requests succeeded.

    The ramp is that by MSER-5, and at least a tenth. The drain begins with the last send, in a closed loop when the first user
    has nothing to send, and where all is sent at once with the last first token. Its deviation is that of the times which the
    requests in flight took to end from other sends on, at the speed that a request has when few are left.
    """
    done = requests.done & ~np.isnan(requests.sent_ns)
    if np.count_nonzero(done) < _FEWEST_REQUESTS:
        return None
    begin, entered_ns, left_ns = float(requests.scheduled_ns.min()), requests.sent_ns[done], requests.done_ns[done]
    if entered_ns.max() - begin < _BURST * (left_ns.max() - begin):
        entered_ns = np.where(requests.has_tokens, requests.first_token_ns, requests.sent_ns)[done]
    end = min(float(entered_ns.max()), first_user_end_ns(requests)) if _in_turns(requests) else float(entered_ns.max())
    if end <= begin:
        return None
    ramp = mser5(output.per_bin(begin, end, _RAMP_BINS)) or 0
    start = begin + (end - begin) * max(_LEAST_RAMP, ramp / _RAMP_BINS)
    slower = _slower_than_in_drain(output_tokens(requests), entered_ns, left_ns, (start, end))
    return FullLoad(begin, start, end, _drain_deviation_ns(entered_ns, left_ns, start, end) / slower)


def _in_turns(requests: Requests) -> bool:
    """Whether most requests were due the moment at which another ended, as in a closed loop."""
    return bool(np.isin(requests.scheduled_ns, requests.done_ns).mean() > 0.5)


def _drain_deviation_ns(entered_ns: FloatArray, left_ns: FloatArray, start: float, end: float) -> float:
    """Standard deviation of the time from a send between ``start`` and ``end`` to the end of the last request then in flight.

    Sends, and not any times: requests may run in step with each other, and a drain begins at a send.
    """
    order = np.argsort(entered_ns)
    entered = entered_ns[order]
    sends = np.flatnonzero((entered >= start) & (entered <= end))
    chosen = sends[:: max(1, sends.size // _DRAINS)]
    return float((np.maximum.accumulate(left_ns[order])[chosen] - entered[chosen]).std()) if chosen.size else 0.0


def _slower_than_in_drain(
    tokens: Events | None, entered_ns: FloatArray, left_ns: FloatArray, full: tuple[float, float]
) -> float:
    """How many times slower a request gets its tokens under ``full`` load than in the second half of the drain, at least 1."""
    last = float(left_ns.max())
    half = (full[1] + last) / 2
    if tokens is None or not last > half:
        return 1.0
    loaded, alone = (
        tokens.per_bin(start, end, 1)[0] / mean_in_system(entered_ns, left_ns, np.array([start, end]))[0] / (end - start)
        for start, end in (full, (half, last))
    )
    return max(1.0, float(alone / loaded)) if loaded > 0 else 1.0


def rate_of_run(
    events: Events, start_ns: float, end_ns: float, full: FullLoad | None, confidence: float = CONFIDENCE
) -> Rate | None:
    """The amount per second in [start, end], the whole run, with an interval from its part under full load.

    Where that is None, less than 60 % of the run, or has fewer than 100 events, the interval is from equal parts of the whole.
    """
    value = rate_value(events, start_ns, end_ns)
    if value is None or full is None or full.end_ns - full.start_ns < _LEAST_SHARE * (end_ns - start_ns):
        return rate(events, start_ns, end_ns, confidence)
    if np.count_nonzero((events.times_ns >= full.start_ns) & (events.times_ns <= full.end_ns)) < FEWEST_VALUES:
        return rate(events, start_ns, end_ns, confidence)
    mean = mean_of(full.per_bin(events))
    error = mean.value * full.share_of_error(mean.standard_error / mean.value, end_ns - start_ns)
    return rate_with_error_of(value, replace(mean, standard_error=error), confidence)
