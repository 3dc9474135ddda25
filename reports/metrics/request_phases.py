"""Where the time of each request went: phases that add up to its latency, each from a source of its own.

The client stamps when a request was due, sent, and answered. What lies between needs the server's own times of the request
(``harness/clients/server_times.py``). Time that no source covers is ``UNATTRIBUTED``: it is never spread over other phases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import product
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from bench_records.manifest import Manifest, WorkerClock
from reports.metrics.catalogue import E2E
from reports.metrics.metric import Metric
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IN_ORDER = 0.99  # share of the requests whose events must be in order, for two clocks to be one
_MOST_ERROR = 0.05  # of the median time to the first token, for a clock that is known by bounds
_START_ERROR_NS = 1e6  # of the run's start on the monotonic clock, at most: two clocks are read one after the other
_OWN = -1  # for the number of a worker that stamps by the clock of the measuring host, and for a target without a number


class Phase(Enum):
    """A part of a request's time. All but the last two pass in this order; RETURN comes after DECODE or before STREAM, and
    UNATTRIBUTED anywhere after SEND and before STREAM. FIRST_BYTE is the wait for the head of an answer whose server said
    nothing of that time; it has what FRONT_END, QUEUE and PREFILL have of other requests. DECODE_BESIDE_PREFILL is the part of
    the decode in steps that also did prefill of other requests, where the server's steps are known: the two alternate.
    """

    SLIP = "schedule slip"
    CEILING = "wait at the ceiling"
    CONNECT = "connect"
    SEND = "send"
    ROUTER = "router"
    FIRST_BYTE = "first byte"
    FRONT_END = "front end"
    QUEUE = "engine queue"
    PREFILL = "prefill"
    DECODE = "decode"
    DECODE_BESIDE_PREFILL = "decode beside prefill"
    STREAM = "stream"
    RETURN = "return"
    UNATTRIBUTED = "unattributed"


_ALWAYS = (Phase.SLIP,)  # the run has a source of it, even if it is 0


@dataclass(frozen=True, slots=True)
class ClientClock:
    """The clocks by which a run's requests were stamped.

    ``start_ns`` is the run's start, time 0 of its clock, on the monotonic clock of the measuring host; None where unknown.
    ``elsewhere`` are the workers on other hosts, by number, with how far off their stamps may be on that clock, in ns to either
    side; infinite where unknown.
    """

    start_ns: int | None = None
    elsewhere: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PhaseTimes:
    """The phases of one latency of each request, in ns, shape [n] each; NaN where a request has no such latency.

    ``latency_ns`` = Σ ``by_phase`` + ``contradiction_ns``, exactly. No phase is negative. ``contradiction_ns`` is 0, or below
    it where the sources of a request contradict each other: the parts by one took so much longer than the whole by another.
    ``by_phase`` has the phases for which the run has a source, 0 of a request without one; ``sourced`` has which requests have
    one. ``timed``: the server measured the request's queue and prefill.
    ``clock_error_ns`` is how far off the server's stamps may be on the client's clock, to either side: at most 1 ms on
    one host, None where that is unknown or too much for all requests, so that durations alone are used.
    """

    latency_ns: FloatArray
    by_phase: Mapping[Phase, FloatArray]
    sourced: Mapping[Phase, NDArray[np.bool_]]
    contradiction_ns: FloatArray
    timed: NDArray[np.bool_]
    clock_error_ns: float | None


def phase_times(requests: Requests, metric: Metric, streaming: bool, clock: ClientClock) -> PhaseTimes:
    """The phases of TTFT or of E2E latency (``metric``) from the schedule."""
    assert metric.ends_ns is not None
    ends_ns = metric.ends_ns(requests)
    latency_ns = ends_ns - requests.scheduled_ns
    arrival_ns, clock_error_ns = _server_arrivals(requests, clock)
    spans = _spans(requests, metric, ends_ns, arrival_ns)
    exists = ~np.isnan(latency_ns)
    sourced = {phase: span for phase, span in spans.items() if phase in _ALWAYS or bool((~np.isnan(span[exists])).any())}
    if not streaming:
        sourced.pop(Phase.STREAM, None)
    raw = {phase: np.where(exists, np.nan_to_num(span), np.nan) for phase, span in sourced.items()}
    has_source = {phase: exists & ~np.isnan(span) for phase, span in sourced.items()}
    rest_ns = latency_ns - sum(raw.values())
    raw[Phase.UNATTRIBUTED] = rest_ns
    contradiction_ns = sum((np.minimum(span, 0.0) for span in raw.values()), start=np.where(exists, 0.0, np.nan))
    return PhaseTimes(
        latency_ns=latency_ns,
        by_phase=MappingProxyType({phase: np.maximum(raw[phase], 0.0) for phase in Phase if phase in raw}),
        sourced=MappingProxyType(has_source | {Phase.UNATTRIBUTED: exists}),
        contradiction_ns=contradiction_ns,
        timed=~np.isnan(requests.server_queue_ns + requests.server_prefill_ns),
        clock_error_ns=clock_error_ns,
    )


def client_clock(manifest: Manifest) -> ClientClock:
    """The clocks of a run. A worker's clock is off by the uncertainty of its offset at the start, or by what that offset had
    changed by until the end, whichever is more, and by the jumps in between.
    """
    workers = () if manifest.distribution is None else manifest.distribution.workers or ()
    return ClientClock(monotonic_start_ns(manifest), {worker.number: _error_ns(worker.clock) for worker in workers})


def _error_ns(clock: WorkerClock | None) -> float:
    if clock is None or clock.start is None or clock.end is None:
        return math.inf
    went_off_ns = abs(clock.end.offset_ns - clock.start.offset_ns) + clock.end.uncertainty_ns
    return float(max(clock.start.uncertainty_ns, went_off_ns) + abs(clock.jump_ns or 0))


def monotonic_start_ns(manifest: Manifest) -> int | None:
    """The run's start, time 0 of its clock, on the monotonic clock of the measuring host; None where it is not recorded.

    Time servers slew the wall clock and the monotonic clock alike, so that their difference before the run holds at its start.
    """
    before = None if manifest.clock is None else manifest.clock.before
    if before is None or manifest.started_at is None:
        return None
    try:
        started = datetime.fromisoformat(manifest.started_at)
    except ValueError:
        return None
    if started.tzinfo is None:
        return None
    unix_us = (started - _EPOCH) // timedelta(microseconds=1)
    return unix_us * 1_000 - before.realtime_minus_monotonic_ns


def _spans(requests: Requests, metric: Metric, ends_ns: FloatArray, arrival_ns: FloatArray) -> dict[Phase, FloatArray]:
    """What each source says of each phase, in ns, shape [n]; NaN where it has no source. A span may be negative.

    The send and what a router says of itself are parts of the way to the engine, or else to the head of the answer, where these
    are known, and not more than that.
    The stream of the client and the decode of the server overlap, so a request has the one or the other, and the return of its
    first or of its last token. So do the wait for the head of the answer and the server's times.
    """
    queue_ns, prefill_ns, decode_ns = requests.server_queue_ns, requests.server_prefill_ns, requests.server_decode_ns
    connected_ns = requests.sent_ns + np.nan_to_num(requests.connect_ns)
    to_engine_ns, to_head_ns = arrival_ns - connected_ns, requests.head_ns - connected_ns
    send_ns = _at_most(requests.written_ns - connected_ns, np.fmin(to_engine_ns, to_head_ns))
    own_ns = np.nan_to_num(send_ns)
    router_ns = _at_most(requests.router_ns, np.fmin(to_engine_ns, to_head_ns) - own_ns)
    own_ns = own_ns + np.nan_to_num(router_ns)
    untimed = np.isnan(arrival_ns) & np.isnan(queue_ns) & np.isnan(prefill_ns) & (np.isnan(decode_ns) | (metric is not E2E))
    ceiling_ns = np.where(requests.ceiling_wait_ns > 0, requests.ceiling_wait_ns, np.nan)
    spans = {
        Phase.SLIP: requests.sent_ns - requests.scheduled_ns - requests.ceiling_wait_ns,
        Phase.CEILING: ceiling_ns,
        Phase.CONNECT: requests.connect_ns,
        Phase.SEND: send_ns,
        Phase.ROUTER: router_ns,
        Phase.FIRST_BYTE: np.where(untimed, to_head_ns - own_ns, np.nan),
        Phase.FRONT_END: to_engine_ns - own_ns,
        Phase.QUEUE: queue_ns,
        Phase.PREFILL: prefill_ns,
    }
    engine_ns = arrival_ns + queue_ns + prefill_ns
    if metric is not E2E:
        return spans | {Phase.RETURN: ends_ns - engine_ns}
    decoded = ~np.isnan(decode_ns)
    beside_ns = _at_most(requests.server_beside_prefill_ns, decode_ns)
    # The decode of an answer that came at once, if unknown, is between the engine's first token and the client.
    first_return_ns = np.where(_at_once(requests), np.nan, requests.first_token_ns - engine_ns)
    return spans | {
        Phase.DECODE: decode_ns - np.nan_to_num(beside_ns),
        Phase.DECODE_BESIDE_PREFILL: beside_ns,
        Phase.STREAM: np.where(decoded, np.nan, ends_ns - requests.first_token_ns),
        Phase.RETURN: np.where(decoded, ends_ns - engine_ns - decode_ns, first_return_ns),
    }


def _at_most(span_ns: FloatArray, whole_ns: FloatArray) -> FloatArray:
    """A span that is a part of another one, where that is known; NaN where the span is unknown."""
    return np.where(np.isnan(span_ns), np.nan, np.fmin(span_ns, np.maximum(whole_ns, 0.0)))


@dataclass(frozen=True, slots=True)
class _ServerClock:
    """The run's start on the monotonic clock of the server's host, known to ``error_ns`` to either side."""

    start_ns: float
    error_ns: float


def _server_arrivals(requests: Requests, clock: ClientClock) -> tuple[FloatArray, float | None]:
    """When the server took each request in, on the run's clock, shape [n], NaN where that is unknown; and how far off these
    times may be, None without any.

    Each pair of a host of the client and a target has a server's clock of its own: targets may be on several hosts.
    """
    bounds = _Bounds.of(requests)
    arrival_ns = np.full(requests.sent_ns.size, np.nan)
    worker, target = (np.nan_to_num(numbers, nan=_OWN) for numbers in (requests.worker, requests.target))
    worker = np.where(np.isin(worker, list(clock.elsewhere)), worker, _OWN)
    errors_ns = []
    for client, server in product(np.unique(worker[bounds.known]), np.unique(target[bounds.known])):
        which = (worker == client) & (target == server)
        known = bounds.only(which & bounds.known)
        if not known.typical_ns.size:
            continue
        found = _server_clock(known, clock.start_ns, clock.elsewhere.get(int(client), 0.0))
        if found is not None:
            arrival_ns[which] = requests.server_arrival_ns[which] - found.start_ns
            errors_ns.append(found.error_ns)
    return arrival_ns, max(errors_ns, default=None)


@dataclass(frozen=True, eq=False)
class _Bounds:
    """Bounds of the run's start on the server's clock by each request, in the order in which they were due, shape [n] each.

    The engine takes a request in after the client sent it over an open connection, and has the first token before the client.
    So each request bounds the start from both sides; NaN where it does not. ``typical_ns`` are the times from the send to the
    first token.
    """

    earliest_ns: FloatArray
    latest_ns: FloatArray
    typical_ns: FloatArray

    @classmethod
    def of(cls, requests: Requests) -> _Bounds:
        engine_ns = requests.server_arrival_ns + requests.server_queue_ns + requests.server_prefill_ns
        with_last_ns = np.where(_at_once(requests), np.nan_to_num(requests.server_decode_ns), 0.0)
        return cls(
            earliest_ns=engine_ns + with_last_ns - requests.first_token_ns,
            latest_ns=requests.server_arrival_ns - requests.sent_ns - np.nan_to_num(requests.connect_ns),
            typical_ns=requests.first_token_ns - requests.sent_ns,
        )

    @property
    def known(self) -> NDArray[np.bool_]:
        known: NDArray[np.bool_] = ~np.isnan(self.latest_ns + self.earliest_ns)
        return known

    def only(self, which: NDArray[np.bool_]) -> _Bounds:
        return _Bounds(self.earliest_ns[which], self.latest_ns[which], self.typical_ns[which])


def _at_once(requests: Requests) -> NDArray[np.bool_]:
    """Whether the first token came with the last one, as all of an unstreamed answer."""
    at_once: NDArray[np.bool_] = requests.first_token_ns == requests.last_token_ns
    return at_once


def _server_clock(bounds: _Bounds, start_ns: int | None, error_ns: float) -> _ServerClock | None:
    """The server's clock: that of the measuring host where events are in order on it, as on one host, else by ``bounds``, of a
    request or more. None where these are too wide or contradict each other.

    The client's stamps may be off by ``error_ns`` on the measuring host's clock. The error of a clock by bounds grows by what
    the bounds of the run's halves differ by.
    """
    typical_ns = float(np.median(bounds.typical_ns))
    if start_ns is not None and error_ns <= _MOST_ERROR * typical_ns:
        allowed_ns = _START_ERROR_NS + error_ns
        in_order = (bounds.earliest_ns - allowed_ns < start_ns) & (start_ns < bounds.latest_ns + allowed_ns)
        if in_order.mean() >= _IN_ORDER:
            low_ns, high_ns = float(bounds.earliest_ns[in_order].max()), float(bounds.latest_ns[in_order].min())
            return _moved_between(start_ns, low_ns, high_ns, error_ns)
    return _by_bounds(bounds, typical_ns)


def _moved_between(start_ns: int, low_ns: float, high_ns: float, error_ns: float) -> _ServerClock:
    """The start where its two clocks were not read at once: moved between the bounds of all requests, by its error."""
    moved_ns = min(max(float(start_ns), low_ns), high_ns) if low_ns <= high_ns else float(start_ns)
    return _ServerClock(moved_ns, error_ns + abs(moved_ns - start_ns))


def _by_bounds(bounds: _Bounds, typical_ns: float) -> _ServerClock | None:
    """The middle between the bounds of all requests."""
    earliest_ns, latest_ns = bounds.earliest_ns, bounds.latest_ns
    low_ns, high_ns = float(earliest_ns.max()), float(latest_ns.min())
    half = earliest_ns.size // 2
    middles = [
        (float(earliest_ns[part].max()) + float(latest_ns[part].min())) / 2.0
        for part in ((slice(half), slice(half, None)) if half else (slice(None),))
    ]
    error_ns = (high_ns - low_ns) / 2.0 + max(middles) - min(middles)
    if low_ns > high_ns or error_ns > _MOST_ERROR * typical_ns:
        return None
    return _ServerClock(float(np.floor((low_ns + high_ns) / 2.0)), error_ns)
