"""Which of several targets each request of a schedule goes to: drawn before the run, whatever the number of workers.

Requests, or with SESSION whole sessions, are dealt out in blocks: of as many in a row as there are targets each goes to another
target, in an order that the seed draws. A fixed order would keep every n-th request with one target: those of one worker, and
those of one kind in a file that alternates between kinds.
"""

from __future__ import annotations

import numpy as np

from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import Balance
from workloads.schedule.schedule import AnySchedule, session_numbers


def assigned_targets(schedule: AnySchedule, balance: Balance, targets: int) -> tuple[int, ...]:
    """The target of each request, from 0 to ``targets`` - 1, shape [requests].

    With LEAST_IN_FLIGHT it is that of ROUND_ROBIN, for requests that are sent while several targets have as few in flight.
    With SESSION a request without a session is dealt out as a session of its own.
    """
    numbers = session_numbers(schedule.requests) if balance is Balance.SESSION else range(len(schedule))
    dealt = _dealt(max(numbers, default=-1) + 1, targets, schedule.seed)
    return tuple(dealt[number] for number in numbers)


def _dealt(count: int, targets: int, seed: int) -> list[int]:
    if targets == 1:
        return [0] * count
    blocks = np.tile(np.arange(targets), (-(-count // targets), 1))
    dealt: list[int] = generator(seed, Stream.TARGETS).permuted(blocks, axis=1).ravel()[:count].tolist()
    return dealt
