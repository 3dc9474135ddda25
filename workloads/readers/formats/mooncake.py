"""Reader of Mooncake's traces: JSON lines with ``timestamp`` in ms, lengths, and a hash for each block of 512 tokens; and of
Dynamo's extensions of them, whose rows name what they wait for, or their session.

A row with ``wait_for``, a list of ``request_id``s, waits for all of them, then ``delay`` and ``tool_wait_ms``, both in ms. In a
file in which no row has ``wait_for``, a row waits for the one before it of its ``session_id``, by time, and then ``delay``; ids
may occur more than once there. A row that waits needs no ``timestamp``: its arrival is then the earliest possible, at the ones
that it waits for and its delays, and ``untimed_rows`` counts it. ``delay_ms``, ``input_tokens`` and ``output_tokens`` are other
names of fields.

Sources: kvcache-ai/Mooncake (FAST 2025); ai-dynamo/dynamo, the formats ``mooncake`` and ``agentic_mooncake`` of DynoSim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from operator import itemgetter

from workloads.elements.errors import DatasetError
from workloads.readers.block_trace import BlockRow, Lengths, block_workload, hashes_of, holds_request
from workloads.readers.fields import Row, list_of, optional_ms_of, shown, text_of, tokens_of
from workloads.readers.json_rows import LocatedRow, accepted
from workloads.readers.rejects import RejectCounter, RowError
from workloads.table.workload import Workload

NAME = "mooncake"
SHAPE = "JSON with timestamp, input_length, output_length and hash_ids (Mooncake)"
BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class _Turn:
    where: str
    request_id: str | None
    arrival_ns: int | None
    lengths: Lengths
    session: str | None
    waits: tuple[str, ...]
    delay_ns: int | None


def recognises(first_row: Row) -> bool:
    """Whether a row has hashes of blocks, and no conversation of Qwen-Bailian's."""
    return "hash_ids" in first_row and "chat_id" not in first_row


def read(rows: Iterator[LocatedRow], rejects: RejectCounter) -> Workload:
    """The workload of the rows. Raises DatasetError, also where rows wait for each other."""
    read_rows = (replace(turn, where=where) for where, turn in accepted(rows, _row, rejects))
    turns = _named([turn for turn in read_rows if holds_request(turn.lengths, turn.where, rejects)], rejects)
    if not any(turn.waits for turn in turns.values()):
        turns = _chained(turns)
    if not any(turn.waits for turn in turns.values()):
        plain = [_plain_row(turn) for turn in turns.values() if _has_time(turn, rejects)]
        return block_workload(NAME, plain, BLOCK_TOKENS, rejects)
    timed = _timed(turns, _order(turns, rejects), rejects)
    untimed = sum(turns[row.id].arrival_ns is None for row in timed if isinstance(row.id, str))
    return block_workload(NAME, timed, BLOCK_TOKENS, rejects, untimed)


def _named(turns: Sequence[_Turn], rejects: RejectCounter) -> dict[str, _Turn]:
    """The turns by their ids, or their places where they have none of their own. Ids that rows wait for must be unique."""
    waits = any(turn.waits for turn in turns)
    named: dict[str, _Turn] = {}
    for turn in turns:
        name = turn.where if turn.request_id is None else turn.request_id
        if name not in named:
            named[name] = turn
        elif waits:
            rejects.malformed(turn.where, f'"request_id" {shown(name)} occurs in an earlier row, too')
        else:
            named[turn.where] = turn
    return named


def _chained(turns: Mapping[str, _Turn]) -> dict[str, _Turn]:
    """Each turn after the one before it in its session, by time; one without a time follows the one before it in the file."""
    sessions: dict[str, list[tuple[int, str]]] = {}
    for name, turn in turns.items():
        if turn.session is not None:
            before = sessions.setdefault(turn.session, [])
            own_ns = turn.arrival_ns if turn.arrival_ns is not None else before[-1][0] if before else 0
            before.append((own_ns, name))
    chained = dict(turns)
    for session in sessions.values():
        names = [name for _, name in sorted(session, key=itemgetter(0))]
        for name, earlier in zip(names[1:], names, strict=False):
            chained[name] = replace(turns[name], waits=(earlier,))
    return chained


