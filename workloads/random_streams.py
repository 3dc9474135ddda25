"""Random streams: one independent generator per purpose and seed, so that no draw can shift another purpose's."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """Purpose of a random stream. The values are part of the meaning of a seed: never renumber."""

    ARRIVALS = 1
    INPUT_LENGTHS = 2
    OUTPUT_LENGTHS = 3
    TOKEN_IDS = 4
    WARM_UP = 5


def generator(seed: int, stream: Stream) -> np.random.Generator:
    """A generator that depends on ``seed`` and ``stream`` only (PCG64, the same on every platform)."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, int(stream)])))
