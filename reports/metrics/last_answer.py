"""Whether a target stopped answering during a run, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bench_records.record import FAILED_BY_TARGET, TIMEOUTS
from reports.metrics.requests import Requests

FEWEST_FAILED = 5  # requests sent after the last answer
CHANCE = 1e-3  # that as many fail in a row where single requests do


@dataclass(frozen=True, slots=True)
class LastAnswer:
    """Nothing came after ``at_ns``, and all ``failed`` requests that were sent after it failed, most of them as ``kind``."""

    at_ns: float
    failed: int
    kind: str


def last_answer(requests: Requests) -> LastAnswer | None:
    """The last answer of a target that gave none to the end of the run; None where it answered to the end, or never.

    An answer is a token, or the end of a success. Five or more requests were sent after it, and so many that their failure is
    no chance with the share of those before it that failed without a token. Requests in flight that the target failed after it
    went with it, and are neither; one that timed out later may have hung before.
    """
    came_ns = np.concatenate([requests.token_times_ns, requests.done_ns[requests.done]])
    if not came_ns.size:
        return None
    at_ns = float(came_ns.max())
    failed = np.isin(requests.outcome, [outcome.value for outcome in FAILED_BY_TARGET])
    after = requests.sent_ns > at_ns
    count = int(np.count_nonzero(after))
    unanswered = failed & ~requests.has_tokens  # one that was cut after a token had an answer until then
    went_too = unanswered & (requests.done_ns > at_ns) & ~np.isin(requests.outcome, [outcome.value for outcome in TIMEOUTS])
    earlier = (requests.sent_ns <= at_ns) & ~went_too
    before = np.count_nonzero(unanswered & earlier) / max(1, np.count_nonzero(earlier))
    if count < FEWEST_FAILED or not failed[after].all() or (before > 0 and count * math.log(before) > math.log(CHANCE)):
        return None
    kinds, counts = np.unique(requests.outcome[after], return_counts=True)
    return LastAnswer(at_ns, count, str(kinds[counts.argmax()]))
