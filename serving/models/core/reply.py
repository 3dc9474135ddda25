"""Replies of the core model: from the engine's thread to the sending thread, and out through Triton's response sender."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Generic

import triton_python_backend_utils as pb_utils

from serving.engines.protocol import FinishReason, Increment
from serving.models.core.responses import Piece, ResponseBuilder
from serving.models.core.sending import Lane
from serving.models.parameters import failure_response

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class Reply(Generic[Piece]):
    """Reply to one request: collects pieces of the engine's increments and sends them as responses.

    ``engine_id`` identifies the request in the engine, ``client_id`` is Triton's request id.
    """

    def __init__(
        self,
        engine_id: int,
        client_id: str,
        sender: Any,
        responses: ResponseBuilder[Piece],
        lane: Lane,
    ) -> None:
        self.engine_id = engine_id
        self.client_id = client_id
        self._sender = sender
        self._sending = threading.Lock()
        self._finished = False
        self._failed = False
        self._responses = responses
        self._lane = lane
        self._started = False
        self._lock = threading.Lock()
        self.input_tokens = len(responses.request.input_ids)
        self.output_tokens = 0
        self._pieces: list[Piece] = []
        self._end: Increment | None = None
        self._queued = False

    def add(self, increment: Increment) -> None:
        """Add an increment; called on the engine's thread."""
        with self._lock:
            self._pieces.extend(self._responses.pieces(increment))
            if increment.is_last:
                self._end = increment
            waits = self._started and not increment.is_last and len(self._pieces) < self._lane.pace.interval_tokens
            if self._queued or waits:
                return
            self._queued = self._started = True
        self._lane.put(self)

    def send(self) -> bool:
        """Send one response with all collected pieces; returns whether it was the last. Called on the sending thread."""
        with self._lock:
            pieces, end = self._next()
        self.output_tokens += self._responses.token_count(pieces)
        with self._sending:
            if self._finished:  # already failed: late increments are dropped
                return True
            if end is not None and end.error is not None:
                self._sender.send(failure_response(end.error), flags=_FINAL)
            elif self._ends_without_response(end, pieces):
                self._sender.send(flags=_FINAL)
            else:
                response = self._responses.response(pieces, is_last=end is not None)
                self._sender.send(response, flags=_FINAL if end is not None else 0)
            self._finished = end is not None
        return self._finished

    def _next(self) -> tuple[list[Piece], Increment | None]:
        """The pieces of the next response, and the end where nothing follows them: all that there are, or as many as may be
        joined, in which case this reply waits for its turn again."""
        most = self._lane.pace.most_joined if self._responses.request.streaming else None
        if most is None or len(self._pieces) <= most:
            pieces, self._pieces, self._queued = self._pieces, [], False
            return pieces, self._end
        pieces, self._pieces = self._pieces[:most], self._pieces[most:]
        self._lane.put(self)
        return pieces, None

    def fail(self, message: str) -> None:
        """End the reply with an error, if Triton still accepts one."""
        with self._sending:
            self._finished = self._failed = True
            with suppress(Exception):
                self._sender.send(failure_response(message), flags=_FINAL)

    @property
    def is_answered(self) -> bool:
        """Whether the reply ended without an error."""
        return self._end is not None and self._end.error is None and not self._failed

    def is_abandoned(self) -> bool:
        """Whether the client cancelled. Never queries Triton after the last response: 24.10 would read freed memory."""
        with self._sending:
            return not self._finished and bool(self._sender.is_cancelled())

    def _ends_without_response(self, end: Increment | None, pieces: list[Piece]) -> bool:
        cancelled = end is not None and end.finish is FinishReason.CANCELLED
        return cancelled and self._responses.request.streaming and not pieces


class SharedSender:
    """Response sender shared by the rows and sequences of one request; only the last of them sends FINAL."""

    def __init__(self, sender: Any, parts: int) -> None:
        self._sender = sender
        self._left = parts
        self._lock = threading.Lock()

    def send(self, response: Any = None, flags: int = 0) -> None:
        with self._lock:
            if flags == _FINAL:
                self._left -= 1
                flags = 0 if self._left else _FINAL
            if response is not None:
                self._sender.send(response, flags=flags)
            elif flags == _FINAL:
                self._sender.send(flags=flags)

    def is_cancelled(self) -> bool:
        """Whether the client cancelled. Never queries Triton after the last response: 24.10 would read freed memory."""
        with self._lock:
            return self._left > 0 and bool(self._sender.is_cancelled())
