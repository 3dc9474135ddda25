"""Records that no run has written are refused where they are read, by a sentence that names the column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench_records.record import Record
from bench_records.table import read_table, write_table
from reports.metrics.requests import Requests, from_columns
from reports.metrics.sound_records import check_parents

SteadyRun = Callable[..., list[Record]]
Read = Callable[..., Requests]
_TOKENS = (
    "requested_output_tokens", "requested_input_tokens", "input_tokens", "output_tokens", "text_tokens", "cached_input_tokens",
    "hidden_tokens",
)  # fmt: skip
_DURATIONS = ("server_queue_ns", "server_prefill_ns", "server_decode_ns", "connect_ns", "router_ns")


@pytest.fixture
def read(tmp_path: Path, steady_run: SteadyRun) -> Read:
    """Reads three records of three tokens, one column of which has other values."""
    path = tmp_path / "requests.parquet"
    write_table(steady_run(3), path)
    table = read_table(path)

    def make(column: str, *values: object) -> Requests:
        place = table.column_names.index(column)
        type_of = table.schema.field(column).type
        return from_columns(table.set_column(place, column, pa.array(list(values), type_of)).select)

    return make


@pytest.mark.parametrize("column", _TOKENS)
def test_a_number_of_tokens_has_31_bits(read: Read, column: str) -> None:
    assert getattr(read(column, 0, 1, 2_147_483_647), column).tolist() == [0, 1, 2_147_483_647]
    for value in (-1, 2_147_483_648):
        with pytest.raises(ValueError, match="tokens") as refused:
            read(column, 1, value, 1)
        assert str(refused.value) == f"{column}: a number of tokens is negative or above 2,147,483,647"


@pytest.mark.parametrize("column", _DURATIONS)
def test_a_duration_is_not_negative(read: Read, column: str) -> None:
    np.testing.assert_array_equal(getattr(read(column, 0, None, 5), column), [0, np.nan, 5])
    with pytest.raises(ValueError, match="duration") as refused:
        read(column, 0, -1, 5)
    assert str(refused.value) == f"{column}: a duration is negative"


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ((0, 1, 2), None),
        ((5, 9, 7), None),
        ((0, 1, 0), "index: 3 records of 2 requests, or negative numbers"),
        ((-1, 0, 1), "index: 3 records of 3 requests, or negative numbers"),
    ],
)
def test_each_request_has_one_record(read: Read, numbers: tuple[int, ...], reason: str | None) -> None:
    if reason is None:
        assert read("index", *numbers).index.tolist() == list(numbers)
        return
    with pytest.raises(ValueError, match="index") as refused:
        read("index", *numbers)
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("column", "words", "reason"),
    [
        ("outcome", ("done", "well", "good"), "outcome: 'good' is none of done, connect, refused, "),
        ("outcome", ("done", "x" * 41, "done"), f"outcome: '{'x' * 40}' is none of done, connect, refused, "),
        ("output_tokens_source", ("server", None, "guess"), "output_tokens_source: 'guess' is none of server, ids, "),
    ],
)
def test_only_known_words_are_read(read: Read, column: str, words: tuple[str | None, ...], reason: str) -> None:
    with pytest.raises(ValueError, match="is none of") as refused:
        read(column, *words)
    assert str(refused.value).startswith(reason)


@pytest.mark.parametrize(
    ("counts", "is_sound"),
    [
        (([1, 0, 2], None, [1, 1, 1]), True),
        (([1, 1, -1], None, None), False),
        (([1], None, None), False),
        (([1, 1], [1, 1, 1, 1], [1, 1, 1]), False),  # nine in all, as many as there are responses
    ],
)
def test_each_response_has_one_count_of_tokens(read: Read, counts: tuple[list[int] | None, ...], is_sound: bool) -> None:
    if is_sound:
        expected = [1, 0, 2, np.nan, np.nan, np.nan, 1, 1, 1]
        np.testing.assert_array_equal(read("token_counts", *counts).token_counts, expected)
        return
    with pytest.raises(ValueError, match="token_counts") as refused:
        read("token_counts", *counts)
    assert str(refused.value) == "token_counts are negative, or not as many as token_times_ns"


def test_a_turn_waits_for_a_request_of_the_run() -> None:
    check_parents(np.array([3, 4]), np.array([np.nan, 3.0]))
    with pytest.raises(ValueError, match="parent") as refused:
        check_parents(np.array([3, 4]), np.array([np.nan, 2.0]))
    assert str(refused.value) == "parent: a turn waited for a request that is not there"
