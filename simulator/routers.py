"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np

Choose = Callable[[int, Sequence[int]], int]
"""The replica of the n-th request that is sent, by the requests that each replica has not answered yet."""


class Router(StrEnum):
    """The rule of a router."""

    RANDOM = "random"
    ROUND_ROBIN = "rr"
    LEAST_OUTSTANDING = "least_outstanding"  # in turn among equals
    TWO_CHOICES = "p2c"  # the one with fewer outstanding requests, of two drawn at random


def chooser(router: Router, replicas: int, requests: int, seed: int) -> Choose:
    """The rule for at most ``requests`` requests to ``replicas``, at least 1. Deterministic for ``seed``."""
    if replicas == 1:
        return lambda number, outstanding: 0
    drawn = np.random.default_rng([seed, replicas]).integers(replicas, size=(2, requests)).tolist()
    match router:
        case Router.RANDOM:
            return lambda number, outstanding: drawn[0][number]
        case Router.ROUND_ROBIN:
            return lambda number, outstanding: number % replicas
        case Router.LEAST_OUTSTANDING:
            return lambda number, outstanding: _least(outstanding, number % replicas)
        case Router.TWO_CHOICES:
            return lambda number, outstanding: min(drawn[0][number], drawn[1][number], key=outstanding.__getitem__)


def _least(outstanding: Sequence[int], begin: int) -> int:
    """The replica with the fewest, the first of them from ``begin`` on."""
    fewest = min(outstanding)
    replicas = len(outstanding)
    return next(at % replicas for at in range(begin, begin + replicas) if outstanding[at % replicas] == fewest)
