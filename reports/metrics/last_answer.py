"""Whether a target stopped answering during a run, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench_records.record import FAILED_BY_TARGET, TIMEOUTS
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.probability import binomial_at_most

FEWEST_FAILED = 5  # requests sent after the last answer, or in flight then
CHANCE = 1e-3  # that as many fail where single requests do
SILENCE = 3.0  # times the longest silence before, after which requests in flight have waited for a target that hangs


@dataclass(frozen=True, slots=True)
class LastAnswer:
    """Nothing came after ``at_ns``, and all ``failed`` requests that were sent after it failed, most of them as ``kind``. Where
    these were too few, since users wait for their answers, ``in_flight`` of the failed ones had been sent before.
    """

    at_ns: float
    failed: int
    kind: str
    in_flight: int = 0


def last_answer(requests: Requests) -> LastAnswer | None:
    """The last answer of a target that gave none to the end of the run; None where it answered to the end, or never.

    An answer is a token, or the end of a success. Five or more requests were sent after it, and so many that their failure is
    no chance with the share of those before it that failed without a token. Requests in flight that the target failed after it
    went with it, and are neither; one that timed out later may have hung before. Where fewer were sent after it, those in
    flight may show that the target hung.
    """
    came_ns = np.concatenate([requests.token_times_ns, requests.done_ns[requests.done]])
    if not came_ns.size:
        return None
    at_ns = float(came_ns.max())
    failed = np.isin(requests.outcome, [outcome.value for outcome in FAILED_BY_TARGET])
    after = requests.sent_ns > at_ns
    count = int(np.count_nonzero(after))
    if count < FEWEST_FAILED:
        return _hung(requests, came_ns, at_ns, failed)
    unanswered = failed & ~requests.has_tokens  # one that was cut after a token had an answer until then
    went_too = unanswered & (requests.done_ns > at_ns) & ~np.isin(requests.outcome, [outcome.value for outcome in TIMEOUTS])
    earlier = (requests.sent_ns <= at_ns) & ~went_too
    before = np.count_nonzero(unanswered & earlier) / max(1, np.count_nonzero(earlier))
    if not failed[after].all() or (before > 0 and count * math.log(before) > math.log(CHANCE)):
        return None
    return LastAnswer(at_ns, count, _commonest(requests.outcome[after]))


def _hung(requests: Requests, came_ns: FloatArray, at_ns: float, failed: NDArray[np.bool_]) -> LastAnswer | None:
    """The last answer of a target that hung while all requests were in flight: that at ``at_ns``, of answers at ``came_ns``.

    The requests in flight that count were sent no earlier than the longest success takes, so that they had not hung before, and
    failed after a silence longer than the median success takes, and SILENCE times as long as any before. Their share of the
    requests sent in that time is no chance with the share of failures before.
    """
    failed_since = failed & (requests.done_ns > at_ns)
    if np.count_nonzero(failed_since) < FEWEST_FAILED or not requests.done.any():
        return None
    took_ns = (requests.done_ns - requests.sent_ns)[requests.done]
    silence_ns = max(float(np.median(took_ns)), SILENCE * float(np.diff(np.sort(came_ns)).max(initial=0.0)))
    sent = ~np.isnan(requests.sent_ns) & ~requests.withdrawn
    latest = sent & (requests.sent_ns > at_ns - took_ns.max())
    waited = latest & failed_since & (requests.done_ns > at_ns + silence_ns)
    after = sent & (requests.sent_ns > at_ns)
    count = int(np.count_nonzero(waited))
    if count < FEWEST_FAILED or not waited[after].all():
        return None
    share = float(failed[sent & ~latest].mean())  # among them is the longest success
    if share > 0 and binomial_at_most(count - 1, int(np.count_nonzero(latest)), share) < 1.0 - CHANCE:
        return None
    return LastAnswer(at_ns, count, _commonest(requests.outcome[waited]), int(np.count_nonzero(waited & ~after)))


def _commonest(outcomes: NDArray[np.str_]) -> str:
    kinds, counts = np.unique(outcomes, return_counts=True)
    return str(kinds[counts.argmax()])
