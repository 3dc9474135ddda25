"""Random numbers: every purpose draws from its own stream of one seed, so that no draw can shift another's."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """What a stream of random numbers is for. The values are part of what a seed means: never renumber."""

    ARRIVALS = 1
    INPUT_LENGTHS = 2
    OUTPUT_LENGTHS = 3
    TOKEN_IDS = 4
    WARM_UP = 5


def generator(seed: int, stream: Stream) -> np.random.Generator:
    """A generator that depends on ``seed`` and ``stream`` alone (PCG64, the same on every platform)."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, int(stream)])))
