"""What waited for what in a recorded trace of agents, by the sessions of its requests and the times at which they ran.

A session is one chain of reasoning and tools. Its turn waits for the requests of the session that had ended when it began, of
these for the last ones: those after which no other of them began. So requests that ran at the same time are parallel sub-turns,
which wait for the same, and the turn after them waits for all of them. The first turns of a sub-agent's session wait for its
parent's session so. The parent's first request after a sub-agent's last one had ended waits for that, too.

A request that began before any of those had ended waited for none of them. The rules are those by which Dynamo's replay reads
its own traces (``lib/data-gen`` and ``lib/bench`` of ai-dynamo/dynamo), except that Dynamo lets requests of a session that ran
at the same time follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A recorded request of a session, and the session of the agent that began this one, if any. Times are ns."""

    session: str
    parent_session: str | None
    begin_ns: int
    end_ns: int


def waits_of(spans: Sequence[Span]) -> list[tuple[int, ...]]:
    """The spans that each of ``spans``, which are sorted by their begin, waits for. The first is its parent: of its own
    session, or else of the agent that began it, the one that ended last.
    """
    sessions: dict[str, list[int]] = {}
    for number, span in enumerate(spans):
        sessions.setdefault(span.session, []).append(number)
    waits = [_last_ended(spans, turns) for turns in sessions.values()]
    own = {number: ended for of_session in waits for number, ended in of_session.items()}
    joins: dict[int, list[int]] = {}
    for turns in sessions.values():
        parent = sessions.get(next((name for turn in turns if (name := spans[turn].parent_session)), ""))
        if parent is None or parent is turns:
            continue
        _begin(spans, turns, parent, own)
        _join(spans, turns, parent, joins)
    return [_parent_first(spans, own[number], joins.get(number, ())) for number in range(len(spans))]


def _parent_first(spans: Sequence[Span], own: Sequence[int], joined: Sequence[int]) -> tuple[int, ...]:
    by_end = sorted(own, key=lambda turn: (spans[turn].end_ns, turn), reverse=True)
    return tuple(dict.fromkeys((*by_end, *sorted(joined))))


def _last_ended(spans: Sequence[Span], turns: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """For each of the ``turns`` of a session, the last of those that had ended when it began."""
    ended = _Ended(spans)
    waits: dict[int, tuple[int, ...]] = {}
    for turn in turns:
        waits[turn] = ended.until(spans[turn].begin_ns)
        ended.running.append(turn)
    return waits


def _begin(spans: Sequence[Span], turns: Sequence[int], parent: Sequence[int], own: dict[int, tuple[int, ...]]) -> None:
    """Let the first turns of a sub-agent wait for its parent."""
    ended = _Ended(spans)
    begun = iter(parent)
    following = next(begun, None)
    for turn in turns:
        if own[turn]:
            continue
        while following is not None and following < turn:
            ended.running.append(following)
            following = next(begun, None)
        own[turn] = ended.until(spans[turn].begin_ns)


def _join(spans: Sequence[Span], turns: Sequence[int], parent: Sequence[int], joins: dict[int, list[int]]) -> None:
    """Let the first turn of the parent after a sub-agent's end wait for that one's last turns."""
    end_ns = max(spans[turn].end_ns for turn in turns)
    last = max(turns)
    following = next((turn for turn in parent if turn > last and spans[turn].begin_ns >= end_ns), None)
    if following is not None:
        ended = _Ended(spans)
        ended.running.extend(turns)
        joins.setdefault(following, []).extend(ended.until(end_ns))


class _Ended:
    """The requests of a session that have ended, as time goes on: ``running`` are those of which that is not known yet."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self.running: list[int] = []
        self._last: list[int] = []
        self._latest: int | None = None  # of those that have ended, the one that began last

    def until(self, now_ns: int) -> tuple[int, ...]:
        """The last ones of those that have ended by ``now_ns``, in their order."""
        ended = [turn for turn in self.running if self._spans[turn].end_ns <= now_ns]
        if ended:
            self.running = [turn for turn in self.running if self._spans[turn].end_ns > now_ns]
            latest = max(ended) if self._latest is None else max(self._latest, *ended)
            begin_ns = self._spans[latest].begin_ns
            self._last = [turn for turn in (*self._last, *ended) if turn == latest or self._spans[turn].end_ns > begin_ns]
            self._latest = latest
        return tuple(sorted(self._last))
