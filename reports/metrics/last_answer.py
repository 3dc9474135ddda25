"""Whether a target stopped answering during a run, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bench_records.record import FAILED_BY_TARGET
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
    no chance with the share of those before it that failed without a token.
    """
    came_ns = np.concatenate([requests.token_times_ns, requests.done_ns[requests.done]])
    if not came_ns.size:
        return None
    at_ns = float(came_ns.max())
    failed = np.isin(requests.outcome, [outcome.value for outcome in FAILED_BY_TARGET])
    after = requests.sent_ns > at_ns
    count = int(np.count_nonzero(after))
    unanswered = failed & ~requests.has_tokens  # one that was cut after a token had an answer until then
    before = np.count_nonzero(unanswered & ~after) / max(1, np.count_nonzero(requests.sent_ns <= at_ns))
    if count < FEWEST_FAILED or not failed[after].all() or (before > 0 and count * math.log(before) > math.log(CHANCE)):
        return None
    kinds, counts = np.unique(requests.outcome[after], return_counts=True)
    return LastAnswer(at_ns, count, str(kinds[counts.argmax()]))
