"""Times that a server kept of requests, joined with the requests of a run.

By the client's id of a request where the server has it, as Triton's trace does. trtllm-serve's ``/perf_metrics`` has ids of its
own that no answer repeats, so that its entries are joined by their stamps, which must count on the client's clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reports.errors import ServerTimesError
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray

TIMES_COLUMNS = ("server_arrival_ns", "server_queue_ns", "server_prefill_ns", "server_decode_ns")
LARGEST_NS = 1 << 53
_TOLERANCE_NS = 1_000_000  # of the run's start on the monotonic clock
_LONGEST_RETURN_NS = 10_000_000_000
_NEAREST = 32  # entries whose last token came before a request's, that are compared with it
_LEAST_SPREAD_NS = 20_000.0  # of a delay between two stamps of one event
_AT_ONCE = 8_192  # requests that are compared at once: 2 MB for each delay
_ROUNDS = 3  # in each, the usual delays are those of the join before


@dataclass(frozen=True, slots=True)
class Stamps:
    """One request by its server, in ns of the monotonic clock of its host: when the engine took it in, began with it, had its
    first token and its last one. ``name`` is the client's id of it, "" where the server has none.
    """

    arrival_ns: int
    started_ns: int
    first_ns: int
    last_ns: int
    name: str = ""

    @property
    def in_order(self) -> bool:
        return 0 < self.arrival_ns <= self.started_ns <= self.first_ns <= self.last_ns <= LARGEST_NS


def joined(requests: Requests, times: Sequence[Stamps], start_ns: int | None) -> Requests:
    """The requests with these times, as far as they have any. ``start_ns`` is the run's start on the monotonic clock.

    Raises ServerTimesError where nothing can be joined.
    """
    fits = _by_name(requests, times, start_ns) if any(found.name for found in times) else {}
    if not fits and start_ns is not None:
        fits = _by_stamps(requests, [found for found in times if not found.name], start_ns)
    if not fits:
        raise ServerTimesError("none of the server's times belongs to a request of the run, or the server has another clock")
    columns = {name: getattr(requests, name).copy() for name in TIMES_COLUMNS}
    for place, found in fits.items():
        columns["server_arrival_ns"][place] = found.arrival_ns
        columns["server_queue_ns"][place] = found.started_ns - found.arrival_ns
        columns["server_prefill_ns"][place] = found.first_ns - found.started_ns
        columns["server_decode_ns"][place] = found.last_ns - found.first_ns
    return replace(requests, **columns)


def _by_name(requests: Requests, times: Sequence[Stamps], start_ns: int | None) -> dict[int, Stamps]:
    """By position of the request. Warm-ups and other runs have the same names: where the clock is the client's, a request of
    the run arrived after it was sent and before it was done; else the last one of a name counts.
    """
    place_of = {str(index): place for place, index in enumerate(requests.index.tolist())}
    named = [(place_of[found.name], found) for found in sorted(times, key=_arrival) if found.name in place_of]
    if start_ns is None:
        return dict(named)
    from_ns, to_ns = requests.sent_ns + start_ns - _TOLERANCE_NS, requests.done_ns + start_ns + _TOLERANCE_NS
    inside = {place: found for place, found in named if from_ns[place] <= found.arrival_ns <= to_ns[place]}
    return inside or dict(named)


def _by_stamps(requests: Requests, times: Sequence[Stamps], start_ns: int) -> dict[int, Stamps]:
    """By position of the request: those pairs of a request and an entry first whose delays are the most usual ones.

    The delays are from the send to the arrival, and from the first and from the last token at the server to those at the
    client. Requests that could be swapped were sent and answered at nearly the same times.
    """
    ended = sorted(times, key=_last)
    columns = np.array([(found.arrival_ns, found.first_ns, found.last_ns) for found in ended], np.float64).reshape(-1, 3)
    own = np.column_stack([requests.sent_ns, requests.first_token_ns, requests.last_token_ns]) + start_ns
    places = np.flatnonzero(~np.isnan(own).any(axis=1))
    if not places.size or not len(ended):
        return {}
    pairs = _Pairs.of(own[places], columns)
    if not pairs.delays_ns.size:
        return {}
    usual = np.median(pairs.delays_ns[pairs.closest()], axis=0)
    spread = np.full(3, _LEAST_SPREAD_NS)
    chosen = np.empty(0, np.int64)
    for _ in range(_ROUNDS):
        chosen = pairs.matched((((pairs.delays_ns - usual) / spread) ** 2).sum(axis=1))
        delays_ns = pairs.delays_ns[chosen]
        usual = np.median(delays_ns, axis=0)
        spread = np.maximum(np.median(np.abs(delays_ns - usual), axis=0), _LEAST_SPREAD_NS)
    return {int(places[pairs.request[k]]): ended[pairs.entry[k]] for k in chosen.tolist()}


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The pairs of a request and an entry that could belong together, by their numbers, shape [pairs], ordered by request.

    ``delays_ns``, shape [pairs, 3], are those from the send to the arrival, and of the first and of the last token.
    """

    request: NDArray[np.int64]
    entry: NDArray[np.int64]
    delays_ns: FloatArray

    @classmethod
    def of(cls, requests: FloatArray, entries: FloatArray) -> _Pairs:
        """``requests``, shape [n, 3], are sends, first and last tokens on the server's clock, ``entries``, shape [m, 3],
        arrivals, first and last tokens, in the order of their last tokens.
        """
        found = list(_pairs(requests, entries))
        request, entry, delays_ns = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return cls(request, entry, delays_ns)

    def closest(self) -> NDArray[np.int64]:
        """For each request with a pair the one with the shortest delays."""
        order = np.lexsort((self.delays_ns.sum(axis=1), self.request))
        first: NDArray[np.int64] = order[np.diff(self.request[order], prepend=-1) > 0]
        return first

    def matched(self, cost: FloatArray) -> NDArray[np.int64]:
        """Pairs in which each request and each entry comes once at most: always the cheapest one that is left.

        In each round those pairs are taken that are the cheapest both of their request and of their entry.
        """
        left = np.argsort(cost, kind="stable")
        taken = []
        while left.size:
            _, of_request = np.unique(self.request[left], return_index=True)
            _, of_entry = np.unique(self.entry[left], return_index=True)
            both = left[np.intersect1d(of_request, of_entry)]
            taken.append(both)
            used = np.isin(self.request[left], self.request[both]) | np.isin(self.entry[left], self.entry[both])
            left = left[~used]
        return np.concatenate(taken)


