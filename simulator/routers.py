"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np

from simulator.arrays import IntArray
from simulator.prefixes import Prefixes

Choose = Callable[[int, int, Sequence[int], Sequence[int]], int]
"""The replica of the n-th request that is sent, by n, its number, the requests that each replica has not answered yet, and the
replicas that take requests.
"""
MOST_MORE = 16  # requests in flight that a replica may have beyond the one with the fewest, to get what it has a prefix of
_CHANGING = 1 << 20  # no number of replicas: draws of their own
_OTHERS = 1  # draws of the second of two replicas
_LEAST_MATCH = 0.5  # of the blocks of a prompt


class Router(StrEnum):
    """The rule of a router."""

    RANDOM = "random"
    ROUND_ROBIN = "rr"
    LEAST_OUTSTANDING = "least_outstanding"  # in turn among equals
    TWO_CHOICES = "p2c"  # the one with fewer outstanding requests, of two different ones drawn at random
    PREFIX = "prefix"  # to whom at least half of the prompt was sent before, unless it has many more; else LEAST_OUTSTANDING
    SESSION = "session"  # where the session's first request went, by LEAST_OUTSTANDING


def chooser(router: Router, replicas: int, sessions: Sequence[int], prefixes: Prefixes | None, seed: int) -> Choose:
    """The rule for requests of these ``sessions`` to ``replicas``, at least 1. Deterministic for ``seed``.

    ``prefixes`` are those of the requests, None where their prompts are unknown, or no replica has a cache.
    """
    in_advance = dealt(router, replicas, len(sessions), seed)
    if in_advance is not None:
        return lambda number, request, outstanding, taking: in_advance[number]
    if router is Router.TWO_CHOICES:
        first = _drawn(replicas, len(sessions), seed)[0]
        further = np.random.default_rng([seed, replicas, _OTHERS]).integers(1, replicas, size=len(sessions))
        one, other = first.tolist(), ((first + further) % replicas).tolist()
        return lambda number, request, outstanding, taking: min(one[number], other[number], key=outstanding.__getitem__)
    return _by_load(router, sessions, prefixes)


def chooser_of_changing(router: Router, sessions: Sequence[int], prefixes: Prefixes | None, seed: int) -> Choose:
    """As ``chooser``, for replicas whose number changes."""
    if router is Router.ROUND_ROBIN:
        return lambda number, request, outstanding, taking: taking[number % len(taking)]
    one, other = np.random.default_rng([seed, _CHANGING]).random((2, len(sessions))).tolist()
    if router is Router.RANDOM:
        return lambda number, request, outstanding, taking: taking[int(one[number] * len(taking))]
    if router is Router.TWO_CHOICES:
        return lambda number, request, outstanding, taking: min(
            _two_of(taking, one[number], other[number]), key=outstanding.__getitem__
        )
    return _by_load(router, sessions, prefixes)


def _two_of(taking: Sequence[int], one: float, other: float) -> tuple[int, int]:
    """Two different replicas, the same twice where there is one, by two numbers from 0 to below 1."""
    first = int(one * len(taking))
    second = (first + 1 + int(other * (len(taking) - 1))) % len(taking)
    return taking[first], taking[second]


def _by_load(router: Router, sessions: Sequence[int], prefixes: Prefixes | None) -> Choose:
    if router is Router.SESSION:
        return _BySession(sessions)
    if router is Router.PREFIX and prefixes is not None:
        return _ByPrefix(prefixes)
    return lambda number, request, outstanding, taking: _least(outstanding, taking, number)


def dealt(router: Router, replicas: int, requests: int, seed: int) -> list[int] | None:
    """The replica of each request that is sent, where it depends on no answer and no prompt; else None."""
    if replicas == 1:
        return [0] * requests
    if router is Router.RANDOM:
        drawn: list[int] = _drawn(replicas, requests, seed)[0].tolist()
        return drawn
    if router is Router.ROUND_ROBIN:
        return [number % replicas for number in range(requests)]
    return None


class _BySession:
    def __init__(self, sessions: Sequence[int]) -> None:
        self._sessions = sessions
        self._replica_of: dict[int, int] = {}

    def __call__(self, number: int, request: int, outstanding: Sequence[int], taking: Sequence[int]) -> int:
        session = self._sessions[request]
        if self._replica_of.get(session) not in taking:
            self._replica_of[session] = _least(outstanding, taking, number)
        return self._replica_of[session]


class _ByPrefix:
    def __init__(self, prefixes: Prefixes) -> None:
        self._blocks = prefixes.blocks
        self._sent_to: dict[int, set[int]] = {}  # by block

    def __call__(self, number: int, request: int, outstanding: Sequence[int], taking: Sequence[int]) -> int:
        fewest = _least(outstanding, taking, number)
        blocks = self._blocks[request]
        having = self._with_most_of(blocks, taking)
        chosen = min(having, key=lambda replica: (outstanding[replica], replica), default=fewest)
        if outstanding[chosen] > outstanding[fewest] + MOST_MORE:
            chosen = fewest
        for block in blocks:
            self._sent_to.setdefault(block, set()).add(chosen)
        return chosen

    def _with_most_of(self, blocks: Sequence[int], taking: Sequence[int]) -> set[int]:
        """The replicas of ``taking`` that got the longest part of the prompt before; none where it is short."""
        replicas: set[int] = set()
        for place, block in enumerate(blocks):
            others = self._sent_to.get(block, set())
            longer = replicas & others if place else others.intersection(taking)
            if not longer:
                return replicas if place >= _LEAST_MATCH * len(blocks) else set()
            replicas = longer
        return replicas


def _drawn(replicas: int, requests: int, seed: int) -> IntArray:
    """Two replicas for each request, at random; shape [2, requests]."""
    return np.random.default_rng([seed, replicas]).integers(replicas, size=(2, requests))


def _least(outstanding: Sequence[int], taking: Sequence[int], number: int) -> int:
    """The replica of ``taking`` with the fewest; of several the first one from the ``number``-th on, counted round."""
    each = [outstanding[replica] for replica in taking]
    fewest, replicas = min(each), len(each)
    return next(taking[at % replicas] for at in range(number, number + replicas) if each[at % replicas] == fewest)
