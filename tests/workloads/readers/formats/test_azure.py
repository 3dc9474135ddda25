"""Azure's traces."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.errors import DatasetError
from workloads.readers.detect import read_workload_file

Read = Callable[..., Any]
Rows = Callable[..., list[dict[str, Any]]]
_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def _row(arrival_ns: int, inputs: int, outputs: int) -> dict[str, int]:
    return {"arrival_ns": arrival_ns, "input_tokens": inputs, "output_tokens": outputs}


def test_seven_digits_of_a_fraction_are_kept(csv_rows: Rows) -> None:
    lines = ("2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951690,396,109")
    assert csv_rows(_HEADER, *lines) == [_row(0, 374, 44), _row(4_314_579_000, 396, 109)]


@pytest.mark.parametrize("time", ["2024-05-12 00:00:21+00:00", "2024-05-12T00:00:21Z", "2024-05-12 01:00:21.0+0100"])
def test_an_offset_is_taken_into_account(csv_rows: Rows, time: str) -> None:
    assert csv_rows(_HEADER, "2024-05-12 00:00:20,1,2", f"{time},3,4")[1] == _row(10**9, 3, 4)


def test_columns_are_found_by_name_whatever_their_order(csv_rows: Rows) -> None:
    header = ' GeneratedTokens ,"NumImages",TIMESTAMP,ContextTokens'
    assert csv_rows(header, "5,0,2024-05-12 00:00:20,7") == [_row(0, 7, 5)]


def test_rows_out_of_order_are_sorted_and_equal_times_stay_as_they_stand(csv_rows: Rows) -> None:
    times = ("00:00:05", "00:00:01", "00:00:05", "00:00:01")
    lines = [f"2024-05-12 {time},{number},1" for number, time in enumerate(times, start=1)]
    assert [row["input_tokens"] for row in csv_rows(_HEADER, *lines)] == [2, 4, 1, 3]


def test_byte_order_mark_windows_line_ends_and_blank_lines_are_accepted(read: Read) -> None:
    plain = read(f"{_HEADER}\n2024-05-12 00:00:20,1,2\n2024-05-12 00:00:21,1,2".encode(), "t.csv", strict=True)
    other = f"\ufeff{_HEADER}\r\n2024-05-12 00:00:20,1,2\r\n\r\n2024-05-12 00:00:21,1,2\r\n\r\n"
    assert read(other.encode(), "t.csv", strict=True).workload == plain.workload


@pytest.mark.parametrize(
    "line",
    [
        "2024-02-30 00:00:00,1,1", "2024-05-12 25:00:00,1,1", "9999-01-01 00:00:00,1,1", ",1,1", "x,1,1", "1e9,1,1",
        "2024-05-12 00:00:00,-1,1", "2024-05-12 00:00:00,1,NaN", "2024-05-12 00:00:00,1.5,1", "2024-05-12 00:00:00,1,99999999",
        "2024-05-12 00:00:00,1," + "9" * 400, "2024-05-12 00:00:00,1", "2024-05-12 00:00:00,1,1,1", "2024-05-12 00:00:00,,1",
        "2024-05-12 00:00:00,0x1,1", "2024-05-12 00:00:00,١,1",
    ],
)  # fmt: skip
def test_a_malformed_row_is_counted_or_with_strict_an_error_with_its_line(read: Read, line: str) -> None:
    content = f"{_HEADER}\n2024-05-12 00:00:00,1,2\n\n{line}\n2024-05-12 00:00:01,3,4\n".encode()
    reading = read(content, "t.csv")
    assert reading.workload.table["output_tokens"].to_pylist() == [2, 4]
    assert reading.workload.facts.rejected_rows == 1
    assert reading.rejects.first[0].where == "line 4"
    with pytest.raises(DatasetError, match="line 4: "):
        read(content, "t.csv", strict=True)


def test_bytes_that_are_not_utf_8_cost_one_row(read: Read) -> None:
    content = f"{_HEADER}\n2024-05-12 00:00:00,1,2\n2024-05-12 00:00:00,1,".encode() + b"\xff\n"
    assert read(content, "t.csv").rejects.first[0].where == "line 3"


def test_rows_without_tokens_are_left_out(read: Read) -> None:
    reading = read(f"{_HEADER}\n2024-05-12 00:00:00,1,0\n2024-05-12 00:00:00,1,2".encode(), "t.csv", strict=True)
    assert (len(reading.workload), reading.rejects.count) == (1, 1)


def test_a_row_beyond_the_first_block_is_named_with_its_line(read: Read) -> None:
    lines = ["2024-05-12 00:00:00,1,2"] * 400_000
    lines[10], lines[350_000] = "1,2", "bad,1,2"
    first = read("\n".join([_HEADER, *lines]).encode(), "t.csv").rejects.first
    assert {reject.where for reject in first} == {"line 12", "line 350002"}


@pytest.mark.parametrize("header", ["TIMESTAMP,TIMESTAMP,ContextTokens,GeneratedTokens", "Time,ContextTokens,GeneratedTokens"])
def test_a_column_that_is_missing_or_stands_twice_is_named(read: Read, header: str) -> None:
    with pytest.raises(DatasetError, match="line 1: the column 'TIMESTAMP'"):
        read(f"{header}\n1,2,3,4".encode(), "t.csv")


@given(
    st.lists(
        st.datetimes(
            datetime(1970, 1, 2),
            datetime(2099, 1, 1),
            timezones=st.integers(-840, 840).map(lambda minutes: timezone(timedelta(minutes=minutes))),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_time_is_read_as_python_reads_it(read: Read, times: list[datetime]) -> None:
    lines = [f"{time.isoformat(sep=' ')},1,1" for time in times]
    arrivals = read("\n".join([_HEADER, *lines]).encode(), "t.csv", strict=True).workload.table["arrival_ns"].to_pylist()
    first = min(times)
    assert arrivals == sorted((time.astimezone(UTC) - first) // timedelta(microseconds=1) * 1000 for time in times)


def test_the_real_trace_has_the_known_statistics(shared_data: Path) -> None:
    reading = read_workload_file(shared_data / "AzureLLMInferenceTrace_conv.csv", strict=True)
    arrival_s = reading.workload.table["arrival_ns"].to_numpy() / 1e9
    gaps = np.diff(arrival_s)
    assert (len(reading.workload), reading.rejects.count) == (19_366, 0)
    assert round(arrival_s[-1]) == 3_502
    assert round(gaps.size / arrival_s[-1], 2) == 5.53
    assert round(gaps.std() / gaps.mean(), 2) == 1.09
    assert reading.workload.facts.tick_ns is None


def test_a_file_that_pandas_wrote_is_read(read: Read) -> None:
    """With a byte order mark, Windows line ends, an index, and floats in a column with a gap."""
    lines = [
        ",TIMESTAMP,ContextTokens,GeneratedTokens", "0,2023-11-16 18:15:46.6805900,374,44.0", "1,2023-11-16 18:15:50,396,",
        "2,2023-11-16 18:15:51,12,7.5", "3,2023-11-16 18:15:52,9,8.00",
    ]  # fmt: skip
    reading = read(b"\xef\xbb\xbf" + "\r\n".join(lines).encode(), "trace.csv")
    assert reading.workload.table["output_tokens"].to_pylist() == [44, 8]
    assert reading.rejects.count == 2


@pytest.mark.parametrize("cells", ['"4,5', '4,"5', '"4,5"",1', 'x"",",5'])
def test_a_quote_that_is_not_closed_costs_one_row(read: Read, cells: str) -> None:
    """Not the rows after it, which would otherwise be in its cell."""
    before, after = ("".join(f"2024-05-12 00:0{m}:{s:02d},1,2\n" for s in range(50)) for m in (0, 2))
    reading = read(f'{_HEADER}\n{before}2024-05-12 00:01:00,{cells}\n{after}2024-05-12 00:03:00,"1","2"'.encode(), "t.csv")
    assert (len(reading.workload), reading.rejects.count, reading.rejects.first[0].where) == (101, 1, "line 52")


def test_a_quote_that_is_not_closed_costs_one_row_wherever_the_blocks_of_a_large_file_end(read: Read) -> None:
    lines = [f'2024-05-12 00:00:{number % 60:02d},"{number + 1}","2"' for number in range(200_000)]  # 6 MB, in blocks of 4 MiB
    cut = range(0, len(lines), 1_000)
    for number in cut:
        lines[number] = lines[number][:-1]
    reading = read("\n".join([_HEADER, *lines]).encode(), "t.csv")
    assert (len(reading.workload), reading.rejects.count) == (len(lines) - len(cut), len(cut))
    kept = set(range(1, len(lines) + 1)) - {number + 1 for number in cut}
    assert set(reading.workload.table["input_tokens"].to_pylist()) == kept


@pytest.mark.parametrize(("counts", "of_rows"), [(("0.0", "2.0", ""), "1 row has"), (("10", "0", "1"), "2 rows have")])
def test_images_are_counted_as_pandas_writes_them(read: Read, counts: tuple[str, ...], of_rows: str) -> None:
    lines = [f"2025-05-12 00:00:2{second},{count},1,2" for second, count in enumerate(counts)]
    reading = read("\n".join(("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens", *lines)).encode(), "t.csv")
    assert list(reading.rejects.sentences()) == [f"{reading.rejects.path}: {of_rows} images or videos, which are not sent"]


def test_requests_with_images_are_read_as_their_tokens_and_counted(read: Read) -> None:
    lines = ("2025-05-12 00:00:20,0,1,2", "2025-05-12 00:00:21,3,5,6", "2025-05-12 00:00:22,1,0,0", "2025-05-12 00:00:23,1,7,8")
    reading = read("\n".join(("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens", *lines)).encode(), "t.csv")
    assert reading.workload.table["input_tokens"].to_pylist() == [1, 5, 7]
    assert list(reading.rejects.sentences()) == [
        f"{reading.rejects.path}: 1 row was not read; for example line 4: the request failed: it has no tokens",
        f"{reading.rejects.path}: 2 rows have images or videos, which are not sent",
    ]
