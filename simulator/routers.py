"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np

from simulator.arrays import IntArray

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
    in_advance = dealt(router, replicas, requests, seed)
    if in_advance is not None:
        return lambda number, outstanding: in_advance[number]
    if router is Router.LEAST_OUTSTANDING:
        return lambda number, outstanding: _least(outstanding, number % replicas)
    one, other = _drawn(replicas, requests, seed).tolist()
    return lambda number, outstanding: min(one[number], other[number], key=outstanding.__getitem__)


def dealt(router: Router, replicas: int, requests: int, seed: int) -> list[int] | None:
    """The replica of each request that is sent, where it depends on no answer; else None."""
    if replicas == 1:
        return [0] * requests
    if router is Router.RANDOM:
        drawn: list[int] = _drawn(replicas, requests, seed)[0].tolist()
        return drawn
    if router is Router.ROUND_ROBIN:
        return [number % replicas for number in range(requests)]
    return None


def _drawn(replicas: int, requests: int, seed: int) -> IntArray:
    """Two replicas for each request, at random; shape [2, requests]."""
    return np.random.default_rng([seed, replicas]).integers(replicas, size=(2, requests))


def _least(outstanding: Sequence[int], begin: int) -> int:
    """The replica with the fewest, the first of them from ``begin`` on."""
    fewest = min(outstanding)
    replicas = len(outstanding)
    return next(at % replicas for at in range(begin, begin + replicas) if outstanding[at % replicas] == fewest)
