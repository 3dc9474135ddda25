"""Load modes: frozen values that make a schedule and format themselves.

Open loop: requests are sent at the times of the arrival process, whatever the target does, like the traffic of many
independent users. Requests that arrive while the target stalls queue up. ``max_concurrency`` limits the requests in flight;
arrivals above it wait in the client, first in, first out, and keep their scheduled time.

Closed loop: a fixed number of users, each of which sends its next request when its last one has ended. A target that stalls
receives fewer requests: the mode measures the throughput of that many users, not the latency at an arrival rate.

Sessions: conversations that begin at the times of an arrival process, an open loop, while each later turn waits for the answer
before it. So a target that stalls delays later turns, and only those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.arrivals.processes import Arrivals, offsets_within
from workloads.elements.errors import Field, WorkloadError
from workloads.elements.request import HistorySource, Request, Turn
from workloads.schedule.schedule import ClosedSchedule, Schedule, SessionSchedule

_FASTEST_TOKENS_PER_S = 1_000.0  # of one user
_MOST_PREPARED_TOKENS = 10_000_000  # prompt tokens of a closed loop, whose number of requests is unknown beforehand


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests at the times of ``arrivals`` below ``duration_s`` (None: all), at most ``max_concurrency`` in flight."""

    arrivals: Arrivals
    duration_s: float | None = None
    max_concurrency: int | None = None

    @property
    def ends_by_the_clock(self) -> bool:
        """False: the number of requests is known when they are scheduled."""
        return False

    def most_requests(self, seed: int, num_requests: int | None) -> int | None:
        """The number of requests that the load can send, at most ``num_requests``; None is any number.

        Raises WorkloadError where none arrives, as in a stage without requests.
        """
        if self.duration_s is None:
            return num_requests
        arriving = int(offsets_within(self.arrivals, self.duration_s, seed, num_requests).size)
        if not arriving and num_requests != 0:
            raise WorkloadError(Field("rate_profile"), f": no request arrives in the first {self.duration_s:g} s")
        return arriving

    def schedule(self, requests: Sequence[Request], seed: int) -> Schedule:
        """Requests with their arrival times, without those due at ``duration_s`` or later."""
        if self.duration_s is None:
            offsets = self.arrivals.offsets_ns(len(requests), seed)
        else:
            offsets = offsets_within(self.arrivals, self.duration_s, seed, len(requests))
        return Schedule(tuple(requests[: offsets.size]), tuple(offsets.tolist()), seed, self.max_concurrency)

    def __str__(self) -> str:
        parts = [str(self.arrivals)]
        if self.max_concurrency is not None:
            parts.append(f"at most {self.max_concurrency} in flight")
        if self.duration_s is not None:
            parts.append(f"for {self.duration_s:g} s")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """``concurrency`` users that start evenly over ``ramp_up_s`` and send no request at ``duration_s`` or later."""

    concurrency: int
    duration_s: float | None = None
    ramp_up_s: float = 0.0

    @property
    def ends_by_the_clock(self) -> bool:
        """Whether the clock ends the run, so that the number of requests is unknown beforehand."""
        return self.duration_s is not None

    def most_requests(self, seed: int, num_requests: int | None) -> int | None:
        """``num_requests``: how many requests the users can send depends on the target."""
        return num_requests

    def enough_requests(self, input_tokens: float, output_tokens: float) -> int:
        """The number of requests that lasts for ``duration_s`` if each user gets 1,000 tokens/s.

        All prompts together stay below 10 million tokens, about 400 MB.
        """
        assert self.duration_s is not None
        fastest = math.ceil(self.concurrency * self.duration_s * _FASTEST_TOKENS_PER_S / output_tokens)
        return max(self.concurrency, min(fastest, int(_MOST_PREPARED_TOKENS / input_tokens)))

    def schedule(self, requests: Sequence[Request], seed: int) -> ClosedSchedule:
        """The start times of the users, which take the requests in order."""
        starts_ns = (round(user * self.ramp_up_s * 1e9 / self.concurrency) for user in range(self.concurrency))
        end_ns = None if self.duration_s is None else round(self.duration_s * 1e9)
        return ClosedSchedule(tuple(requests), tuple(starts_ns), seed, end_ns)

    def __str__(self) -> str:
        parts = [f"closed loop of {self.concurrency} {'user' if self.concurrency == 1 else 'users'}"]
        if self.ramp_up_s:
            parts.append(f"coming over {self.ramp_up_s:g} s")
        if self.duration_s is not None:
            parts.append(f"for {self.duration_s:g} s")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions that begin at the times of ``arrivals``; ``turns`` has shape [requests], ``description`` is all in words.

    None begins at ``duration_s`` or later: the turns are those of the sessions before; None is no end.
    """

    arrivals: Arrivals
    turns: tuple[Turn, ...]
    description: str
    history: HistorySource = HistorySource.RECORDED
    duration_s: float | None = None

    @property
    def law(self) -> str:
        """The arrivals in words."""
        return str(self.arrivals).replace("requests", "sessions")

    @property
    def count(self) -> int:
        """The number of sessions."""
        return sum(turn.parent is None for turn in self.turns)

    @property
    def ends_by_the_clock(self) -> bool:
        """False: the number of requests is known when they are scheduled."""
        return False

    def schedule(self, requests: Sequence[Request], seed: int) -> SessionSchedule:
        """The requests, one for each of ``turns``, with the due times of first turns."""
        begins = iter(self.arrivals.offsets_ns(self.count, seed).tolist())
        first_ns: list[int] = []
        offsets_ns: list[int | None] = []
        for turn in self.turns:
            first_ns.append(next(begins) if turn.parent is None else first_ns[turn.parent])
            after_ns = 0 if turn.parent is None else turn.after_first_ns
            offsets_ns.append(None if after_ns is None else first_ns[-1] + after_ns)
        return SessionSchedule(
            tuple(requests),
            tuple(offsets_ns),
            tuple(turn.parent for turn in self.turns),
            tuple(turn.think_time_ns for turn in self.turns),
            seed,
            self.history,
            tuple(turn.joins for turn in self.turns) if any(turn.joins for turn in self.turns) else (),
        )

    def __str__(self) -> str:
        return self.description


Load = OpenLoop | ClosedLoop
AnyLoad = Load | Sessions
