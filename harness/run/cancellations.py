"""Planned cancellations: exchanges that the client ends after a time, or with a certain token of the answer (--cancel).

A client that goes away does the same: over gRPC the stream is reset, over HTTP the connection is closed.

Only the answers that are to be cancelled with a certain token are decoded while they come, until that token. Counted are the
tokens of each response as the server reports them (of all so far, or of each piece alone) or as it has ids, else 1 for a
response with text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench_records.record import Outcome
from harness.clients.protocol import (
    AnswerEnd,
    Client,
    ExchangeFailedError,
    Exchanging,
    MalformedResponseError,
    OnResponses,
    Response,
    end_at_cancellation,
)
from harness.recording.own_counts import OwnCountsSoFar
from workloads.elements.request import CancelPoint, Request


@dataclass(frozen=True, slots=True)
class PlannedCancellation:
    """The cancellation of one request at ``point``; ``client`` decodes its answer."""

    point: CancelPoint
    client: Client

    async def carry_out(
        self, connection: Exchanging, payload: bytes, on_responses: OnResponses, timeout_s: float
    ) -> AnswerEnd | None:
        """As ``Exchanging.exchange``, to the answer's end or the point, which raises ExchangeFailedError (WITHDRAWN)."""
        after_ns, after_tokens = self.point.after_ns, self.point.after_tokens
        tokens = TokensSoFar(self.client)

        def count(times_ns: Sequence[int], bodies: Sequence[bytes]) -> None:
            on_responses(times_ns, bodies)
            if tokens.count < (after_tokens or 0) <= tokens.add(bodies):
                scope.reschedule(asyncio.get_running_loop().time())

        try:
            async with asyncio.timeout(None if after_ns is None else after_ns / 1e9) as scope:
                if after_tokens is None:
                    return await connection.exchange(payload, on_responses, timeout_s)
                return await connection.exchange_at_once(payload, count, timeout_s)
        except TimeoutError as expired:
            if not scope.expired():
                raise
            end = end_at_cancellation(expired)
            raise ExchangeFailedError(Outcome.WITHDRAWN, "the client cancelled it as planned", end) from expired


class TokensSoFar:
    """Counts the tokens of an answer while it comes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._own = OwnCountsSoFar()
        self.count = 0

    def add(self, bodies: Sequence[bytes]) -> int:
        """The tokens of the answer with these responses; one that cannot be decoded has none."""
        for body in bodies:
            try:
                response = self._client.decode(body)
            except MalformedResponseError:
                continue
            own = self._own.add(response)
            if response.opening and not self._own.has_piece:  # it names the role, and some servers count it
                continue
            so_far = response.server_tokens_so_far  # 0 beside text, too, where a server does not count
            self.count = max(self.count, so_far, own or 0) if so_far else self.count + _tokens_of(response)
        return self.count


def _tokens_of(response: Response) -> int:
    if response.token_ids is not None:
        return len(response.token_ids)
    if response.server_tokens is not None:
        return response.server_tokens
    return 1 if response.text else 0


def planned_cancellations(
    indices: Sequence[int], requests: Sequence[Request], client: Client
) -> Mapping[int, PlannedCancellation]:
    """The planned cancellations of the ``requests`` that have one, by their ``indices``."""
    return {
        index: PlannedCancellation(request.cancel, client)
        for index, request in zip(indices, requests, strict=True)
        if request.cancel is not None
    }
