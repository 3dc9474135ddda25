"""The values of a request, by hand and against those that a report computes."""

from __future__ import annotations

from bench_records.record import Outcome, Record
from harness.locust_users.measures import Measure, Value, e2e_ms, parts_of

_MS = 1_000_000


def _record(**fields: object) -> Record:
    values: dict[str, object] = {
        "index": 0,
        "outcome": Outcome.DONE,
        "scheduled_ns": 0,
        "requested_output_tokens": 5,
        "sent_ns": 2 * _MS,
        "token_times_ns": (12 * _MS, 16 * _MS, 22 * _MS),
        "token_counts": (1, 1, 3),
        "output_tokens": 5,
    }
    return Record(**(values | fields))  # type: ignore[arg-type]


def test_times_count_from_the_sending_and_gaps_are_divided_by_the_tokens_of_the_later_response() -> None:
    assert e2e_ms(_record()) == 20.0
    assert parts_of(_record()) == [
        Value(Measure.TTFT, 10.0),
        Value(Measure.TOKENS, 5),
        Value(Measure.TPOT, 2.5),
        Value(Measure.ITL, 4.0),
        *[Value(Measure.ITL, 2.0)] * 3,
    ]


def test_gaps_between_responses_of_unknown_tokens_are_inter_chunk_latencies() -> None:
    values = parts_of(_record(token_counts=None, output_tokens=None))
    assert values == [Value(Measure.TTFT, 10.0), Value(Measure.ICL, 4.0), Value(Measure.ICL, 6.0)]


def test_tokens_in_one_response_have_no_time_between_them() -> None:
    values = parts_of(_record(token_times_ns=(12 * _MS,), token_counts=(5,)))
    assert values == [Value(Measure.TTFT, 10.0), Value(Measure.TOKENS, 5)]


def test_a_failure_has_no_values_even_where_tokens_came() -> None:
    for record in (_record(outcome=Outcome.STREAM_CUT), _record(token_times_ns=(), token_counts=None)):
        assert e2e_ms(record) is None
        assert parts_of(record) == []
