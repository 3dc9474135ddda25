"""The conversations of a workload as requests, each turn with what was said before it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from workloads.elements.errors import Field, WorkloadError
from workloads.elements.request import NO_LIMITS, HistorySource, LengthLimits, Message, Request, Turn
from workloads.elements.token_ids import TokenIds, token_ids
from workloads.prompts.dataset import Encode, OutputLengths, check_lengths, output_tokens_of, too_long
from workloads.prompts.drawn import Drawn
from workloads.table.workload import Workload

_SHOWN = 40  # characters of a prompt in a message


class TurnClock(StrEnum):
    """When a later turn is due: its think time after the answer before it, or at its recorded time, not before that answer."""

    THINK_TIME = "think_time"
    RECORDED = "recorded"


class TurnOrder(StrEnum):
    """The order of requests: one session after another, or the order of the rows, which is by arrival where a file has
    arrivals.
    """

    BY_SESSION = "by_session"
    BY_ROW = "by_row"


@dataclass(frozen=True, slots=True)
class SessionRules:
    """How turns become requests. ``think_time_ns`` is for turns whose file has none. With ``as_messages`` a request carries the
    messages before its prompt; without, its prompt is the text of them all, in lines. The server's ``history`` exists in chats
    alone.
    """

    clock: TurnClock = TurnClock.THINK_TIME
    think_time_ns: int = 0
    as_messages: bool = False
    history: HistorySource = HistorySource.RECORDED
    order: TurnOrder = TurnOrder.BY_SESSION


@dataclass(frozen=True, slots=True)
class SessionPrompts:
    """Every turn of the conversations of ``workload``, of at most ``most_sessions``; None is no limit.

    ``encode`` gives token ids; without it a request carries text only, and lengths are not checked. A chat's length is counted
    without the server's template, and left to the server. Where the history has the server's answers, a prompt counts with all
    turns before it and the output tokens that they ask for: the most that it can have.
    """

    workload: Workload
    encode: Encode | None
    lengths: OutputLengths
    rules: SessionRules
    limits: LengthLimits = NO_LIMITS
    ignore_eos: bool = False
    most_sessions: int | None = None

    def draw(self, most: int | None) -> Drawn:
        """At most ``most`` requests; those beyond the limits are dropped and counted. Raises WorkloadError."""
        check_lengths(self.lengths, self.limits, self.encode)
        check_times(self.workload, self.rules.clock)
        rows = _rows(self.workload)
        turns = _Turns(rows, self)
        sessions = used = 0
        for row in _ordered(rows, self.rules.order):
            if len(turns.made) == most or (row.parent is None and sessions == self.most_sessions):
                break
            used += 1
            sessions += turns.add(row) and row.parent is None
        if not turns.made:
            raise too_long(self.limits)
        requests, places = zip(*turns.made, strict=True)
        return Drawn(
            requests,
            turns.too_long,
            turns.behind,
            kept=tuple(turns.index_of),
            rows=used,
            without_length=turns.without_length,
            turns=places,
            prompt_ids=tuple(turns.prompt_ids) if self.encode is not None and turns.is_recorded else None,
        )


class _Turns:
    """The turns so far, as requests: ``index_of`` has that of each row that is sent."""

    def __init__(self, rows: dict[int, _Row], source: SessionPrompts) -> None:
        self._rows, self._source = rows, source
        self._said: dict[int, tuple[Message, ...]] = {}  # up to and with the row's answer
        self._most_said: dict[int, int] = {}  # tokens of it, where the answer is the server's
        self.is_recorded = source.rules.history is HistorySource.RECORDED
        self.made: list[tuple[Request, Turn]] = []
        self.prompt_ids: list[TokenIds] = []
        self.index_of: dict[int, int] = {}
        self.too_long = self.behind = self.without_length = 0

    def add(self, row: _Row) -> bool:
        """Whether the turn is sent: it is not too long, and the one before it is sent, too. Raises WorkloadError."""
        if row.parent is not None and row.parent not in self.index_of:
            self.behind += 1
            return False
        history = (() if row.parent is None else self._said.get(row.parent, ())) + row.history
        text = "\n".join([*(message.content for message in history), row.prompt])
        ids = None if self._source.encode is None else token_ids(self._source.encode(text))
        if not row.prompt.strip() or (ids is not None and not ids):
            raise WorkloadError(f"row {row.number + 1} of the dataset has an empty prompt")
        output_tokens = output_tokens_of(row.output_tokens, row.answer, self._source.lengths)
        if ids is not None and not self._fits(row, len(ids), output_tokens):
            self.too_long += 1
            return False
        request = Request(output_tokens, ignore_eos=self._source.ignore_eos, session=row.session or f"row {row.first + 1}")
        if self._source.rules.as_messages:
            request = replace(request, prompt=row.prompt, history=history)
        else:
            request = replace(request, prompt=text, input_ids=ids, input_tokens=None if ids is None else len(ids))
        if ids is not None:
            self.prompt_ids.append(ids)
        self.index_of[row.number] = len(self.made)
        self.made.append((request, _turn(row, self._rows, self.index_of, self._source.rules)))
        self.without_length += row.output_tokens is None and row.answer is None
        if row.has_next and self.is_recorded:
            self._said[row.number] = (*history, Message("user", row.prompt), Message("assistant", _answer(row)))
        return True

    def _fits(self, row: _Row, own_tokens: int, output_tokens: int) -> bool:
        tokens = own_tokens + (0 if row.parent is None else self._most_said.get(row.parent, 0))
        if not self.is_recorded:
            self._most_said[row.number] = tokens + output_tokens
        return self._source.limits.allow(tokens, output_tokens)


def check_times(workload: Workload, clock: TurnClock) -> None:
    """Raise WorkloadError where ``clock`` needs times that the file lacks."""
    if clock is TurnClock.RECORDED and (workload.table["arrival_ns"].null_count or workload.facts.untimed_rows):
        raise WorkloadError(
            Field("sessions"),
            f" recorded: {workload.facts.source} has no arrival times; use ",
            Field("sessions"),
            " think_time",
        )


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    parent: int | None
    first: int  # the row of the first turn
    has_next: bool
    session: str | None
    prompt: str
    answer: str | None
    output_tokens: int | None
    history: tuple[Message, ...]
    arrival_ns: int | None
    think_time_ns: int | None


def _rows(workload: Workload) -> dict[int, _Row]:
    """The rows that have a prompt, by their number."""
    table = workload.table
    columns = {
        name: table[name].to_pylist()
        for name in ("parent", "session", "prompt", "answer", "output_tokens", "history", "arrival_ns", "think_time_ns")
    }
    waited_for = {parent for parent in columns["parent"] if parent is not None}
    rows: dict[int, _Row] = {}
    for number, values in enumerate(zip(*columns.values(), strict=True)):
        parent, session, prompt, answer, output_tokens, history, arrival_ns, think_time_ns = values
        if prompt is None:
            continue
        first = rows[parent].first if parent in rows else number
        messages = tuple(Message(message["role"], message["content"]) for message in history or ())
        rows[number] = _Row(
            number,
            parent,
            first,
            number in waited_for,
            session,
            prompt,
            answer,
            output_tokens,
            messages,
            arrival_ns,
            think_time_ns,
        )
    return rows


def _ordered(rows: dict[int, _Row], order: TurnOrder) -> Iterator[_Row]:
    if order is TurnOrder.BY_ROW:
        return iter(rows.values())
    return iter(sorted(rows.values(), key=lambda row: (row.first, row.number)))


def _turn(row: _Row, rows: dict[int, _Row], index_of: dict[int, int], rules: SessionRules) -> Turn:
    if row.parent is None:
        return Turn()
    parent = index_of[row.parent]
    if rules.clock is TurnClock.RECORDED:
        first_ns, own_ns = rows[row.first].arrival_ns, row.arrival_ns
        assert first_ns is not None
        assert own_ns is not None
        return Turn(parent, after_first_ns=own_ns - first_ns)
    return Turn(parent, rules.think_time_ns if row.think_time_ns is None else row.think_time_ns)


def _answer(row: _Row) -> str:
    if row.answer is None:
        raise WorkloadError(
            f"the prompt {_shown(row.prompt)} has no answer for the history of the turn after it; with ",
            Field("protocol"),
            " openai, ",
            Field("sessions"),
            " think_time ",
            Field("history"),
            " server takes the server's",
        )
    return row.answer


def _shown(prompt: str) -> str:
    """The beginning of a prompt, by which its line is found: the number of its row is that of no line."""
    return repr(prompt) if len(prompt) <= _SHOWN else f"{prompt[:_SHOWN]!r}…"


def behind_their_parents(workload: Workload, rows: Sequence[int]) -> tuple[int, ...]:
    """The part of ``rows``, which rise, that wait only for rows in ``rows``, for which this holds, too, and so on."""
    parents, joins = (workload.table[name].to_pylist() for name in ("parent", "joins"))
    sent: set[int] = set()
    for row in rows:
        if (parents[row] is None or parents[row] in sent) and sent.issuperset(joins[row] or ()):
            sent.add(row)
    return tuple(row for row in rows if row in sent)


def rows_for_turns(workload: Workload, limits: LengthLimits, most: int | None) -> int | None:
    """How many rows within ``limits`` have ``most`` turns that wait for none that is left out; None for all."""
    columns = [workload.table[name] for name in ("input_tokens", "output_tokens")]
    if most is None or any(column.null_count for column in columns):
        return most
    lengths = zip(*(column.to_pylist() for column in columns), strict=True)
    allowed = [row for row, of_row in enumerate(lengths) if limits.allow(*of_row)]
    sent = behind_their_parents(workload, allowed)
    return None if len(sent) <= most else bisect_right(allowed, sent[most - 1])


def names_of(workload: Workload) -> tuple[str, ...]:
    """A name of the conversation of each row: that of its first turn, by the trace, or by its number."""
    names: list[str] = []
    columns = zip(workload.table["parent"].to_pylist(), workload.table["session"].to_pylist(), strict=True)
    for number, (parent, session) in enumerate(columns):
        names.append(names[parent] if parent is not None else session or f"row {number + 1}")
    return tuple(names)


def in_conversations(drawn: Drawn, workload: Workload) -> Drawn:
    """The requests of ``drawn`` as turns of the conversations of ``workload``, without those whose parents are not sent."""
    kept = set(behind_their_parents(workload, drawn.kept))
    names = names_of(workload)
    sent = [(row, request) for row, request in zip(drawn.kept, drawn.requests, strict=True) if row in kept]
    return replace(
        drawn,
        requests=tuple(replace(request, session=names[row]) for row, request in sent),
        kept=tuple(row for row, _ in sent),
        dropped_behind=len(drawn.kept) - len(sent),
    )
