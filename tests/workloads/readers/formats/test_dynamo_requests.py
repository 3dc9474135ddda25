"""Dynamo's request traces: requests, sessions with tools and sub-agents. All are written from its documented schema."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workloads.elements.errors import DatasetError
from workloads.readers.detect import read_workload_file

Read = Callable[..., Any]
Rows = Callable[..., list[dict[str, Any]]]

_T0 = 1_790_000_000_000
_SHIPPED = Path(__file__).parents[4] / "datasets" / "dynamo_request_trace.jsonl"


def _end(at_ms: int, lasted_ms: int | None, hashes: Any, session: str | None = None, **more: Any) -> dict[str, Any]:
    """A ``request_end``; ``more`` are fields of the request, or of its replay."""
    of_replay = {name: more.pop(name) for name in ("trace_block_size", "input_length") if name in more}
    context, parent = {}, more.pop("parent", None)
    if session is not None:
        of_session = {"session_id": session} | ({} if parent is None else {"parent_session_id": parent})
        context = {"agent_context": of_session}
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": _T0 + at_ms + (lasted_ms or 40),
        **context,
        "request": {
            "request_id": f"r{at_ms}",
            "output_tokens": 3,
            "request_received_ms": _T0 + at_ms,
            **({} if lasted_ms is None else {"total_time_ms": lasted_ms}),
            "replay": {"trace_block_size": 64, "input_length": 100, "input_sequence_hashes": hashes} | of_replay,
            **more,
        },
    }


def _tool(at_ms: int, lasted_ms: int, session: str) -> dict[str, Any]:
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "tool_end",
        "event_time_unix_ms": _T0 + at_ms + lasted_ms,
        "agent_context": {"session_id": session},
        "tool": {"tool_call_id": "c", "tool_class": "search", "started_at_unix_ms": _T0 + at_ms, "duration_ms": lasted_ms},
    }


def test_requests_without_a_session_have_times_lengths_and_hashes(rows: Rows) -> None:
    read = rows(_end(0, None, [7, 2**64 - 1]), _end(-500, 20, [7, 9], x_request_id="mine", model="m"), lines=True)
    assert read == [
        {"arrival_ns": 0, "input_tokens": 100, "output_tokens": 3, "block_hashes": [7, 9],
         "request_class": "m", "request_id": "mine"},
        {"arrival_ns": 500_000_000, "input_tokens": 100, "output_tokens": 3, "block_hashes": [7, -1],
         "request_id": "r0"},
    ]  # fmt: skip


def test_turns_wait_for_answers_and_their_think_time_has_the_tools(rows: Rows) -> None:
    read = rows(
        _end(0, 100, [1, 2], "s"), _tool(105, 200, "s"), _end(310, 90, [1, 3], "s"),
        _end(405, 50, [1, 4], "c1", parent="s"), _end(407, 300, [1, 5], "c2", parent="s"),
        _tool(460, 20, "c1"), _end(490, 60, [1, 6], "c1", parent="s"), _end(720, 30, [1, 7], "s"),
        lines=True,
    )  # fmt: skip
    assert [(row.get("parent"), row.get("joins"), row.get("think_time_ns"), row["session"]) for row in read] == [
        (None, None, None, "s"),
        (0, None, 210_000_000, "s"),
        (1, None, 5_000_000, "c1"),
        (1, None, 7_000_000, "c2"),
        (2, None, 35_000_000, "c1"),
        (1, [3, 4], 13_000_000, "s"),
    ]


def test_events_that_are_no_requests_are_read_over_and_envelopes_are_opened(read: Read) -> None:
    events = [{"schema": "dynamo.request.trace.v1", "event_type": "request_payload", "request_id": "r"}, _end(0, 9, [1, 2])]
    content = "\n".join(json.dumps({"timestamp": 5, "event": event}) for event in events).encode()
    reading = read(gzip.compress(content), strict=True)
    assert (len(reading.workload), reading.rejects.count, reading.workload.facts.format) == (1, 0, "dynamo")
    assert reading.workload.facts.block_tokens == 64


def test_trajectories_within_a_session_are_the_chains(rows: Rows) -> None:
    events = [_end(0, 10, [1, 2], "run"), _end(5, 10, [1, 3], "run"), _end(20, 10, [1, 4], "run")]
    for event, names in zip(events, (("a", None), ("b", None), ("a", None)), strict=True):
        event["agent_context"] |= {"trajectory_id": names[0], "parent_trajectory_id": names[1]}
    assert [(row["session"], row.get("parent")) for row in rows(*events, lines=True)] == [("a", None), ("b", None), ("a", 0)]


def test_a_failed_request_is_left_out_and_its_session_goes_on(read: Read) -> None:
    events = [_end(0, 10, [1, 2], "s"), _end(20, 10, [1, 3], "s", output_tokens=0), _end(40, 10, [1, 4], "s")]
    reading = read("\n".join(map(json.dumps, events)).encode(), strict=True)
    assert reading.rejects.count == 1
    assert reading.workload.table["parent"].to_pylist() == [None, 0]
    assert reading.workload.table["think_time_ns"].to_pylist() == [None, 30_000_000]


def test_a_shard_that_was_read_twice_does_not_double_the_load(read: Read) -> None:
    events = [_end(0, 10, [1, 2]), _end(20, 10, [1, 3])]
    reading = read("\n".join(map(json.dumps, [*events, *events])).encode())
    assert (len(reading.workload), reading.rejects.count) == (2, 2)
    assert reading.rejects.first[0].reason == "\"request_id\" 'r0' occurs in an earlier row, too"


def _without(field: str) -> dict[str, Any]:
    event = _end(5, None, [1, 2])
    holder = event if field in event else event["request"] if field in event["request"] else event["request"]["replay"]
    del holder[field]
    return event


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (_without("event_type"), 'the field "event_type" is missing'),
        (_without("request"), 'the field "request" is missing'),
        (_without("replay"), 'the field "replay" is missing'),
        (_without("request_received_ms"), 'the field "request_received_ms" is missing'),
        (_without("output_tokens"), 'the field "output_tokens" is missing'),
        (_without("event_time_unix_ms"), 'the field "event_time_unix_ms" is missing'),
        (_end(5, 9, [1]), None),
        (_end(5, 9, []), '"input_sequence_hashes" has 0 blocks, and "input_length" 100 needs 2 of 64 tokens'),
        (_end(5, 9, [1, 2, 3]), '"input_sequence_hashes" has 3 blocks'),
        (_end(5, 9, [1, 2**64]), '"input_sequence_hashes" must be a list of 64-bit integers'),
        (_end(5, 9, [1, 2**63, 1.5][1:]), '"input_sequence_hashes" must be a list of 64-bit integers, found 1.5'),
        (_end(5, 9, [1, 2], trace_block_size=0), '"trace_block_size" must be above 0'),
        (_end(5, -9, [1, 2]), '"total_time_ms" must be a time'),
        (_end(5, 9, [1, 2]) | {"agent_context": {"session": "s"}}, 'the field "session_id" is missing'),
        (_end(5, 9, [1, 2]) | {"agent_context": 5}, "expected an object, found int"),
    ],
)
def test_a_malformed_request_is_named_with_its_line(read: Read, event: dict[str, Any], problem: str | None) -> None:
    content = "\n".join(map(json.dumps, [_end(0, 9, [1, 2]), event])).encode()
    if problem is None:
        assert len(read(content, strict=True).workload) == 2
        return
    with pytest.raises(DatasetError) as error:
        read(content, strict=True)
    assert f"line 2: {problem}" in str(error.value)


def test_blocks_of_several_lengths_are_an_error(read: Read) -> None:
    events = [_end(0, 9, [1, 2]), _end(5, 9, [1], trace_block_size=128)]
    with pytest.raises(DatasetError, match="line 2: has blocks of 128 tokens, and of 64 before"):
        read("\n".join(map(json.dumps, events)).encode())


def test_the_shipped_sample_keeps_its_tools_and_parallel_sub_agents() -> None:
    reading = read_workload_file(_SHIPPED, strict=True)
    table = reading.workload.table
    names, joins = table["request_id"].to_pylist(), table["joins"].to_pylist()
    assert (len(names), reading.rejects.count) == (64, 0)
    joined = {names[row]: {names[other] for other in others} for row, others in enumerate(joins) if others}
    assert joined == {f"run-{k}:planner-3": {f"run-{k}:researcher-{n}-2" for n in (0, 1)} for k in range(8)}
