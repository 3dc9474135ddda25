"""When a paced user begins its requests, and how many users follow a rate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workloads.arrivals.law import ArrivalLaw
from workloads.arrivals.rate_profile import RateProfile
from workloads.elements.random_streams import Stream, generator

_DRAWN_AT_ONCE = 256


def planned_starts_s(law: ArrivalLaw, mean_gap_s: float, seed: int, user: int) -> Iterator[float]:
    """The times in s after a user's own start at which its requests are due, without end, with gaps of ``law``.

    The first is at a random part of the mean gap, so that users that start together do not send together. Each user draws from
    a stream of its own.
    """
    at_s = float(generator(seed, Stream.ARRIVALS, user).uniform(0.0, mean_gap_s))
    yield at_s
    for part in range(2**31):
        block = law.at(1.0 / mean_gap_s).offsets_ns(_DRAWN_AT_ONCE + 1, _seed_of(seed, user, part)) / 1e9
        for gap_s in np.diff(block).tolist():
            at_s += gap_s
            yield at_s


def users_at(profile: RateProfile, at_s: float, users_per_rate: float) -> int:
    """The number of users at a time."""
    return users_at_rate(profile.rate_at(at_s), users_per_rate)


def users_at_rate(rate: float, users_per_rate: float) -> int:
    """The nearest number of users, at least 1 where the rate is not 0."""
    return max(1, round(rate * users_per_rate)) if rate > 0 else 0


def _seed_of(seed: int, user: int, part: int) -> int:
    return int(np.random.SeedSequence([seed, user, part]).generate_state(1, np.uint64)[0])
