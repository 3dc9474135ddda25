"""Whether requests waited for a place in the target's batch, and whether that is too rare to know how long a tail can be.

A target with in-flight batching serves every request at once until its batch is full, and only then do requests wait. Near its
capacity a run may see a handful of such waits where others see hundreds: its tail is that of a target without a queue, and no
interval computed from its latencies can know better. What a run does know is how full the batch was. It is compared with two
limits: the one that the target publishes, and the largest number of answers that came at the same time, where requests that
were sent meanwhile waited longer than others. The constants were chosen by simulation (benchmarks/interval_coverage.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reports.metrics.in_flight import number_over_time
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import FEWEST_VALUES
from reports.statistics.estimate import Cause, Reason
from reports.statistics.percentiles import Distribution, without_upper_limits

FEWEST_SPELLS = 10  # of waiting, on which the limits of a tail may rest
LONG_SPELL = 100  # requests that may wait in one: if all of them would be less than 1 - q of the run, the q-quantile holds
NEAR_LIMIT = 3.2  # standard deviations of the number in the system: a limit farther away is hardly ever reached
LONG_WAIT = 2.0  # medians of the time to the first token from the send
SMALLEST_BATCH = 8  # answers at the same time, of a target whose batch can be seen
_ARRIVALS_WHILE_FULL = 1.5  # in nine tenths of the runs of a target without a limit, fewer are due during its peak


@dataclass(frozen=True, slots=True)
class FullBatch:
    """What an open loop of ``answers`` shows of its target's batch, which held ``largest`` answers at most.

    ``limit`` is the largest number of requests that the target publishes, None where it is unknown, and ``near_limit`` whether
    the load reaches it in ordinary runs. ``waited`` requests found no place, in this many ``spells``, a median E2E latency or
    more apart.
    """

    answers: int
    largest: int
    waited: int
    spells: int
    limit: int | None = None
    near_limit: bool = False

    def no_upper_limit_reason(self, q: float) -> Reason | None:
        """Why the q-quantile of a latency has no upper limit; None where it may have one."""
        if self.spells >= FEWEST_SPELLS:
            return None
        few = self.spells > 0 and self.spells * LONG_SPELL >= (1.0 - q) * self.answers
        return Cause.FEW_QUEUES if few or self.near_limit else None


def of_several_starts(batches: Sequence[FullBatch]) -> FullBatch:
    """What runs of one configuration show together, of which there is at least one. A batch was not full where that of another
    run held more answers: so only the fullest ones have spells, unless the target publishes its limit.
    """
    largest = max(batch.largest for batch in batches)
    full = [batch for batch in batches if batch.limit is not None or batch.largest == largest]
    return replace(
        full[0],
        answers=sum(batch.answers for batch in batches),
        largest=largest,
        waited=sum(batch.waited for batch in full),
        spells=sum(batch.spells for batch in full),
        near_limit=any(batch.near_limit for batch in batches),
    )


def without_rare_tails(latency: Distribution | None, batch: FullBatch | None) -> Distribution | None:
    """A latency without the upper limits that a run with such a ``batch`` cannot know."""
    return latency if batch is None else without_upper_limits(latency, batch.no_upper_limit_reason)


def full_batch(requests: Requests, limit: int | None = None) -> FullBatch | None:
    """How full the target's batch was in an open loop; None of other loads, of fewer than 100 answers, and where neither the
    target's ``limit`` is known nor a batch can be seen.

    Times count from the send: what waits in the client has no place in the batch.
    """
    known = requests.done & requests.has_tokens & ~np.isnan(requests.sent_ns)
    if np.count_nonzero(known) < FEWEST_VALUES or not requests.is_open_loop:
        return None
    exchanges = _Exchanges(*(times[known] for times in (requests.sent_ns, requests.first_token_ns, requests.done_ns)))
    streams = exchanges.streams()
    if limit is None and streams.largest < SMALLEST_BATCH:
        return None
    waited = exchanges.waited_at_peak(streams) if streams.largest >= SMALLEST_BATCH else np.zeros(known.sum(), dtype=np.bool_)
    near = False
    if limit is not None:
        in_system = exchanges.in_system()
        waited |= _number_at(exchanges.sent_ns, exchanges.sent_ns, exchanges.done_ns) > limit
        near = in_system.mean + NEAR_LIMIT * in_system.deviation >= limit
    at_ns = np.sort(exchanges.sent_ns[waited])
    spells = 1 + int(np.count_nonzero(np.diff(at_ns) >= exchanges.latency_ns)) if at_ns.size else 0
    return FullBatch(exchanges.sent_ns.size, streams.largest, at_ns.size, spells, limit, near)


@dataclass(frozen=True, slots=True)
class _Level:
    """A number over time: its mean, standard deviation and maximum, and the share of the time in which it is at that."""

    mean: float
    deviation: float
    largest: int
    share_at_largest: float


@dataclass(frozen=True)
class _Exchanges:
    """Successes with tokens: shape [answers] each."""

    sent_ns: FloatArray
    first_ns: FloatArray
    done_ns: FloatArray

    @cached_property
    def latency_ns(self) -> float:
        """The median time from send to end."""
        return float(np.median(self.done_ns - self.sent_ns))

    def streams(self) -> _Level:
        """The number of answers that had begun and not ended."""
        return self._level(self.first_ns)

    def in_system(self) -> _Level:
        return self._level(self.sent_ns)

    def waited_at_peak(self, streams: _Level) -> NDArray[np.bool_]:
        """Which requests were sent while the most answers came, and waited long; none where that peak was as short as that of
        a target without a limit.
        """
        if streams.share_at_largest * self.sent_ns.size < _ARRIVALS_WHILE_FULL:
            return np.zeros(self.sent_ns.size, dtype=np.bool_)
        waits_ns = self.first_ns - self.sent_ns
        at_peak = _number_at(self.sent_ns, self.first_ns, self.done_ns) == streams.largest
        waited: NDArray[np.bool_] = at_peak & (waits_ns > LONG_WAIT * np.median(waits_ns))
        return waited

    def _level(self, entered_ns: FloatArray) -> _Level:
        """From the first median latency on, in which a batch fills, to the last send."""
        times_ns, number = number_over_time(entered_ns, self.done_ns)
        begin_ns, end_ns = float(self.sent_ns.min()) + self.latency_ns, float(self.sent_ns.max())
        lasted_ns = np.diff(np.clip(times_ns, begin_ns, max(begin_ns, end_ns)), append=max(begin_ns, end_ns))
        share = lasted_ns / lasted_ns.sum() if lasted_ns.any() else np.full(number.size, 1.0 / number.size)
        mean, largest = float(share @ number), int(number.max())
        return _Level(mean, float(np.sqrt(share @ (number - mean) ** 2)), largest, float(share[number == largest].sum()))


def _number_at(at_ns: FloatArray, entered_ns: FloatArray, left_ns: FloatArray) -> NDArray[np.int64]:
    """How many had entered at each time and not yet left, shape [times]; a request that enters then is in."""
    entered, left = (np.searchsorted(np.sort(events_ns), at_ns, side="right") for events_ns in (entered_ns, left_ns))
    return entered - left
