"""Gates whose limit is one on a share of the requests: percentiles, attainment and the share of failures.

``p99_ttft<=500ms`` says that at most 1 % of the requests take longer than 500 ms to their first token. What a run shows of that
share decides (``reports/statistics/exceedances.py``), and two things besides:

- A share of 20 times the allowed one happens in at most 5 % of runs of any stationary process (Markov).
- Where the queue grows, a longer run has longer latencies: more requests above the limit than allowed will only become more,
  and fewer are no evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reports.criteria import Requirement
from reports.gates.gate import Beyond, Evidence, Gate, JudgedRun, Status
from reports.gates.words import NO_VALUE, amount, duration, percentage, percentage_beside, significant, would_decide
from reports.metrics.full_batch import of_several_starts
from reports.metrics.in_flight import QueueGrowth
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import FEWEST_VALUES
from reports.statistics.exceedances import MARKOV, Exceedances, Tail, exceedances, tail_below

FAR_ABOVE = 8.0
"""A typical value of this many times the limit fails it: in no process was that seen in 5 % of runs by chance."""

TAIL_MARGIN = 10.0
"""A share passes by its tail where that leaves this much less above the limit than is allowed, and the run has that much less:
tails longer than exponential, and clusters larger than they seem, are within it.
"""

_SEVERAL = 10.0  # requests above a limit, expected where it is the true percentile
_PASSES, _FAILS = 0.05, 0.025  # probabilities of what was seen, below which the opposite is excluded
_TYPICAL_SHARE = 2.0 / 3.0  # the largest allowed share at which a typical value says something
_LEAST_SHOWN = 1e-5  # of the share that a tail leaves: less would be digits of the model
_UNSEEN = 3.0  # events that are expected in a run without one, at 95 %: −ln 0.05
_MOST_REQUESTS = 10_000_000

_Range = tuple[int, int | None]


@dataclass(frozen=True, eq=False)
class ShareOfRun:
    """A run's values, in the order in which their requests were due, of which a share may exceed ``limit``.

    ``least`` and ``most`` differ for requests that were cut off: the latency that is known, and an infinite one. ``groups``
    numbers the conversations that they belong to, -1 for none; None is unknown.
    """

    least: FloatArray
    most: FloatArray
    groups: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class ShareClaim:
    """At most ``allowed`` of the values are above ``limit``; with ``at_least`` that many or more. ``beyond`` names such
    requests ("over 500 ms"). Values of latencies (``grows``) rise as long as the queue grows. Where requests that were cut off
    decide the ``value``, only a ``lower_bound`` is known; without either it lies among the failed requests.
    """

    requirement: Requirement
    value: float | None
    allowed: float
    limit: float
    beyond: str
    at_least: bool = False
    grows: bool = True
    fewest: int = FEWEST_VALUES
    lower_bound: float | None = None

    @property
    def shown(self) -> str:
        """The value in words."""
        if self.value is not None:
            return amount(self.requirement, self.value)
        return "failed" if self.lower_bound is None else f"at least {amount(self.requirement, self.lower_bound)}"


def judge_share(claim: ShareClaim, samples: Sequence[ShareOfRun], runs: Sequence[JudgedRun]) -> Gate:
    """The gate of one run, or of several starts of one configuration, whose requests count together."""
    least, most = (np.concatenate(parts) for parts in ([s.least for s in samples], [s.most for s in samples]))
    if not least.size:
        return Gate(claim.requirement, Status.UNDECIDED, Evidence(claim.value), NO_VALUE)
    near = min(max(claim.allowed, 1e-9), 1.0 - 1e-9)
    groups = joined_groups([sample.groups for sample in samples])
    seen, worst = (exceedances(values, claim.limit, near, groups) for values in (least, most))
    tail = tail_below(most, claim.limit, near, groups)
    case = _Case(claim, seen, worst, float(np.median(least)), tail, tuple(runs))
    status, beyond = case.status, case.beyond
    return Gate(claim.requirement, status, Evidence(claim.value, beyond=beyond), claim.shown, case.grounds(status, beyond))


def joined_groups(groups: Sequence[NDArray[np.int64] | None]) -> NDArray[np.int64] | None:
    """Numbers of the conversations of all runs, each of which has its own; None where they are unknown in one of them."""
    numbered: list[NDArray[np.int64]] = []
    first = 0
    for own in groups:
        if own is None:
            return None
        numbered.append(np.where(own >= 0, own + first, -1))
        first += int(own.max(initial=-1)) + 1
    return np.concatenate(numbered)


@dataclass(frozen=True, slots=True)
class _Case:
    claim: ShareClaim
    seen: Exceedances
    worst: Exceedances
    typical: float
    tail: Tail | None
    runs: tuple[JudgedRun, ...]

    @property
    def is_unknown(self) -> bool:
        """Whether the requests are too few, or come in too few clusters, to know other runs by."""
        return self.seen.n < self.claim.fewest or any(run.clustered for run in self.runs)

    @property
    def beyond(self) -> Beyond:
        """The share with the limits that the status goes by."""
        of_low, of_high = (_PASSES, _FAILS) if self.claim.at_least else (_FAILS, _PASSES)
        high = 1.0 if self.is_unknown else self.worst.upper_limit(of_high)
        return Beyond(self.seen.share, self.seen.lower_limit(of_low), high, self.claim.allowed)

    @property
    def growth(self) -> QueueGrowth | None:
        """What makes a longer run worse; None of a claim that it cannot make worse."""
        if not self.claim.grows or self.claim.at_least:
            return None
        return next((run.growth for run in self.runs if run.growth is not None), None)

    @property
    def rare_queues(self) -> bool:
        """Whether requests waited for a place in the target's batch too rarely to know how long others wait."""
        batches = [run.metrics.full_batch for run in self.runs if run.metrics.full_batch is not None]
        if not self.claim.grows or not batches:
            return False
        return of_several_starts(batches).no_upper_limit_reason(1.0 - self.claim.allowed) is not None

    @property
    def status(self) -> Status:
        if self.claim.at_least:
            return self._of_at_least()
        allowed = self.claim.allowed
        if self.seen.share > allowed and (
            self.growth is not None or self.seen.share >= MARKOV * allowed or self._far_above or self._surely_more(_FAILS)
        ):
            return Status.FAILED
        may_pass = self.growth is None and not self.rare_queues
        return Status.PASSED if may_pass and (self._short_tail or self._surely_at_most(_PASSES)) else Status.UNDECIDED

    def _of_at_least(self) -> Status:
        if self.claim.allowed <= 0.0:
            return Status.PASSED
        if self.claim.allowed >= 1.0:
            return Status.FAILED if self.worst.above < self.worst.n else Status.UNDECIDED
        if self._surely_more(_PASSES):
            return Status.PASSED
        return Status.FAILED if self._surely_at_most(_FAILS) else Status.UNDECIDED

    @property
    def _short_tail(self) -> bool:
        """Whether the tail ends so far below the limit that hardly any value is above it, of as many as would have several."""
        enough = not self.is_unknown and self.seen.n * self.claim.allowed >= _SEVERAL
        return enough and self._known_tail is not None and self._known_tail.above_limit <= self._hardly_any

    @property
    def _known_tail(self) -> Tail | None:
        """The tail below the limit; None where more than hardly any are above, and of values that have no distance to it."""
        return self.tail if self.claim.grows and self.worst.share <= self._hardly_any else None

    @property
    def _hardly_any(self) -> float:
        return self.claim.allowed / TAIL_MARGIN

    @property
    def _far_above(self) -> bool:
        far = self.typical >= FAR_ABOVE * self.claim.limit
        return self.claim.grows and far and self.claim.allowed <= _TYPICAL_SHARE and self.seen.n >= self.claim.fewest

    def _surely_more(self, tail: float) -> bool:
        allowed = self.claim.allowed
        if allowed <= 0.0:
            return self.seen.above > 0
        return allowed < 1.0 and not self.is_unknown and self.seen.at_least(allowed) <= tail

    def _surely_at_most(self, tail: float) -> bool:
        allowed = self.claim.allowed
        if allowed >= 1.0:
            return True
        return allowed > 0.0 and not self.is_unknown and self.worst.at_most(allowed) <= tail

    # ---- in words

    def grounds(self, status: Status, beyond: Beyond) -> tuple[str, ...]:
        parts = [f"{self._share(self.seen.share)} % of {self.seen.n:,} {self.claim.beyond}"]
        if status is Status.FAILED:
            parts += self._why_failed(beyond)
        elif status is Status.PASSED:
            parts += self._why_passed(beyond)
        else:
            parts += self._why_undecided(beyond)
        return tuple(parts)

    def _why_failed(self, beyond: Beyond) -> list[str]:
        if self.growth is not None:
            grew = max(0.0, self.growth.offered_per_s - self.growth.completed_per_s)
            return [f"the queue grew by {significant(grew)} requests/s, so a longer run is worse"]
        if self.claim.at_least:
            return [self._limits(beyond)]
        if beyond.low <= self.claim.allowed and self._far_above:
            return [f"half of them took {FAR_ABOVE:g} times the limit or more, {self._allowed}"]
        return [f"lower bound {self._share(beyond.low)} %, {self._allowed}"]

    def _why_passed(self, beyond: Beyond) -> list[str]:
        if self.claim.at_least:
            return [self._limits(beyond)]
        parts = [
            f"upper bound {self._share(beyond.high)} %, {self._allowed}"
            if beyond.high <= self.claim.allowed
            else f"{self._by_tail}, {self._allowed}"
        ]
        seconds = sum(run.length_s for run in self.runs) / _UNSEEN
        if self.claim.allowed < _UNSEEN / 10.0 and seconds > 0.0:
            parts.append(f"events rarer than one in {duration(seconds)} could have been missed")
        return parts

    def _why_undecided(self, beyond: Beyond) -> list[str]:
        if self.growth is not None:
            return ["the queue grew, so a longer run is worse"]
        if any(run.clustered for run in self.runs):
            return ["too few clusters of arrivals to generalise to other runs"]
        if self.rare_queues and (self._short_tail or self._surely_at_most(_PASSES)):
            return ["requests waited for a place in the batch too rarely to know how long others wait"]
        allowed = 1.0 - self.claim.allowed if self.claim.at_least else self.claim.allowed
        needed = fewest_to_pass(allowed, self.claim.fewest)
        if needed is None:
            return ["no number of requests can show that"]
        if self.seen.n < self.claim.fewest:
            return [f"too few requests to decide, at least {needed:,} needed"]
        return [self._limits(beyond), self._needed()]

    def _share(self, share: float) -> str:
        return percentage_beside(share, self.claim.allowed)

    @property
    def _allowed(self) -> str:
        return f"{percentage(self.claim.allowed)} % {'needed' if self.claim.at_least else 'allowed'}"

    @property
    def _by_tail(self) -> str:
        assert self.tail is not None
        share = max(self.tail.above_limit, _LEAST_SHOWN)
        return f"their tail ends far below it and leaves less than {percentage(share)} % above"

    def _limits(self, beyond: Beyond) -> str:
        return f"95 %: {self._share(beyond.low)} – {self._share(beyond.high)} %, {self._allowed}"

    def _needed(self) -> str:
        """How many requests would decide, were the share and its clusters as they are here. Those that were cut off count as
        beyond the limit where the others are within it.
        """
        allowed = self.claim.allowed
        at_most, more = (_FAILS, _PASSES) if self.claim.at_least else (_PASSES, _FAILS)
        exceeds = self.seen.share > allowed
        were_cut_off = self.worst.above > self.seen.above and not exceeds
        if were_cut_off and (self.worst.share > allowed or self.seen.at_most(allowed) <= at_most):
            return "too many requests were cut off to decide"
        requests = sum(int(run.requests.outcome.size) for run in self.runs)
        likely = self.seen if exceeds else self.worst
        counts = _sooner(likely.deciding(allowed, at_most, more, _MOST_REQUESTS), self._needed_by_tail())
        if counts is None:
            return f"more than {_MOST_REQUESTS:,} requests would be needed to decide"
        scale = requests / self.seen.n
        return would_decide(counts[0] * scale, None if counts[1] is None else counts[1] * scale, requests)

    def _needed_by_tail(self) -> _Range | None:
        tail = None if self.claim.at_least else self._known_tail
        counts = None if tail is None else tail.deciding(self._hardly_any, _MOST_REQUESTS)
        if counts is None:
            return None
        fewest = math.ceil(_SEVERAL / self.claim.allowed)
        if fewest > _MOST_REQUESTS:
            return None
        return max(counts[0], fewest), None if counts[1] is None else max(counts[1], fewest)


def _sooner(first: _Range | None, second: _Range | None) -> _Range | None:
    """The range of numbers of requests where either is enough."""
    if first is None or second is None:
        return first or second
    ends = [end for end in (first[1], second[1]) if end is not None]
    return min(first[0], second[0]), min(ends) if ends else None


@lru_cache
def fewest_to_pass(allowed: float, fewest: int = FEWEST_VALUES) -> int | None:
    """The fewest requests, at least ``fewest``, that can show a share of at most ``allowed``: if none is beyond the limit, and
    slow ones come in no clusters: ln 0.05 / ln(1 − allowed), 299 for 1 %. None where no number can.
    """
    if allowed <= 0.0:
        return None
    return 1 if allowed >= 1.0 else max(fewest, math.ceil(math.log(_PASSES) / math.log1p(-allowed)))
