"""Differences of two hosts' monotonic clocks, from exchanges of messages with four time stamps each (RFC 5905, section 8).

Each exchange bounds the difference whatever the network does: a request cannot arrive before it was sent, nor an answer. The
true difference lies within the bounds of every exchange, so within their intersection, however unequal the ways there and back
are. Clocks drift apart by some parts in a million, so the bounds of an exchange widen with the time since.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from bench_records.manifest import ClockOffset, WorkerClock

# Two quartz clocks drift apart by less. A time server slews the monotonic clock, too, by up to 500 ppm: while it does so, the
# stated uncertainty may be up to 1.4 ms too small, on ways that are 3 ms unequal. A limit that allowed for it would widen that
# of all other hosts.
LARGEST_DRIFT = 200e-6
_WINDOW_NS = 5_000_000_000


class ClockExchange(msgspec.Struct, frozen=True, array_like=True):
    """Time stamps in ns: ``sent`` and ``returned`` of the asking host's monotonic clock, ``received`` and ``answered`` of the
    other's.
    """

    sent_ns: int
    received_ns: int
    answered_ns: int
    returned_ns: int

    @property
    def least_ns(self) -> int:
        """The least possible difference, the other clock less the asking one's."""
        return self.answered_ns - self.returned_ns

    @property
    def most_ns(self) -> int:
        return self.received_ns - self.sent_ns


def offset_at(exchanges: Sequence[ClockExchange], at_ns: int) -> ClockOffset | None:
    """The difference at ``at_ns``, by the exchanges within 5 s of it, or else by the nearest one; None without exchanges.

    Where the bounds contradict each other (a clock jumped), it is that of the exchange which is nearest in time.
    """
    if not exchanges:
        return None
    near = [exchange for exchange in exchanges if abs(exchange.returned_ns - at_ns) <= _WINDOW_NS]
    nearest = min(exchanges, key=lambda exchange: abs(exchange.returned_ns - at_ns))
    least, most = _bounds(near or [nearest], at_ns)
    if least > most:
        least, most = _bounds([nearest], at_ns)
    return ClockOffset(round((least + most) / 2), -round((least - most) // 2), at_ns)


def report_clock(exchanges: Sequence[ClockExchange], start_ns: int, end_ns: int) -> WorkerClock | None:
    """The account of a run from ``start_ns`` to ``end_ns`` of the asking clock; None without an exchange."""
    start, end = offset_at(exchanges, start_ns), offset_at(exchanges, end_ns)
    if start is None or end is None:
        return None
    within = [exchange for exchange in exchanges if exchange.returned_ns >= start_ns - _WINDOW_NS]
    span_ns = end_ns - start_ns
    if span_ns <= 0 or not any(exchange.returned_ns > start_ns for exchange in exchanges):
        return WorkerClock(start, None, None, None, _jump(within), len(exchanges))
    drift = (end.offset_ns - start.offset_ns) / span_ns * 1e6
    uncertainty = (end.uncertainty_ns + start.uncertainty_ns) / span_ns * 1e6
    return WorkerClock(start, end, drift, uncertainty, _jump(within), len(exchanges))


def _bounds(exchanges: Sequence[ClockExchange], at_ns: int) -> tuple[float, float]:
    least = max(exchange.least_ns - LARGEST_DRIFT * abs(at_ns - exchange.returned_ns) for exchange in exchanges)
    most = min(exchange.most_ns + LARGEST_DRIFT * abs(at_ns - exchange.sent_ns) for exchange in exchanges)
    return least, most


def _jump(exchanges: Sequence[ClockExchange]) -> int | None:
    """The largest distance between the bounds of one exchange and the next, beyond drift; None where all of them overlap."""
    largest = 0.0
    for before, after in pairwise(exchanges):
        allowed = LARGEST_DRIFT * (after.returned_ns - before.sent_ns)
        apart = max(after.least_ns - before.most_ns, before.least_ns - after.most_ns) - allowed
        largest = max(largest, apart)
    return round(largest) or None
