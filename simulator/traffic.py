"""What a simulated server is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from simulator.arrays import FloatArray, IntArray
from simulator.fetches import Fetch
from simulator.prefixes import Prefixes


@dataclass(frozen=True, eq=False)
class Traffic:
    """Requests in the order in which they are sent; every array has the shape [requests].

    ``arrivals_s`` are the times of sending, ascending. In a closed loop of ``users``, None in an open loop, only the first of
    each user are used: every other request is sent when an answer has ended. ``prefill_tokens`` are those of the prompt that no
    cache holds, ``input_tokens`` all of them; ``output_tokens`` are at least 1.

    ``sessions`` are numbers, equal for requests of one session; None where each is one of its own. ``prefixes`` are what
    prompts begin with, for replicas with a prefix cache, which then decide which tokens are computed; None where that is
    not known. ``fetch`` is what it takes to fetch the KV caches of the requests; None where they are there, or computed.
    """

    arrivals_s: FloatArray
    prefill_tokens: IntArray
    input_tokens: IntArray
    output_tokens: IntArray
    users: int | None = None
    sessions: Sequence[int] | None = None
    prefixes: Prefixes | None = None
    fetch: Fetch | None = None

    def __len__(self) -> int:
        return len(self.arrivals_s)


class Work:
    """The requests of ``Traffic`` as lists, by number, for loops over single ones. All replicas share them: each changes what
    belongs to its own requests alone.

    ``prefill_left`` are the prompt tokens that are not computed yet, ``cached_tokens`` those that a simulated cache had;
    ``first_s`` and ``last_s`` are when the client has a request's first and last token, infinite until then.
    """

    def __init__(self, traffic: Traffic) -> None:
        self.prefill_left: list[int] = traffic.prefill_tokens.tolist()
        self.input_tokens: list[int] = traffic.input_tokens.tolist()
        self.output_tokens: list[int] = traffic.output_tokens.tolist()
        self.cached_tokens = [0] * len(traffic)
        self.prefixes, self.fetch = traffic.prefixes, traffic.fetch
        self.first_s, self.last_s = [inf] * len(traffic), [inf] * len(traffic)