def _pairs(requests: FloatArray, entries: FloatArray) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]]:
    last_ns = entries[:, 2]
    for begin in range(0, len(requests), _AT_ONCE):
        some = requests[begin : begin + _AT_ONCE]
        ends = np.searchsorted(last_ns, some[:, 2] + _TOLERANCE_NS, side="right")
        entry = ends[:, None] - np.arange(1, _NEAREST + 1)
        request = np.broadcast_to(np.arange(begin, begin + len(some))[:, None], entry.shape)
        request, entry = request[entry >= 0], entry[entry >= 0]
        delays_ns = np.column_stack(
            [
                entries[entry, 0] - requests[request, 0],
                requests[request, 1] - entries[entry, 1],
                requests[request, 2] - entries[entry, 2],
            ]
        )
        arrived_before = entries[entry, 0] <= requests[request, 1]
        delays_ns[requests[request, 1] == requests[request, 2], 1] = (
            0.0  # all of an answer at once says nothing of its first token
        )
        fit = (delays_ns >= -_TOLERANCE_NS).all(axis=1) & (delays_ns[:, 2] <= _LONGEST_RETURN_NS) & arrived_before
        yield request[fit], entry[fit], delays_ns[fit]


def _arrival(found: Stamps) -> int:
    return found.arrival_ns


def _last(found: Stamps) -> int:
    return found.last_ns
