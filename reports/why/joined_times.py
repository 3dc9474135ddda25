"""Times that a server kept of requests, joined with the requests of a run.

By the client's id of a request where the server has it, as Triton's trace does. trtllm-serve's ``/perf_metrics`` has ids of its
own that no answer repeats, so that its entries are joined by their stamps, which must count on the client's clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from bench_records.record import LATEST_STAMP_NS
from reports.errors import ServerTimesError
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray

TIMES_COLUMNS = ("server_arrival_ns", "server_queue_ns", "server_prefill_ns", "server_decode_ns")
_TOLERANCE_NS = 1_000_000  # of the run's start on the monotonic clock
_LONGEST_RETURN_NS = 10_000_000_000
_NEAREST = 32  # entries that are compared with a request
_HALF = _NEAREST // 2
_ONE_STEP_NS = 1_000_000  # between the last tokens of two answers that one step of an engine ended, at most
_LEAST_SPREAD_NS = 20_000.0  # of a delay between two stamps of one event
_AT_ONCE = 8_192  # requests that are compared at once: 2 MB for each delay
_ROUNDS = 3  # in each, the usual delays are those of the join before
_BLOCKS, _BLOCK = 8, 1_024  # of requests, from which the usual delays are known
_ROUNDS_AT_ONCE = 8


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
        return 0 < self.arrival_ns <= self.started_ns <= self.first_ns <= self.last_ns <= LATEST_STAMP_NS


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
    some = pairs.of_some_requests()
    chosen = some.cheapest(some.distance_ns)
    for _ in range(_ROUNDS):
        usual, spread = some.usual_delays(chosen)
        chosen = some.matched(some.cost(usual, spread))
    chosen = pairs.matched(pairs.cost(*some.usual_delays(chosen)))
    request, entry = pairs.request[chosen], pairs.entry[chosen]
    left = _left_over(own[places], columns, request, entry)
    numbers = zip(np.append(request, left[0]).tolist(), np.append(entry, left[1]).tolist(), strict=True)
    return {int(places[ours]): ended[theirs] for ours, theirs in numbers}


def _left_over(
    requests: FloatArray, entries: FloatArray, request: NDArray[np.int64], entry: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of the requests and entries beside those that were joined, ``request`` with ``entry``, in the order of sends and
    arrivals: of the steps in which as many answers ended as the client got, so that no entry belongs to another client.
    """
    ends = _ends(requests, entries)
    steps = _Steps.of(entries)
    of_request = np.where(ends > 0, steps.of_entry[np.maximum(ends - 1, 0)], -1)
    n = len(steps.begins) - 1
    own = np.setdiff1d(np.flatnonzero(of_request >= 0), request)
    free = np.setdiff1d(np.arange(len(entries)), entry)
    whole = np.bincount(of_request[of_request >= 0], minlength=n) == np.diff(steps.begins)
    same = whole & (np.bincount(of_request[own], minlength=n) == np.bincount(steps.of_entry[free], minlength=n))
    own, free = own[same[of_request[own]]], free[same[steps.of_entry[free]]]
    own = own[np.lexsort((requests[own, 0], of_request[own]))]
    free = free[np.lexsort((entries[free, 0], steps.of_entry[free]))]
    fitting = _fitting(requests, entries, own, free[:, None])
    return fitting[0], fitting[1]


