"""Whether the answers of a closed loop end in waves: its users start together, and equal answers keep them in step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.requests import Requests
from reports.statistics.autocorrelation import FEWEST_VALUES

_PERIODS = np.geomspace(0.8, 1.25, 61)  # median E2E latencies
IN_STEP = 0.6  # of the answers in one third of a period: of answers at any times, at most half, even in a run of few periods
MOST_WAVES = 20  # with more, one wave more or less is less than 5 % of a rate


@dataclass(frozen=True, slots=True)
class Waves:
    """So many ``waves`` of answers, one in each ``period_s``, a third of which holds ``share`` of them."""

    period_s: float
    waves: int
    share: float


def waves_of(requests: Requests) -> Waves | None:
    """The waves in which the answers of a closed loop end; None where there are none, more than 20, or fewer than 100 answers.

    The period is that near the median E2E latency with the strongest first harmonic (Rayleigh's test of directions).
    """
    ends_ns = np.sort(requests.done_ns[requests.done])
    if ends_ns.size < FEWEST_VALUES:
        return None
    latency_ns = float(np.median((requests.done_ns - requests.sent_ns)[requests.done]))
    span_ns = float(ends_ns[-1] - ends_ns[0])
    if not 0.0 < latency_ns <= span_ns <= MOST_WAVES * latency_ns:
        return None
    vectors = [complex(np.exp(2j * np.pi * ends_ns / (latency_ns * factor)).mean()) for factor in _PERIODS]
    strongest = int(np.argmax(np.abs(vectors)))
    period_ns = latency_ns * float(_PERIODS[strongest])
    from_middle = (ends_ns / period_ns - np.angle(vectors[strongest]) / (2.0 * np.pi) + 0.5) % 1.0 - 0.5
    share = float(np.mean(np.abs(from_middle) <= 1.0 / 6.0))
    return Waves(period_ns / 1e9, round(span_ns / period_ns) + 1, share) if share >= IN_STEP else None