def _order(turns: Mapping[str, _Turn], rejects: RejectCounter) -> list[str]:
    """The names of ``turns``, each after those that it waits for. Raises DatasetError where that cannot be."""
    try:
        order = list(TopologicalSorter({name: turn.waits for name, turn in turns.items()}).static_order())
    except CycleError as error:
        name = error.args[1][0]
        where = turns[name].where if name in turns else ""
        raise DatasetError(rejects.path, f"the request {shown(name)} waits for itself, over others", where) from error
    return [name for name in order if name in turns]


def _timed(turns: Mapping[str, _Turn], order: Sequence[str], rejects: RejectCounter) -> list[BlockRow]:
    """The rows in an order in which none comes before one that it waits for."""
    arrival_ns: dict[str, int] = {}
    rows: list[BlockRow] = []
    for name in order:
        turn = turns[name]
        unknown = next((other for other in turn.waits if other not in arrival_ns), None)
        if unknown is not None:
            rejects.malformed(
                turn.where, f"it waits for the request {shown(unknown)}, which the file lacks, or which was not read"
            )
            continue
        earliest_ns = max((arrival_ns[other] for other in turn.waits), default=None)
        if earliest_ns is None and not _has_time(turn, rejects):
            continue
        if turn.arrival_ns is not None and earliest_ns is not None and turn.arrival_ns < earliest_ns:
            rejects.malformed(turn.where, "its timestamp is before that of a request that it waits for")
        else:
            own_ns = (earliest_ns or 0) + (turn.delay_ns or 0) if turn.arrival_ns is None else turn.arrival_ns
            arrival_ns[name] = own_ns
            rows.append(_block_row(name, turn, own_ns))
    return rows


def _has_time(turn: _Turn, rejects: RejectCounter) -> bool:
    """Whether a row that waits for none has a time; one without is counted as malformed."""
    if turn.arrival_ns is None:
        rejects.malformed(turn.where, 'the field "timestamp" is missing')
    return turn.arrival_ns is not None


def _plain_row(turn: _Turn) -> BlockRow:
    return BlockRow(turn.arrival_ns or 0, turn.lengths, session=turn.session, request_id=turn.request_id)


def _block_row(name: str, turn: _Turn, arrival_ns: int) -> BlockRow:
    waits = tuple(dict.fromkeys(turn.waits))
    return BlockRow(
        arrival_ns=arrival_ns,
        lengths=turn.lengths,
        id=name,
        parent_id=waits[0] if waits else None,
        join_ids=waits[1:],
        think_time_ns=turn.delay_ns if waits else None,
        session=turn.session,
        request_id=turn.request_id,
    )


def _row(row: Row) -> _Turn:
    return _Turn(
        where="",
        request_id=None if row.get("request_id") is None else _name(row["request_id"], "request_id"),
        arrival_ns=optional_ms_of(row, "timestamp"),
        lengths=_lengths(row),
        session=None if row.get("session_id") is None else _name(row["session_id"], "session_id"),
        waits=() if row.get("wait_for") is None else tuple(_name(name, "wait_for") for name in list_of(row, "wait_for")),
        delay_ns=_delay_ns(row),
    )


def _delay_ns(row: Row) -> int | None:
    """What passes between the last answer and the row, with the tools; None where the row has neither."""
    own_ns = optional_ms_of(row, _field(row, "delay", "delay_ms"))
    tools_ns = optional_ms_of(row, "tool_wait_ms")
    return None if own_ns is None and tools_ns is None else (own_ns or 0) + (tools_ns or 0)


def _lengths(row: Row) -> Lengths:
    inputs, outputs = (_field(row, f"{side}_length", f"{side}_tokens") for side in ("input", "output"))
    input_tokens = tokens_of(row, inputs)
    return Lengths(input_tokens, tokens_of(row, outputs), hashes_of(row, "hash_ids", (inputs, input_tokens), BLOCK_TOKENS))


def _field(row: Row, name: str, other: str) -> str:
    """The one of two names that the row has."""
    return other if name not in row and other in row else name


def _name(value: object, field: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise RowError(f'"{field}" must have strings or whole numbers, found {shown(value)}')
    return text_of({field: value}, field) if isinstance(value, str) else str(value)
