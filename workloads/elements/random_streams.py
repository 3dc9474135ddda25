"""Random streams: each purpose draws from its own stream of one seed, so that no draw shifts those of another purpose."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """The purposes. Their values are part of the meaning of a seed: never renumber."""

    ARRIVALS = 1
    INPUT_LENGTHS = 2
    OUTPUT_LENGTHS = 3
    TOKEN_IDS = 4
    WARM_UP = 5
    TEXTS = 6
    BLOCKS = 7
    TICKS = 8
    PREFIX_GROUPS = 9
    PREFIXES = 10
    PIECES = 11
    CLIENT_PROFILES = 31
    LENGTH_PAIRS = 41
    TRAFFIC_CLASSES = 51
    CANCELLATIONS = 52
    PROBES = 53
    TARGETS = 61


def generator(seed: int, stream: Stream, *path: int) -> np.random.Generator:
    """A generator (PCG64, the same on every platform) that depends on ``seed``, ``stream`` and ``path`` alone.

    ``path`` numbers the parts of a stream, such as requests, each of which draws any number of times. numpy pads what it is
    given with zeros, so a path that ends in 0 is the shorter one: where a stream has paths of two lengths, the longer ends
    in 1 or more.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, int(stream), *path])))
