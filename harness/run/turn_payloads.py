"""The bytes of later turns of sessions: made before the run, or of the server's answers in it.

A turn whose answer the client cancelled as planned (--cancel) is answered as far as it had come: a user who stops an answer
goes on from what was there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from bench_records.record import Outcome
from harness.clients.protocol import Client, MalformedResponseError, Response
from harness.journal.worker_journal import Exchange
from harness.run.routing import Payload
from workloads.elements.request import HistorySource, Message, Request
from workloads.schedule.schedule import AnyPart, SessionPart

_EMPTY = Response()

EncodeTurn = Callable[[int, Request], Payload]
"""Encodes a request as that of a place in the part."""


class TurnPayloads(Protocol):
    """The payloads of turns that wait for an answer."""

    def behind(self, exchange: Exchange, place: int, later: int) -> Payload | None:
        """The payload of the turn at ``later``, which follows the exchange of the turn at ``place``; None where that was not
        answered.
        """
        ...

    def answered(self, exchange: Exchange) -> bool:
        """Whether the exchange has an answer that other turns may wait for."""
        ...


def _came_to_its_end(exchange: Exchange, clients: Sequence[Client]) -> bool:
    """Whether nothing shows that the server cut the answer: a stream without its end marker, and any answer of a target that
    sends one, needs a finish_reason. Raises MalformedResponseError.
    """
    if exchange.error is None and not clients[exchange.target].expects_finish_reason:
        return True
    return any(clients[0].decode(body).finish_reasons for body in reversed(exchange.whole_bodies))


class RecordedTurns:
    """Payloads made before the run. Only the last response with any content is decoded, since it has the error if there is one:
    a gateway may add an end marker after it; and those after the finish_reason, where the answer needs one.

    ``clients`` are those of all targets, of which the first decodes every answer.
    """

    def __init__(self, payloads: Sequence[Payload], clients: Sequence[Client]) -> None:
        self._payloads = payloads
        self._clients = clients

    def behind(self, exchange: Exchange, place: int, later: int) -> Payload | None:
        return self._payloads[later] if self.answered(exchange) else None

    def answered(self, exchange: Exchange) -> bool:
        if exchange.failure is Outcome.WITHDRAWN:
            return True
        if exchange.failure is not None or not exchange.bodies:
            return False
        decoded = map(self._clients[0].decode, reversed(exchange.whole_bodies))
        try:
            last = next((response for response in decoded if response != _EMPTY), _EMPTY)
            return last.error is None and _came_to_its_end(exchange, self._clients)
        except MalformedResponseError:
            return False


class AnsweredTurns:
    """Payloads with the server's own answers as their history, without its reasoning."""

    def __init__(self, requests: Sequence[Request], encode: EncodeTurn, clients: Sequence[Client]) -> None:
        self._requests = requests
        self._encode = encode
        self._clients = clients
        self._said: dict[int, tuple[Message, ...]] = {}  # before the turn at a place, without its own messages

    def behind(self, exchange: Exchange, place: int, later: int) -> Payload | None:
        answer = self._answer(exchange)
        if answer is None:
            return None
        request, following = self._requests[place], self._requests[later]
        if following.session != request.session:  # a user's next conversation waits for the last one, and has none of it
            return self._encode(later, following)
        asked = (*self._said.get(place, ()), *request.history, Message("user", request.prompt or ""))
        self._said[later] = (*asked, Message("assistant", answer))
        return self._encode(later, replace(following, history=self._said[later] + following.history))

    def answered(self, exchange: Exchange) -> bool:
        return self._answer(exchange) is not None

    def _answer(self, exchange: Exchange) -> str | None:
        withdrawn = exchange.failure is Outcome.WITHDRAWN
        if not withdrawn and (exchange.failure is not None or not exchange.bodies):
            return None
        try:
            responses = list(map(self._clients[0].decode, exchange.whole_bodies))
            if not withdrawn and not _came_to_its_end(exchange, self._clients):
                return None
        except MalformedResponseError:
            return None
        if any(response.error is not None for response in responses):
            return None
        return "".join((response.text or "")[response.reasoning_characters :] for response in responses)


def turn_payloads(
    part: AnyPart, requests: Sequence[Request], payloads: Sequence[Payload], encode: EncodeTurn, clients: Sequence[Client]
) -> TurnPayloads:
    """The payloads of a worker's part, whose ``requests`` and ``payloads`` match its indices. ``clients`` are those of all
    targets, of which the first decodes every answer.
    """
    if isinstance(part, SessionPart) and part.history is HistorySource.SERVER:
        return AnsweredTurns(requests, encode, clients)
    return RecordedTurns(payloads, clients)
