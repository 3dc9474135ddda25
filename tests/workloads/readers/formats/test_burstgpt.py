"""BurstGPT's traces, of both layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Read = Callable[..., Any]
Rows = Callable[..., list[dict[str, Any]]]
_OLD = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
_NEW = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
_S = 10**9


def _present(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in names)


def test_six_columns_are_read(csv_rows: Rows) -> None:
    rows = csv_rows(_OLD, "5,ChatGPT,472,18,490,Conversation log", "45.5,GPT-4,1087,230,1317,API log")
    assert rows == [
        {"arrival_ns": 0, "input_tokens": 472, "output_tokens": 18, "request_class": "ChatGPT, Conversation log"},
        {"arrival_ns": 40_500_000_000, "input_tokens": 1087, "output_tokens": 230, "request_class": "GPT-4, API log"},
    ]


def test_turns_of_a_session_wait_for_the_turn_before(csv_rows: Rows) -> None:
    rows = csv_rows(
        _NEW,
        "10.0,a,1.5,ChatGPT,1,1,2,Conversation log",
        "11.0,,,ChatGPT,1,1,2,API log",
        "12.0,b,,ChatGPT,1,1,2,Conversation log",
        "15.25,a,9,ChatGPT,1,1,2,Conversation log",
        "16.0,a,1,ChatGPT,1,1,2,Conversation log",
        "20.0,b,1,ChatGPT,1,1,2,Conversation log",
        "21.0,,1,ChatGPT,1,1,2,API log",
    )
    assert [_present(row, "session", "parent", "think_time_ns") for row in rows] == [
        ("a", None, None),
        (None, None, None),
        ("b", None, None),
        ("a", 0, 3_750_000_000),
        ("a", None, None),  # it arrived before the answer
        ("b", 2, None),  # the elapsed time is unknown
        (None, None, None),
    ]


def test_parents_are_found_where_rows_are_out_of_order(csv_rows: Rows) -> None:
    rows = csv_rows(_NEW, "30,a,1,m,3,1,2,l", "10,a,1,m,1,1,2,l", "20,b,1,m,2,1,2,l")
    assert [_present(row, "input_tokens", "parent") for row in rows] == [(1, None), (2, None), (3, 0)]


def test_a_failed_request_is_left_out_and_counted_also_with_strict(read: Read) -> None:
    reading = read(f"{_OLD}\n5,m,10,0,10,l\n6,m,10,5,15,l\n".encode(), "t.csv", strict=True)
    assert (len(reading.workload), reading.workload.facts.rejected_rows) == (1, 1)
    assert reading.rejects.first[0].where == "line 2"
    assert "failed" in reading.rejects.first[0].reason


@pytest.mark.parametrize("time", ["NaN", "-1", "", "1e5", "inf", "9" * 12, "x"])
def test_a_time_that_is_none_is_counted(read: Read, time: str) -> None:
    reading = read(f"{_OLD}\n5,m,1,1,2,l\n{time},m,1,1,2,l".encode(), "t.csv")
    assert (len(reading.workload), reading.rejects.first[0].where) == (1, "line 3")


def test_a_fraction_keeps_nine_digits_of_large_times(csv_rows: Rows) -> None:
    rows = csv_rows(_OLD, "19440110.0,m,1,1,2,l", "19440110.1234567891,m,1,1,2,l")
    assert rows[1]["arrival_ns"] == 123_456_789


def test_whole_seconds_are_a_tick(read: Read) -> None:
    lines = [f"{number * number // 40},m,1,1,2,l" for number in range(200)]
    assert read("\n".join([_OLD, *lines]).encode(), "t.csv").workload.facts.tick_ns == _S


@pytest.mark.parametrize(
    "line",
    [
        b"6,GPT\x924,1,1,2,API log", b"6,GPT-4,1,1,2,API\xa0log", b'6,"GPT-4,1,1,2,API log', b'6,GPT-4,1,1,2,"API log',
    ],
)  # fmt: skip
def test_a_text_that_is_not_utf_8_or_not_closed_costs_its_row(read: Read, line: bytes) -> None:
    content = f"{_OLD}\n5,GPT-4,1,1,2,API log\n".encode() + line + b'\n7,"GPT-4",1,1,2,"API log"\n'
    reading = read(content, "t.csv")
    assert reading.workload.table["request_class"].to_pylist() == ["GPT-4, API log"] * 2
    (reject,) = reading.rejects.first
    assert (reading.rejects.count, reject.where) == (1, "line 3")
    assert reject.reason == "is not UTF-8, or has a quote that is not closed"
