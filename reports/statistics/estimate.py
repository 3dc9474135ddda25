"""A number with its interval, or the reason for having none: the one shape of every number that a report estimates.

A reason is data: what was found, and how many values would do. Its words are here too, and nowhere else: ``str`` of it is for
tables and documents, ``sentence`` for text that no table explains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class TooFew:
    """There are ``n`` values, and ``needed`` would do."""

    n: int
    needed: int

    def __str__(self) -> str:
        return "n too small"

    @property
    def sentence(self) -> str:
        return f"too few requests for an interval, at least {self.needed} needed"


@dataclass(frozen=True, slots=True)
class Correlated:
    """The values hold as much information as ``equivalent`` independent ones, and ``needed`` would do.

    ``requests`` is how many would have as many, where that is known.
    """

    equivalent: int
    needed: int
    requests: int | None = None

    def __str__(self) -> str:
        return f"effective n {self.equivalent:,}{_would_do(self.requests)}"

    @property
    def sentence(self) -> str:
        requests = "1 independent request" if self.equivalent == 1 else f"{self.equivalent:,} independent requests"
        return f"equivalent to {requests}, {self.needed:,} needed"


@dataclass(frozen=True, slots=True)
class FewClusters:
    """The values beyond a quantile come in this many ``clusters``; ``needed`` would do, which about ``requests`` have."""

    clusters: int
    needed: int
    requests: int

    def __str__(self) -> str:
        clusters = "1 cluster" if self.clusters == 1 else f"{self.clusters} clusters"
        return f"{clusters} of values beyond it, {self.needed} needed{_would_do(self.requests)}"

    @property
    def sentence(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class OtherSchedules:
    """What one schedule differs from another is unknown, for the reason ``why``."""

    why: Reason

    def __str__(self) -> str:
        return f"other schedules: {self.why}"

    @property
    def sentence(self) -> str:
        return str(self)


class Cause(Enum):
    """A reason without a number of its own."""

    DRIFTS = "drifts, or run too short"
    UNEVEN = "rests on few values"
    CLUSTERED_ARRIVALS = "arrivals in few clusters"
    FEW_CONVERSATIONS = "requests come from too few conversations"
    FEW_QUEUES = "queues in few spells"
    AMONG_FAILURES = "failed"
    CUT_OFF = "requests cut off"  # by the client, so a lower bound alone is known
    CLUSTERED_FAILURES = "too few requests, or they come in few clusters"
    NO_SPREAD = "no spread"
    UNCOUNTED = "no token counts"
    NO_VALUE = "no value"
    NONE_ENDED = "no request ended"
    NONE_SUCCEEDED = "no request succeeded"
    REACHES_CUT = "reaches into the requests that were cut off"
    REACHES_FAILED = "reaches into the failed requests"
    SENT_UNLIKE = "sent at different rates"
    SHORT_RUNS = "runs too short to know what that changes"  # between schedules
    ZEROS = "some values are 0"
    ALL_ZERO = "0 in a run"
    BEFORE_LOOKS = "too few blocks for a look"  # at an experiment that ends when it is decided

    def __str__(self) -> str:
        return str(self.value)

    @property
    def sentence(self) -> str:
        match self:
            case Cause.DRIFTS:
                return "it drifts, or the run is too short"
            case Cause.UNEVEN:
                return "it rests on few values"
            case Cause.CLUSTERED_ARRIVALS:
                return f"arrivals came in few clusters: send more, worth {FEWEST_INDEPENDENT_ARRIVALS} independent ones"
            case Cause.AMONG_FAILURES:
                return "it falls among the failed requests"
            case Cause.CUT_OFF:
                return "requests were cut off, so a lower bound alone is known"
            case _:
                return str(self)


Reason = TooFew | Correlated | FewClusters | OtherSchedules | Cause
FEWEST_INDEPENDENT_ARRIVALS = 200  # that clustered ones must be worth


def two_decimals(value: float) -> str:
    """A number with two decimals, or three significant digits of one that these would hide."""
    return f"{value:.3g}" if 0 < abs(value) < 0.01 else f"{value:,.2f}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """``value`` in its own unit, None where it is unknown, with its two-sided 95 % ``interval``.

    Where there is no interval, ``reason`` is why, and ``at_least`` its lower limit where that one exists; both are None of a
    number whose interval is not computed. Where values that are bounds decide the number, ``value`` is None, and the number is
    at least ``lower_bound``.
    """

    value: float | None
    interval: Interval | None = None
    reason: Reason | None = None
    at_least: float | None = None
    lower_bound: float | None = None

    @property
    def interval_text(self) -> str:
        """As ``limits_text``, with two decimals, or three significant digits of small limits."""
        return self.limits_text(two_decimals)

    def limits_text(self, number: Callable[[float], str]) -> str:
        """The interval, or the reason for having none, after the lower limit where there is one; "" where none is computed."""
        if self.interval is not None:
            return " – ".join(map(number, self.interval))
        reason = reason_text(self.reason) or ""
        return reason if self.at_least is None else f"≥ {number(self.at_least)}; {reason}"


UNKNOWN = Estimate(None, reason=Cause.NO_VALUE)


def reason_text(reason: Reason | None) -> str | None:
    """The words of a reason; None where there is none."""
    return None if reason is None else str(reason)


def _would_do(requests: int | None) -> str:
    return "" if requests is None else f"; about {requests:,} requests would do"
