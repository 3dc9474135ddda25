"""Whether answers end in waves: the users of a closed loop start together, and equal answers keep them in step; so do equal
answers to requests that are all sent at once, of which a target serves one full batch after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import FEWEST_VALUES

_PERIODS = np.geomspace(0.8, 1.25, 61)  # of the latency that makes a wave
IN_STEP = 0.6  # of the answers in one third of a period: of answers at any times, at most half, even in a run of few periods
MOST_WAVES = 20  # with more, one wave more or less is less than 5 % of a rate
_MOST_IN_ONE = 2.0 / 3.0  # of the answers of a burst in one wave: with more, hardly any waited for another
LEAST_WAITED = 0.25  # of the answers of a burst in waves: the first wave, which did not wait, holds up to two thirds of them
BURST = 0.1  # of the time from the first send to the last end: sends within less are one burst


@dataclass(frozen=True, slots=True)
class Waves:
    """So many ``waves`` of answers, one in each ``period_s``, a third of which holds ``share`` of them."""

    period_s: float
    waves: int
    share: float


def _follow_each_other(numbers: FloatArray) -> bool:
    """Whether waves with these numbers, of each answer, followed each other: not where nearly all answers are in one, nor where
    most waves between have none, since the target served all requests at once.
    """
    present, sizes = np.unique(numbers, return_counts=True)
    return bool(sizes.max() <= _MOST_IN_ONE * numbers.size and 2 * present.size > present[-1] - present[0] + 1)


def is_burst(requests: Requests) -> bool:
    """Whether all requests that ended were sent at once, or nearly. One that the client cut off shows no end of the load."""
    known = ~np.isnan(requests.sent_ns) & ~np.isnan(requests.done_ns) & ~requests.cut_off
    if not known.any():
        return False
    start_ns = float(requests.scheduled_ns.min())
    sending_ns, lasted_ns = (float(times_ns[known].max()) - start_ns for times_ns in (requests.sent_ns, requests.done_ns))
    return sending_ns < BURST * lasted_ns


def waited_in_batches(requests: Requests) -> bool:
    """Whether answers of a burst waited for others to end: at least a quarter, for half of what the first answers took.

    Where a target serves all requests at once, answers of a few lengths, each a multiple of the shortest, end in waves too. The
    first token of a stream shows how long it waited. An answer in one response waited for what it took beyond its tokens at the
    pace of the first answers; one of unknown length counts as one that waited.
    """
    took_ns = (requests.done_ns - requests.sent_ns)[requests.done]
    tokens = requests.output_tokens[requests.done]
    first_ns = float(np.quantile(took_ns, 1.0 / MOST_WAVES))
    of_first = took_ns <= first_ns
    pace_ns = np.median(took_ns[of_first] / np.maximum(tokens[of_first], 1.0))
    of_tokens_ns = took_ns - np.nan_to_num(pace_ns * tokens, nan=-np.inf)
    is_stream = np.diff(requests.token_starts)[requests.done] > 1
    waits_ns = np.where(is_stream, (requests.first_token_ns - requests.sent_ns)[requests.done], of_tokens_ns)
    return bool(np.mean(waits_ns >= first_ns / 2) >= LEAST_WAITED)  # what was sent later waits for less than the first took


def waves_of(requests: Requests) -> Waves | None:
    """The waves in which the answers of a closed loop or of a burst end; None where there are none, more than 20, or fewer than
    100 answers.

    The period is that near an E2E latency with the strongest first harmonic (Rayleigh's test of directions): the median one, or
    of a burst that of the first wave, since later ones wait for it.
    """
    ends_ns = np.sort(requests.done_ns[requests.done])
    if ends_ns.size < FEWEST_VALUES:
        return None
    took_ns, burst = (requests.done_ns - requests.sent_ns)[requests.done], is_burst(requests)
    latency_ns = float(np.quantile(took_ns, 1.0 / MOST_WAVES if burst else 0.5))
    span_ns = float(ends_ns[-1] - ends_ns[0])
    if not 0.0 < latency_ns <= span_ns <= MOST_WAVES * latency_ns:
        return None
    vectors = [complex(np.exp(2j * np.pi * ends_ns / (latency_ns * factor)).mean()) for factor in _PERIODS]
    strongest = int(np.argmax(np.abs(vectors)))
    period_ns = latency_ns * float(_PERIODS[strongest])
    middles = ends_ns / period_ns - np.angle(vectors[strongest]) / (2.0 * np.pi)
    if burst and not _follow_each_other(np.rint(middles)):
        return None
    from_middle = (middles + 0.5) % 1.0 - 0.5
    share = float(np.mean(np.abs(from_middle) <= 1.0 / 6.0))
    return Waves(period_ns / 1e9, round(span_ns / period_ns) + 1, share) if share >= IN_STEP else None
