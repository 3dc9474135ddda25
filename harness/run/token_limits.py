"""The time limits of an answer's tokens: until the first one, and between two responses.

A whole request has ``--request_timeout``, which each connection counts itself. The limits here are for few runs and cost more:
each response is handed over as it comes, and those up to the first token are decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from bench_records.record import Outcome
from harness.clients.protocol import AnswerEnd, Client, ExchangeFailedError, Exchanging, OnResponses
from harness.run.cancellations import TokensSoFar

ExchangeWatched = Callable[[OnResponses], Coroutine[Any, Any, AnswerEnd | None]]


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """Seconds from the send to the first token, and between a response and the next one; None is no limit."""

    first_token_s: float | None = None
    token_gap_s: float | None = None

    @property
    def are_set(self) -> bool:
        return self.first_token_s is not None or self.token_gap_s is not None


NO_LIMITS_OF_TOKENS = TokenLimits()


@dataclass(frozen=True, slots=True)
class AtOnce:
    """A connection that hands over each response as it arrives: a timer must not see it late."""

    connection: Exchanging

    async def exchange(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> AnswerEnd | None:
        return await self.connection.exchange_at_once(payload, on_responses, timeout_s)

    exchange_at_once = exchange


@dataclass(frozen=True, slots=True)
class TokenWatch:
    """Ends an exchange at its first limit that passes; ``client`` decodes its answer."""

    limits: TokenLimits
    client: Client

    async def carry_out(self, exchange: ExchangeWatched, on_responses: OnResponses) -> AnswerEnd | None:
        """Await ``exchange``, which hands over each response at once, with an ``on_responses`` that watches them.

        What comes after a limit has passed, but before the exchange is cancelled, is not handed over: the loop may do both in
        one turn. Raises ExchangeFailedError: FIRST_TOKEN_TIMEOUT, TOKEN_GAP_TIMEOUT, and what ``exchange`` raises.
        """
        loop = asyncio.get_running_loop()
        first_s, gap_s = self.limits.first_token_s, self.limits.token_gap_s
        tokens = TokensSoFar(self.client)

        def watched(times_ns: Sequence[int], bodies: Sequence[bytes]) -> None:
            if scope.expired():
                return
            on_responses(times_ns, bodies)
            if tokens.count or tokens.add(bodies):
                scope.reschedule(None if gap_s is None else loop.time() + gap_s)

        try:
            async with asyncio.timeout(first_s) as scope:
                return await exchange(watched)
        except TimeoutError as expired:
            if not scope.expired():
                raise
            if tokens.count:
                problem = f"no further token within {gap_s:g} s"
                raise ExchangeFailedError(Outcome.TOKEN_GAP_TIMEOUT, problem) from expired
            problem = f"no first token within {first_s:g} s"
            raise ExchangeFailedError(Outcome.FIRST_TOKEN_TIMEOUT, problem) from expired