def _ends(requests: FloatArray, entries: FloatArray) -> NDArray[np.int64]:
    """For each request the number of entries whose last tokens came before its own."""
    ends: NDArray[np.int64] = np.searchsorted(entries[:, 2], requests[:, 2] + _TOLERANCE_NS, side="right")
    return ends


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The pairs of a request and an entry that could belong together, by their numbers, shape [pairs]; those of a request are
    neighbours.

    ``delays_ns``, shape [pairs, 3], are those from the send to the arrival, and of the first and of the last token. ``crowded``
    are pairs of a request with which not all entries of a step were compared, ``sent_ns`` the sends, and ``distance_ns`` how
    far request and entry are apart before the usual delays are known; each has the shape [pairs].
    """

    request: NDArray[np.int64]
    entry: NDArray[np.int64]
    delays_ns: FloatArray
    crowded: NDArray[np.bool_]
    sent_ns: FloatArray
    distance_ns: FloatArray

    @classmethod
    def of(cls, requests: FloatArray, entries: FloatArray) -> _Pairs:
        """``requests``, shape [n, 3], are sends, first and last tokens on the server's clock, ``entries``, shape [m, 3],
        arrivals, first and last tokens, in the order of their last tokens.

        A request is compared with entries whose last tokens came before its own. Where the steps of the engine end more answers
        than are compared, these are those of the two last steps that arrived about when the request would have arrived.
        """
        ends = _ends(requests, entries)
        steps = _Steps.of(entries)
        crowded = steps.begin_of_two(ends) < ends - _NEAREST
        usual_ns = steps.usual_arrival_ns(requests[crowded, 0], entries[:, 0], ends[crowded])
        arrives_ns = requests[:, 0] + usual_ns
        found = [_fitting(requests, entries, some, _last_before(ends[some])) for some in _parts(np.flatnonzero(~crowded))]
        found += [
            _fitting(requests, entries, some, steps.about(arrives_ns[some], ends[some]))
            for some in _parts(np.flatnonzero(crowded))
        ]
        request, entry, delays_ns = (np.concatenate(parts) for parts in zip(*found, strict=True))
        distance_ns = np.where(crowded[request], np.abs(delays_ns[:, 0] - usual_ns), delays_ns.sum(axis=1))
        return cls(request, entry, delays_ns, crowded[request], requests[request, 0], distance_ns)

    def of_some_requests(self) -> _Pairs:
        """The pairs of some requests, in blocks of neighbours: enough for the usual delays."""
        n = int(self.request.max()) + 1
        blocks = np.linspace(0, max(0, n - _BLOCK), _BLOCKS).astype(np.int64)
        chosen = np.zeros(n + _BLOCK, bool)
        chosen[(blocks[:, None] + np.arange(_BLOCK)).ravel()] = True
        kept = chosen[self.request]
        return _Pairs(*(getattr(self, field.name)[kept] for field in fields(self)))

    def usual_delays(self, chosen: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """The medians of the delays of these pairs, and how far from them delays usually are, both of shape [3]."""
        delays_ns = self.delays_ns[chosen]
        usual = np.median(delays_ns, axis=0)
        return usual, np.maximum(np.median(np.abs(delays_ns - usual), axis=0), _LEAST_SPREAD_NS)

    def cost(self, usual: FloatArray, spread: FloatArray) -> FloatArray:
        """How unusual the delays of each pair are."""
        cost: FloatArray = (((self.delays_ns - usual) / spread) ** 2).sum(axis=1)
        return cost

    def cheapest(self, cost: FloatArray) -> NDArray[np.int64]:
        """For each request with a pair the first of those of the lowest cost."""
        begins = np.flatnonzero(np.diff(self.request, prepend=-1))
        lowest = np.minimum.reduceat(cost, begins)
        low = np.flatnonzero(cost == np.repeat(lowest, np.diff(np.append(begins, len(cost)))))
        first: NDArray[np.int64] = low[np.flatnonzero(np.diff(self.request[low], prepend=-1))]
        return first

    def matched(self, cost: FloatArray) -> NDArray[np.int64]:
        """Pairs in which each request and each entry comes once at most.

        Outside crowds it is always the cheapest pair that is left: in each round those are taken that are the cheapest both of
        their request and of their entry, and what would take many rounds one by one. In a crowd, in which all
        may belong together, the request that was sent last has the first choice: fewer entries arrived after it than after any
        other, so that each finds one.
        """
        outside = np.flatnonzero(~self.crowded)
        left = outside[np.argsort(cost[outside], kind="stable")]
        taken = []
        for _ in range(_ROUNDS_AT_ONCE):
            request, entry = self.request[left], self.entry[left]
            both = _is_first(request) & _is_first(entry)
            taken.append(left[both])
            left = left[~(_is_among(request, request[both]) | _is_among(entry, entry[both]))]
        taken.append(self._one_by_one(left, np.concatenate(taken)))
        taken.append(self._last_sent_first(cost, np.concatenate(taken)))
        return np.concatenate(taken)

    def _one_by_one(self, left: NDArray[np.int64], taken: NDArray[np.int64]) -> NDArray[np.int64]:
        """The pairs in ``left`` whose request and entry are in none that was taken before."""
        requests, entries = set(self.request[taken].tolist()), set(self.entry[taken].tolist())
        also = []
        for pair, request, entry in zip(left.tolist(), self.request[left].tolist(), self.entry[left].tolist(), strict=True):
            if request not in requests and entry not in entries:
                requests.add(request)
                entries.add(entry)
                also.append(pair)
        return np.array(also, np.int64)

    def _last_sent_first(self, cost: FloatArray, taken: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each request in a crowd, the last one first, its cheapest pair whose entry is in none that was taken before."""
        crowd = np.flatnonzero(self.crowded)
        begins = np.flatnonzero(np.diff(self.request[crowd], prepend=-1))
        widths = np.diff(np.append(begins, len(crowd)))
        places = begins[:, None] + np.arange(widths.max(initial=0))
        pairs = crowd[np.minimum(places, len(crowd) - 1)]
        costs = np.where(places < (begins + widths)[:, None], cost[pairs], np.inf)
        pairs = np.take_along_axis(pairs, np.argsort(costs, axis=1, kind="stable"), axis=1)
        is_taken = bytearray(int(self.entry.max(initial=-1)) + 1)
        for entry in self.entry[taken].tolist():
            is_taken[entry] = True
        also = []
        for row in np.argsort(-self.sent_ns[crowd[begins]], kind="stable").tolist():
            own = pairs[row, : widths[row]]
            for place, entry in enumerate(self.entry[own].tolist()):
                if not is_taken[entry]:
                    is_taken[entry] = True
                    also.append(int(own[place]))
                    break
        return np.array(also, np.int64)


