"""Reader of Dynamo's request traces, ``dynamo.request.trace.v1``: JSON lines of events, of which each ``request_end`` is a
request with its lengths and a hash for each block of its prompt.

A request with an ``agent_context`` is a turn of a session; ``agent_sessions.py`` has the rule for what it waited for. Its think
time counts from the last of the answers that it waited for, and so has the tools that ran in between (``tool_end``). Events
that are no requests are read over. ``request_class`` is the model, ``request_id`` the caller's ``x_request_id``, or else
Dynamo's id.

Source: the schema that ai-dynamo/dynamo documents in ``docs/`` (Request Replay Tracing, Agent Tracing).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workloads.elements.errors import DatasetError
from workloads.readers.agent_sessions import Span, waits_of
from workloads.readers.block_trace import BlockRow, Lengths, block_workload, hashes_of, holds_request
from workloads.readers.fields import Row, object_of, optional_ms_of, shown, text_of, time_ns_of, tokens_of
from workloads.readers.json_rows import LocatedRow, accepted
from workloads.readers.rejects import RejectCounter, RowError
from workloads.table.workload import Workload

NAME = "dynamo"
SHAPE = "JSON of dynamo.request.trace.v1 (Dynamo)"
_SCHEMAS = ("dynamo.request.trace.", "dynamo.agent.trace.")
_REQUEST = "request_end"
_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class _Request:
    lengths: Lengths
    block_tokens: int
    span: Span
    has_context: bool
    model: str | None
    own_id: str
    x_request_id: str | None


def recognises(first_row: Row) -> bool:
    """Whether a row is an event of Dynamo's, perhaps within the envelope of a sink."""
    schema = _event(first_row).get("schema")
    return isinstance(schema, str) and schema.startswith(_SCHEMAS)


def read(rows: Iterator[LocatedRow], rejects: RejectCounter) -> Workload:
    """The workload of the requests. Raises DatasetError, also for requests with blocks of several lengths."""
    requests: list[_Request] = []
    seen: set[str] = set()
    for where, request in accepted(rows, _row, rejects):
        if request is None or not holds_request(request.lengths, where, rejects):
            continue
        if request.own_id in seen:  # of a shard that was read twice
            rejects.malformed(where, f'"request_id" {shown(request.own_id)} occurs in an earlier row, too')
            continue
        seen.add(request.own_id)
        if requests and request.block_tokens != requests[0].block_tokens:
            first = requests[0].block_tokens
            raise DatasetError(
                rejects.path, f"has blocks of {request.block_tokens} tokens, and of {first} before; read them apart", where
            )
        requests.append(request)
    requests.sort(key=lambda request: (request.span.begin_ns, request.span.end_ns))
    spans = [request.span for request in requests]
    waits = waits_of(spans)
    turns = [_turn(number, request, spans, waits[number]) for number, request in enumerate(requests)]
    return block_workload(NAME, turns, requests[0].block_tokens if requests else 1, rejects)


def _turn(number: int, request: _Request, spans: list[Span], waits: tuple[int, ...]) -> BlockRow:
    ended_ns = max((spans[other].end_ns for other in waits), default=None)
    return BlockRow(
        arrival_ns=request.span.begin_ns,
        lengths=request.lengths,
        id=number if request.has_context else None,
        parent_id=waits[0] if waits else None,
        join_ids=waits[1:],
        think_time_ns=None if ended_ns is None else request.span.begin_ns - ended_ns,
        session=request.span.session if request.has_context else None,
        request_class=request.model,
        request_id=request.x_request_id or request.own_id,
    )


def _event(row: Row) -> Row:
    """The event of a row: the row, or its ``event`` in the envelope of a sink."""
    inner = row.get("event")
    return inner if isinstance(inner, dict) else row


def _row(row: Row) -> _Request | None:
    """The request of an event; None of any other event."""
    event = _event(row)
    if text_of(event, "event_type") != _REQUEST:
        return None
    request = _object(event, "request")
    replay = _object(request, "replay")
    block_tokens, input_tokens = tokens_of(replay, "trace_block_size"), tokens_of(replay, "input_length")
    if not block_tokens:
        raise RowError('"trace_block_size" must be above 0')
    hashes = hashes_of(replay, "input_sequence_hashes", ("input_length", input_tokens), block_tokens)
    own_id = text_of(request, "request_id")
    context = None if event.get("agent_context") is None else _object(event, "agent_context")
    return _Request(
        Lengths(input_tokens, tokens_of(request, "output_tokens"), hashes),
        block_tokens,
        Span(*_sessions(context, own_id), *_times_ns(event, request)),
        context is not None,
        _optional_text(request, "model"),
        own_id,
        _optional_text(request, "x_request_id"),
    )


def _sessions(context: Row | None, own_id: str) -> tuple[str, str | None]:
    """The session of a request and its parent's: its trajectory's, where a release of Dynamo has these within sessions."""
    if context is None:
        return f"request {own_id}", None
    if context.get("trajectory_id") is not None:
        return text_of(context, "trajectory_id"), _optional_text(context, "parent_trajectory_id")
    return text_of(context, "session_id"), _optional_text(context, "parent_session_id")


def _times_ns(event: Row, request: Row) -> tuple[int, int]:
    """When the request was received, and when its answer had ended. Raises RowError."""
    begin_ns = optional_ms_of(request, "request_received_ms")
    lasted_ns = optional_ms_of(request, "total_time_ms")
    if begin_ns is not None and lasted_ns is not None:
        return begin_ns, begin_ns + lasted_ns
    end_ns = time_ns_of(event, "event_time_unix_ms", _MS)
    if begin_ns is None:
        begin_ns = None if lasted_ns is None else end_ns - lasted_ns
    if begin_ns is None:
        raise RowError('the field "request_received_ms" is missing')
    if begin_ns < 0 or end_ns < begin_ns:
        raise RowError("the request ended before it was received")
    return begin_ns, end_ns


def _object(row: Row, field: str) -> Row:
    if row.get(field) is None:
        raise RowError(f'the field "{field}" is missing')
    return object_of(row[field])


def _optional_text(row: Row, field: str) -> str | None:
    return None if row.get(field) is None else text_of(row, field)
