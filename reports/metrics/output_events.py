"""Output as events in time, which a throughput credits to a window when they arrive, rather than whole requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray, known
from reports.statistics.autocorrelation import BINS, FEWEST_VALUES, Mean, mean_of
from reports.statistics.estimate import UNKNOWN, Cause, Estimate, Reason, TooFew
from reports.statistics.percentiles import CONFIDENCE


@dataclass(frozen=True)
class Events:
    """Times in ns since the run's start, shape [n], and the amount at each (None: one each).

    ``by_send`` are the same amounts at the times at which their requests were sent; None where the times of answers decide
    what counts.
    """

    times_ns: FloatArray
    amounts: FloatArray | None = None
    by_send: Events | None = None

    def per_bin(self, start_ns: float, end_ns: float, bins: int) -> FloatArray:
        """The amount in each of ``bins`` equal parts of [start, end], shape [bins]."""
        return np.histogram(self.times_ns, bins, (start_ns, end_ns), weights=self.amounts)[0].astype(np.float64)

    def requests_within(self, start_ns: float, end_ns: float) -> int:
        """How many requests the amount in [start, end] comes from: those sent then, or, with one event each, their events."""
        times_ns = self.times_ns if self.by_send is None else self.by_send.times_ns
        return int(np.count_nonzero((times_ns >= start_ns) & (times_ns <= end_ns)))


def completions(requests: Requests) -> Events:
    """The ends of successful requests."""
    return Events(requests.done_ns[requests.done], by_send=Events(requests.sent_ns[requests.done]))


def output_tokens(requests: Requests) -> Events | None:
    """Output tokens of successful requests as they arrived, or None where some are unknown; and those of requests that were
    cancelled as planned, as far as they are known.

    Where the number of tokens in each response is unknown, a request's tokens count at its end: those of all, where it is
    unknown of a success.
    """
    if np.isnan(requests.output_tokens[requests.done]).any():
        return None
    counted = requests.done | (requests.withdrawn & ~np.isnan(requests.output_tokens))
    by_send = Events(requests.sent_ns[counted], requests.output_tokens[counted])
    by_response = counted & (summed_token_counts(requests) == requests.output_tokens)
    if not by_response[requests.done].all():
        return Events(requests.done_ns[counted], requests.output_tokens[counted], by_send)
    times_ns, counts = requests.token_times_ns, requests.token_counts
    if not by_response.all():
        of_responses, at_end = np.repeat(by_response, np.diff(requests.token_starts)), counted & ~by_response
        times_ns = np.concatenate([times_ns[of_responses], requests.done_ns[at_end]])
        counts = np.concatenate([counts[of_responses], requests.output_tokens[at_end]])
    return Events(times_ns, None if (counts == 1.0).all() else counts, by_send)


def rate(events: Events, start_ns: float, end_ns: float, confidence: float = CONFIDENCE) -> Estimate:
    """The amount per second in [start, end], with an interval from equal parts of the window; unknown for an empty window.

    The tokens of one request come together, and say nothing of what others would take: requests are counted, not tokens.
    """
    value = rate_value(events, start_ns, end_ns)
    if value is None:
        return UNKNOWN
    n = events.requests_within(start_ns, end_ns)
    if n < FEWEST_VALUES:
        return Estimate(value, reason=TooFew(n, FEWEST_VALUES))
    return rate_with_error_of(value, mean_of(events.per_bin(start_ns, end_ns, BINS)), confidence)


def without_interval(found: Estimate, reason: Reason | None) -> Estimate:
    """The rate without an interval, where there is a ``reason`` for having none."""
    return found if found.value is None or reason is None else Estimate(found.value, reason=reason)


def rate_value(events: Events, start_ns: float, end_ns: float) -> float | None:
    """The amount per second in [start, end]; None for an empty window."""
    seconds = (end_ns - start_ns) / 1e9
    return float(events.per_bin(start_ns, end_ns, 1).sum()) / seconds if seconds > 0 else None


def mean_rate(times_ns: FloatArray) -> float | None:
    """(n − 1) / (last − first) of the known times; None for fewer than 2, or all at once."""
    times_ns = known(times_ns)
    span_s = (times_ns.max() - times_ns.min()) / 1e9 if times_ns.size > 1 else 0.0
    return float((times_ns.size - 1) / span_s) if span_s > 0 else None


def rate_with_error_of(value: float, mean: Mean, confidence: float = CONFIDENCE) -> Estimate:
    """``value`` with the relative error of ``mean``, that of the amounts in equal parts of a time."""
    interval = mean.interval(confidence) if mean.no_interval_reason is None else None
    if interval is None or mean.value <= 0:
        return Estimate(value, reason=mean.no_interval_reason or Cause.UNEVEN)
    low, high = (bound / mean.value * value for bound in interval)
    return Estimate(value, (min(low, value), max(high, value)))


def summed_token_counts(requests: Requests) -> FloatArray:
    """Tokens of each request's responses, summed; shape [requests], NaN where a response's are unknown."""
    summed = np.zeros(len(requests.outcome))
    answered = requests.has_tokens
    if answered.any():
        summed[answered] = np.add.reduceat(requests.token_counts, requests.token_starts[:-1][answered])
    return summed