@dataclass(frozen=True, eq=False)
class _Steps:
    """The entries by the step of the engine that ended them: each at most ``_ONE_STEP_NS`` after the one before.

    ``begins``, shape [steps + 1], are the first entries of the steps, and m; ``of_entry``, shape [m], is the step of each.
    ``by_arrival``, shape [m], has the entries of each step in the order of their arrivals, and ``keys`` the step and the rank
    of each of these. ``arrivals``, shape [m], are sorted.
    """

    begins: NDArray[np.int64]
    of_entry: NDArray[np.int64]
    by_arrival: NDArray[np.int64]
    keys: NDArray[np.int64]
    arrivals: FloatArray

    @classmethod
    def of(cls, entries: FloatArray) -> _Steps:
        is_first = np.diff(entries[:, 2], prepend=-np.inf) > _ONE_STEP_NS
        of_entry = np.cumsum(is_first) - 1
        arrivals = np.sort(entries[:, 0])
        keys = of_entry * (len(entries) + 1) + np.searchsorted(arrivals, entries[:, 0])
        by_arrival = np.argsort(keys, kind="stable")
        return cls(np.append(np.flatnonzero(is_first), len(entries)), of_entry, by_arrival, keys[by_arrival], arrivals)

    def begin_of_two(self, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first entry of the step before that of the last entry below each of ``ends``."""
        begins: NDArray[np.int64] = self.begins[np.maximum(self.of_entry[np.maximum(ends - 1, 0)] - 1, 0)]
        return begins

    def usual_arrival_ns(self, sent_ns: FloatArray, arrival_ns: FloatArray, ends: NDArray[np.int64]) -> float:
        """The mean arrival of the entries of a step less the mean send of its requests, the median of these steps; 0 without.

        It is the mean delay whichever entry belongs to which request.
        """
        if not ends.size:
            return 0.0
        step, of_request = np.unique(self.of_entry[ends - 1], return_inverse=True)
        sent = np.bincount(of_request, sent_ns - sent_ns[0]) / np.bincount(of_request)
        arrived = np.bincount(self.of_entry, arrival_ns - sent_ns[0]) / np.diff(self.begins)
        return max(0.0, float(np.median(arrived[step] - sent)))

    def about(self, arrives_ns: FloatArray, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """The entries of these two steps that arrived about these times, half of each, shape [n, _NEAREST]; -1 is none."""
        last = self.of_entry[ends - 1]
        return np.concatenate([self._of_step(step, arrives_ns) for step in (last, last - 1)], axis=1)

    def _of_step(self, step: NDArray[np.int64], arrives_ns: FloatArray) -> NDArray[np.int64]:
        begin, end = self.begins[step, None], self.begins[step + 1, None]
        rank = np.searchsorted(self.arrivals, arrives_ns)
        middle = np.searchsorted(self.keys, step * (len(self.arrivals) + 1) + rank)[:, None]
        place = np.maximum(np.minimum(middle - _HALF // 2, end - _HALF), begin) + np.arange(_HALF)
        entries: NDArray[np.int64] = self.by_arrival[np.minimum(place, len(self.keys) - 1)]
        return np.where((place < end) & (step[:, None] >= 0), entries, -1)


def _last_before(ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The last entries below each of ``ends``, shape [n, _NEAREST]; those below 0 are none."""
    entries: NDArray[np.int64] = ends[:, None] - np.arange(1, _NEAREST + 1)
    return entries


def _parts(numbers: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    return (numbers[begin : begin + _AT_ONCE] for begin in range(0, max(len(numbers), 1), _AT_ONCE))


def _is_first(ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each of ``ids`` comes for the first time."""
    places = np.arange(len(ids))
    first = np.empty(ids.max(initial=0) + 1, np.int64)
    first[ids[::-1]] = places[::-1]  # of several values for one place, the last one stays
    is_first: NDArray[np.bool_] = first[ids] == places
    return is_first


def _is_among(ids: NDArray[np.int64], some: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each of ``ids`` is one of ``some`` of them."""
    known = np.zeros(ids.max(initial=0) + 1, bool)
    known[some] = True
    among: NDArray[np.bool_] = known[ids]
    return among


def _fitting(
    requests: FloatArray, entries: FloatArray, numbers: NDArray[np.int64], others: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
    """The pairs of the requests ``numbers``, shape [n], with the entries ``others``, shape [n, k], that could belong together,
    and their delays. An entry below 0 is none.
    """
    request, entry = np.broadcast_to(numbers[:, None], others.shape)[others >= 0], others[others >= 0]
    delays_ns = np.column_stack(
        [
            entries[entry, 0] - requests[request, 0],
            requests[request, 1] - entries[entry, 1],
            requests[request, 2] - entries[entry, 2],
        ]
    )
    arrived_before = entries[entry, 0] <= requests[request, 1]
    at_once = requests[request, 1] == requests[request, 2]
    delays_ns[at_once, 1] = 0.0  # all of an answer at once says nothing of its first token
    fit = (delays_ns >= -_TOLERANCE_NS).all(axis=1) & (delays_ns[:, 2] <= _LONGEST_RETURN_NS) & arrived_before
    return request[fit], entry[fit], delays_ns[fit]


def _arrival(found: Stamps) -> int:
    return found.arrival_ns


def _last(found: Stamps) -> int:
    return found.last_ns
