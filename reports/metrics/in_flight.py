"""Number of requests in the system over time: the load on the target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bench_records.record import Outcome
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray

_FEWEST_ARRIVALS = 20
_BEGINNING = 0.2  # of the sending, in which every queue fills
_FIRST = 0.1  # of the arrivals, whose times in the system are those of a target that has not fallen behind yet
_FEWEST_FIRST = 5
_MOST_OF_FIRST = 0.9  # of the first arrivals, by whose longest time the number in the system has nearly stopped to rise
_FILLED_AFTER = 1.5  # times that
_FELL_BEHIND = 3.0  # times that, in the second half of the arrivals
_LONGEST_BEGINNING = 2 / 3  # of the sending: the growth after it has too little of the run to be known
_PARTS = 12
_LAST_PARTS = 4
_REFERENCE_LOAD = 0.95  # of the target that the arrivals alone are compared with
_ARRIVALS_A_COUNT = 10  # on average, in the counts whose variance is the noise of a queue
_FEWEST_SPANS = 3  # in the sending, of the longest over which that variance is taken
_EVEN_SERVICE = 5.0  # a variance of service per arrival up to which answers do not come in bursts
_FROM_SERVICE, _FROM_ARRIVALS, _FROM_NUMBER = 20.0, 5.0, 1.0  # weights in what a queue at 90 % of capacity may grow by
_SPANS_OF_LONGEST = 8  # in the sending, of the longest over which the variance of the number's changes is taken


@dataclass(frozen=True, slots=True)
class QueueGrowth:
    """The number of requests in the system when it was lowest and at the end of the sending, and the ``arrivals`` between.

    ``completed_per_s`` is the rate at which requests ended between them, ``offered_per_s`` the configured rate of arrivals, or
    the actual one where none is configured.
    """

    in_system_before: float
    in_system_after: float
    arrivals: int
    offered_per_s: float
    completed_per_s: float

    @property
    def share_left_behind(self) -> float:
        """The share of the arrivals by which the target fell behind."""
        return (self.in_system_after - self.in_system_before) / self.arrivals


@dataclass(frozen=True, slots=True)
class QueueCourse:
    """How the number in the system moved over the sending, in standard deviations of what it changes by in that time:
    √(variance an arrival · arrivals). ``growth`` is its mean over the last third less the lowest mean of a twelfth before, and
    ``spread`` the highest mean of a twelfth less the lowest, both without the beginning of the sending. ``deviation`` is that
    standard deviation of the whole sending, in requests.

    At a target exactly at its capacity the number is a reflected Brownian motion (Kingman 1962; Harrison 1985), so that both
    have one distribution whatever the target (reports/capacity/stability.py). Below capacity both are near 0, and above it they
    rise with the root of the arrivals.
    """

    growth: float
    spread: float
    deviation: float


@dataclass(frozen=True)
class Queue:
    """The number of requests in the system over the sending, without its beginning, in which every queue fills.

    ``arrivals_ns`` and ``done_ns`` are the times of arrival and end of the requests that ended, shape [n] each; ``in_system``,
    shape [parts], is the mean number between neighbouring ``edges`` of equal parts of the rest.
    """

    arrivals_ns: FloatArray
    done_ns: FloatArray
    edges: FloatArray
    in_system: FloatArray

    def growth(self, rate_per_s: float | None = None) -> QueueGrowth | None:
        """The growth over the sending, where a target at 90 % of its capacity would hardly have it; else None.

        The first fifth, in which every queue fills, is left out, and more where answers take long: the number in the system
        rises until answers end as often as requests arrive, at any load. The statistic is the mean number in the system over
        the last third of the rest less the lowest mean of a twelfth before it. The growth of the same arrivals at a
        deterministic server (D/1) at a utilisation of 95 % by ``rate_per_s`` (None: the actual rate) is subtracted, so that a
        chance crowd of arrivals is no growth. The rest is compared with the noise of a queue: in heavy traffic a backlog is a
        reflected Brownian motion (Kingman 1962; Harrison 1985), which at load ρ has a mean of variance / (2 (1 − ρ)), the
        variance being that of the number's changes per arrival. The weights were set by simulation
        (benchmarks/load_findings.py). Requests sent in one burst show no growth, and neither does a sending that ends before
        the first answers show how long they take.
        """
        arrivals_ns, edges, queue = self.arrivals_ns, self.edges, self.in_system
        actual_per_ns = np.count_nonzero(arrivals_ns > edges[0]) / (edges[-1] - edges[0])
        offered_per_ns = actual_per_ns if rate_per_s is None else rate_per_s / 1e9
        even_ns = ends_at_even_server(np.sort(arrivals_ns), _REFERENCE_LOAD / offered_per_ns)
        growth = _last_above_lowest(queue)
        if growth - max(0.0, _last_above_lowest(mean_in_system(arrivals_ns, even_ns, edges))) <= self.chance_growth:
            return None
        lowest = int(np.argmin(queue[:-_LAST_PARTS]))
        middles = (edges[1:] + edges[:-1]) / 2
        span = (middles[lowest], middles[-1])
        if queue[-1] - queue[lowest] <= growth / 2:  # it was drained again
            return None
        return QueueGrowth(
            in_system_before=float(queue[lowest]),
            in_system_after=float(queue[-1]),
            arrivals=_count_within(arrivals_ns, span),
            offered_per_s=offered_per_ns * 1e9,
            completed_per_s=_count_within(self.done_ns, span) / (span[1] - span[0]) * 1e9,
        )

    @property
    def course(self) -> QueueCourse:
        """How the number moved over the sending."""
        variance = _variance_of_number(*self._counts)
        deviation = max(1.0, float(np.sqrt(variance * self._arrived)))
        whole = max(1.0, float(np.sqrt(variance * self.arrivals_ns.size)))
        return QueueCourse(_last_above_lowest(self.in_system) / deviation, float(np.ptp(self.in_system)) / deviation, whole)

    @property
    def chance_growth(self) -> float:
        """By how much the queue of a target at 90 % of its capacity may grow.

        Where answers end in bursts, as when a front end delivers late, bursts increase the variance of the number in the
        system over a few arrivals and not over many. So the smallest variance over longer spans counts.
        """
        came, went = self._counts
        of_arrivals = float(came.var()) * came.size / self._arrived
        of_service = _service_variance(came, went, 1)
        if of_service > _EVEN_SERVICE:
            longer = 2 ** np.arange(1, int(np.log2(came.size / _FEWEST_SPANS)) + 1)
            least = min(_service_variance(came, went, int(counts)) for counts in longer)
            of_service = min(of_service, max(_EVEN_SERVICE, least))
        of_number = float(np.sqrt(self.in_system.min()))
        return _FROM_SERVICE * of_service + _FROM_ARRIVALS * of_arrivals + _FROM_NUMBER * of_number

    @property
    def _arrived(self) -> int:
        """How many arrived after the beginning."""
        return int(np.count_nonzero(self.arrivals_ns > self.edges[0]))

    @cached_property
    def _counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many requests came and went in each of equal spans between the first and the last edge; shape [spans] each."""
        times = np.linspace(self.edges[0], self.edges[-1], max(_PARTS, self._arrived // _ARRIVALS_A_COUNT) + 1)
        came, went = (np.histogram(events_ns, times)[0] for events_ns in (self.arrivals_ns, self.done_ns))
        return came, went


def queue_growth(requests: Requests, rate_per_s: float | None = None) -> QueueGrowth | None:
    """The growth of the queue over the sending, as ``Queue.growth`` has it; None where too little of the sending is left."""
    queue = queue_of(requests)
    return None if queue is None else queue.growth(rate_per_s)


def queue_of(requests: Requests) -> Queue | None:
    """The queue of a run; None where too little of the sending is left without its beginning."""
    known = ~np.isnan(requests.sent_ns) & ~np.isnan(requests.done_ns)
    arrivals_ns, done_ns = requests.scheduled_ns[known], requests.done_ns[known]
    if arrivals_ns.size < _FEWEST_ARRIVALS or arrivals_ns.max() == arrivals_ns.min():
        return None
    first_ns, last_ns = float(arrivals_ns.min()), float(arrivals_ns.max())
    begin_ns = first_ns + max(_BEGINNING * (last_ns - first_ns), filling_ns(requests))
    if begin_ns > first_ns + _LONGEST_BEGINNING * (last_ns - first_ns):
        return None
    edges = np.linspace(begin_ns, last_ns, _PARTS + 1)
    return Queue(arrivals_ns, done_ns, edges, mean_in_system(arrivals_ns, done_ns, edges))


def filling_ns(requests: Requests) -> float:
    """How long the number in the system rises from the first arrival on at a target below its capacity; 0 where latencies
    show that the target fell behind.

    It is 1.5 times what nine tenths of the first tenth of the arrivals take, when an overloaded target has not fallen far
    behind yet. Where a queue grows evenly, the typical request of the second half takes up to eight times as long as those;
    at a target below its capacity it takes as long. For streamed answers only the typical wait for the first token counts:
    requests that a target leaves waiting from its beginning on, as one that takes the latest first, are no long answers.
    """
    known = np.flatnonzero(~np.isnan(requests.sent_ns) & ~np.isnan(requests.done_ns))
    ordered = known[np.argsort(requests.scheduled_ns[known], kind="stable")]
    took_ns = (requests.done_ns - requests.scheduled_ns)[ordered]
    waited_ns = (requests.first_token_ns - requests.scheduled_ns)[ordered]
    first = slice(max(_FEWEST_FIRST, int(_FIRST * known.size)))
    streamed = waited_ns[first] < took_ns[first]
    if np.any(streamed):
        answering_ns = (took_ns[first] - waited_ns[first])[streamed]
        long_ns = float(np.median(waited_ns[first][streamed]) + np.quantile(answering_ns, _MOST_OF_FIRST))
    else:
        long_ns = float(np.quantile(took_ns[first], _MOST_OF_FIRST))
    fell_behind = float(np.median(took_ns[known.size // 2 :])) > _FELL_BEHIND * long_ns
    return 0.0 if fell_behind else _FILLED_AFTER * long_ns


def _last_above_lowest(queue: FloatArray) -> float:
    """The mean of the last parts less the lowest of the others; ``queue`` has shape [_PARTS]."""
    return float(queue[-_LAST_PARTS:].mean() - queue[:-_LAST_PARTS].min())


def ends_at_even_server(arrivals_ns: FloatArray, service_ns: FloatArray | float) -> FloatArray:
    """When each arrival, shape [n] and sorted, leaves a server that spends ``service_ns``, shape [n] or the same for all, on
    each in turn (Lindley 1952).
    """
    services_ns = np.broadcast_to(service_ns, arrivals_ns.shape)
    backlog = np.cumsum(services_ns) - services_ns - arrivals_ns
    ends_ns: FloatArray = arrivals_ns + backlog - np.minimum.accumulate(backlog) + services_ns
    return ends_ns


def _variance_of_number(came: NDArray[np.int64], went: NDArray[np.int64]) -> float:
    """The largest variance per arrival of the change of the number in the system over spans of up to an eighth of the run.
    Services that stay slow for a while show theirs over long spans alone.
    """
    changes, largest = came - went, 0.0
    for counts in 2 ** np.arange(int(np.log2(max(1, came.size // _SPANS_OF_LONGEST))) + 1):
        variance = float(sliding_window_view(changes, counts).sum(axis=1).var())
        largest = max(largest, variance / _arrivals_shown(came, int(counts)))
    return largest


def _arrivals_shown(came: NDArray[np.int64], counts: int) -> float:
    """The arrivals by which a variance over spans of this many ``counts`` is one per arrival. Spans overlap: of n counts their
    variance is short by about the factor 1 − counts / n, as if n / counts were apart.
    """
    return float(came.mean()) * counts * (1.0 if counts == 1 else 1.0 - counts / came.size)


def _service_variance(came: NDArray[np.int64], went: NDArray[np.int64], counts: int) -> float:
    """The variance per arrival of the change of the number in the system over each span of this many ``counts``, less that of
    the arrivals; ``came`` and ``went`` have shape [counts of the run].
    """
    of_arrivals, of_number = (float(sliding_window_view(values, counts).sum(axis=1).var()) for values in (came, came - went))
    return max(0.0, of_number - of_arrivals) / _arrivals_shown(came, counts)


def _count_within(events_ns: FloatArray, span: tuple[float, float]) -> int:
    return int(np.count_nonzero((events_ns > span[0]) & (events_ns <= span[1])))


def first_user_end_ns(requests: Requests) -> float:
    """The time at which the first user of a closed loop stopped: the end of the first request at whose end none was due.

    A user whose connection was refused is free a little later than its request ended, so such ends do not count.
    """
    ends_ns = requests.done_ns[~np.isnan(requests.done_ns) & (requests.outcome != Outcome.CONNECT.value)]
    return float(ends_ns[~np.isin(ends_ns, requests.scheduled_ns)].min(initial=np.inf))


def drain_start_ns(requests: Requests, last_sent_ns: float) -> float:
    """The time from which fewer requests are sent than before, in a run that waits for answers; at the latest ``last_sent_ns``.

    A closed loop begins to drain when its first user stops, and conversations when the last one has started and the first one
    has ended. Users who think before they send again, and whose records do not name the request before, send until the end.

    The turns after a failed one are not sent, so a conversation that a failure cut short has no end here: it left the load by
    chance, as any other may at any time. One whose last turn failed ended with it. In a closed loop a user goes on after a
    failure.

    ``full_load`` applies the rule of a closed loop to conversations, too, since it needs no more than the error of a rate: it
    says why.
    """
    begins = np.isnan(requests.parent)
    if begins.all():
        return min(last_sent_ns, first_user_end_ns(requests)) if requests.in_turns else last_sent_ns
    last_begin_ns = requests.sent_ns[begins & ~np.isnan(requests.sent_ns)].max(initial=-np.inf)
    ends_ns = np.full(begins.size, -np.inf)
    np.maximum.at(ends_ns, _first_turns(requests), np.nan_to_num(requests.done_ns, nan=np.inf))
    first_end_ns = ends_ns[np.isfinite(ends_ns)].min(initial=np.inf)
    return min(last_sent_ns, max(float(last_begin_ns), float(first_end_ns)))


def _first_turns(requests: Requests) -> NDArray[np.int64]:
    """The position of the request with which the conversation or user of each one began; shape [n]."""
    order = np.argsort(requests.index)
    at = np.searchsorted(requests.index, requests.parent, sorter=order).clip(max=order.size - 1)
    before = np.where(requests.index[order[at]] == requests.parent, order[at], np.arange(order.size))
    while not np.array_equal(further := before[before], before):
        before = further
    return before


def mean_in_system(entered_ns: FloatArray, left_ns: FloatArray, edges_ns: FloatArray) -> FloatArray:
    """The time average of the number that had entered and not yet left, between neighbouring edges; shape [edges − 1].

    ``entered_ns`` and ``left_ns`` have shape [n]; a request with an unknown time is left out.
    """
    known = ~np.isnan(entered_ns) & ~np.isnan(left_ns)
    waited = _time_since(entered_ns[known], edges_ns) - _time_since(left_ns[known], edges_ns)
    in_system: FloatArray = np.diff(waited) / np.diff(edges_ns)
    return np.maximum(in_system, 0.0)  # in an empty system the differences of sums may be a rounding error below 0


def number_over_time(entered_ns: FloatArray, left_ns: FloatArray) -> tuple[FloatArray, NDArray[np.int64]]:
    """The times at which requests entered or left, sorted, and the number that is in from each on; shape [2 requests] both."""
    times_ns = np.concatenate([entered_ns, left_ns])
    order = np.argsort(times_ns, kind="stable")
    changes = np.repeat([1, -1], [entered_ns.size, left_ns.size])[order]
    return times_ns[order], np.cumsum(changes)


def _time_since(events_ns: FloatArray, at_ns: FloatArray) -> FloatArray:
    """Σ max(0, at − event) over all events, for each ``at``."""
    ordered = np.sort(events_ns)
    origin = ordered[0] if ordered.size else 0.0  # sums of offsets, which float64 holds better than sums of clock times
    sums = np.concatenate([[0.0], np.cumsum(ordered - origin)])
    before = np.searchsorted(ordered, at_ns)
    since: FloatArray = before * (at_ns - origin) - sums[before]
    return since
