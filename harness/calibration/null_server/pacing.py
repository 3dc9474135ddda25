"""Pacing of the null server: a heap of answers, ordered by the time of the next response, and one precise timer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from harness.host.clock import PreciseSleeper, now_ns

_MAX_ANSWERS = 16  # sent from before the event loop reads requests again
_MAX_RESPONSES = 64  # of one answer in a turn, where it is behind or unpaced
_IDLE_NS = 3600 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    """Response k of an answer is due ``first_token_ns + k · gap_ns`` after its request was received; all at once by default."""

    first_token_ns: int = 0
    gap_ns: int = 0

    def unstreamed(self, responses: int) -> Pace:
        """The pace of an answer in one piece, due when the last of ``responses`` would have been."""
        return Pace(self.first_token_ns + (responses - 1) * self.gap_ns)


UNPACED = Pace()


class Channel(Protocol):
    """The connection on which an answer is sent."""

    def accepts(self, answer: Answer) -> bool:
        """Whether the answer's next response may be written now. If not, the answer is ``held`` until the channel adds it
        again."""
        ...

    def write(self, data: bytes | bytearray) -> None:
        """Hand ``data`` to the socket before this returns."""
        ...

    def ending(self, answer: Answer) -> bytes:
        """The bytes after the answer's last response. Called once; the answer is then finished."""
        ...


@dataclass(frozen=True, slots=True)
class Responses:
    """The ``count`` responses of an answer, of equal bytes except for the stamp.

    ``buffer`` is a whole response as written to the socket; ``stamp`` writes a time into it. ``opening`` precedes the first.
    """

    buffer: bytearray
    stamp: Callable[[bytearray, int], None]
    opening: bytes
    count: int


class Answer:
    """An answer in progress. ``stream_id`` and ``window_bytes``, a response's size in flow control, are for HTTP/2 only."""

    __slots__ = (
        "_buffer", "_left", "_opening", "_stamp", "channel", "due_ns", "gap_ns", "goes_on", "held", "stream_id", "window_bytes",
    )  # fmt: skip

    def __init__(
        self,
        channel: Channel,
        responses: Responses,
        pace: Pace,
        received_ns: int,
        stream_id: int = 0,
        window_bytes: int = 0,
    ) -> None:
        self.channel = channel
        self.stream_id = stream_id
        self.window_bytes = window_bytes
        self.due_ns = received_ns + pace.first_token_ns  # of the next response
        self.gap_ns = pace.gap_ns
        self.goes_on = True
        self.held = False
        self._buffer = responses.buffer
        self._stamp = responses.stamp
        self._opening = responses.opening
        self._left = responses.count

    def cancel(self) -> None:
        self.goes_on = False

    def next_response(self, sent_ns: int) -> bytes | bytearray:
        """The next response, stamped; the buffer is valid until the next call."""
        self._stamp(self._buffer, sent_ns)
        self.due_ns += self.gap_ns
        self._left -= 1
        data: bytes | bytearray = self._buffer
        if self._opening:
            data = self._opening + data
            self._opening = b""
        if not self._left:
            self.goes_on = False
            data = data + self.channel.ending(self)
        return data


Deliver = Callable[[Sequence[Answer], int], None]
"""Sends the responses of each answer that are due by a time."""


def send_separately(answers: Sequence[Answer], due_by_ns: int) -> None:
    """Write every response by itself, stamped just before."""
    for answer in answers:
        write = answer.channel.write
        for _ in _due(answer, due_by_ns):
            write(answer.next_response(now_ns()))


def send_joined(answers: Sequence[Answer], due_by_ns: int) -> None:
    """Write the due responses of a connection in one piece, with one stamp."""
    by_channel: dict[Channel, list[Answer]] = {}
    for answer in answers:
        by_channel.setdefault(answer.channel, []).append(answer)
    for channel, its_answers in by_channel.items():
        sent_ns = now_ns()
        pieces = [bytes(answer.next_response(sent_ns)) for answer in its_answers for _ in _due(answer, due_by_ns)]
        if pieces:
            channel.write(b"".join(pieces))


def _due(answer: Answer, due_by_ns: int) -> Iterator[None]:
    """Yields once for each response that is due and accepted by the channel."""
    for _ in range(_MAX_RESPONSES):
        if not answer.goes_on or answer.due_ns > due_by_ns or not answer.channel.accepts(answer):
            return
        yield


class DueResponses:
    """Sends the responses of all added answers, each when it is due, the earliest first."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._heap: list[tuple[int, int, Answer]] = []
        self._order = count()  # among equals first in, first out
        self._sleeper = PreciseSleeper()

    def add(self, answer: Answer) -> None:
        """Add an answer, or one that was held."""
        answer.held = False
        earliest = not self._heap or answer.due_ns < self._heap[0][0]
        heappush(self._heap, (answer.due_ns, next(self._order), answer))
        if earliest:
            self._sleeper.wake()

    async def run(self) -> None:
        """Send until cancelled. The event loop reads between two turns, even when sending is behind."""
        try:
            while True:
                await self._sleeper.until(self._heap[0][0] if self._heap else now_ns() + _IDLE_NS)
                self._turn(now_ns())
        finally:
            self._sleeper.close()

    def _turn(self, due_by_ns: int) -> None:
        due: list[Answer] = []
        while self._heap and self._heap[0][0] <= due_by_ns and len(due) < _MAX_ANSWERS:
            due.append(heappop(self._heap)[2])
        self._deliver(due, due_by_ns)
        for answer in due:
            if answer.goes_on and not answer.held:
                heappush(self._heap, (answer.due_ns, next(self._order), answer))
