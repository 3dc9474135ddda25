from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench_records.record import FAILURES, Outcome, Record
from harness.run.live_statistics import LiveStatistics, Snapshot


def _done(ttft_ms: float, tokens: int | None = 10, scheduled_ns: int = 1_000_000) -> Record:
    return Record(
        index=0,
        outcome=Outcome.DONE,
        scheduled_ns=scheduled_ns,
        requested_output_tokens=10,
        sent_ns=scheduled_ns + 400_000,
        token_times_ns=(scheduled_ns + int(ttft_ms * 1e6), scheduled_ns + int(ttft_ms * 1e6) + 5),
        output_tokens=tokens,
    )


def _failed(outcome: Outcome) -> Record:
    return Record(index=0, outcome=outcome, scheduled_ns=0, requested_output_tokens=10, token_times_ns=(99,), output_tokens=3)


def test_nothing_yet() -> None:
    assert LiveStatistics(7, streamed=True).snapshot(0.0, 0) == Snapshot(0.0, 7, 0, 0, 0, 0.0, 0.0, "TTFT", None)


def test_counts_rates_and_ttft_from_the_schedule() -> None:
    live = LiveStatistics(10, streamed=True)
    for ttft_ms in (30.0, 10.0, 20.0, 40.0):
        live.add(_done(ttft_ms))
    snapshot = live.snapshot(2.0, sent=7)
    assert (snapshot.scheduled, snapshot.sent, snapshot.done, snapshot.failed, snapshot.in_flight) == (10, 7, 4, 0, 3)
    assert (snapshot.requests_per_s, snapshot.tokens_per_s) == (2.0, 20.0)
    assert snapshot.latency_p99_ms == 40.0  # nearest rank: the 4th of 4


@pytest.mark.parametrize("outcome", FAILURES)
def test_failures_are_counted_apart_and_change_no_latency_and_no_rate(outcome: Outcome) -> None:
    live = LiveStatistics(10, streamed=True)
    live.add(_done(30.0))
    live.add(_failed(outcome))
    snapshot = live.snapshot(1.0, sent=2)
    assert (snapshot.done, snapshot.failed, snapshot.in_flight) == (1, 1, 0)
    assert (snapshot.tokens_per_s, snapshot.latency_p99_ms) == (10.0, 30.0)


def test_an_answer_without_a_finish_reason_is_a_failure_once_another_had_one() -> None:
    live = LiveStatistics(10, streamed=True)
    live.add(_done(30.0))
    assert live.snapshot(1.0, sent=3).done == 1
    live.add(replace(_done(30.0), finish_reason="stop"))
    live.add(_done(30.0))
    snapshot = live.snapshot(1.0, sent=3)
    assert (snapshot.done, snapshot.failed, snapshot.in_flight) == (2, 1, 0)


def test_a_planned_cancellation_is_no_failure() -> None:
    live = LiveStatistics(10, streamed=True)
    live.add(_failed(Outcome.WITHDRAWN))
    snapshot = live.snapshot(1.0, sent=1)
    assert (snapshot.done, snapshot.failed, snapshot.in_flight) == (1, 0, 0)


def test_rates_are_those_of_the_last_seconds() -> None:
    live = LiveStatistics(1000, streamed=True)
    for _ in range(100):
        live.add(_done(5.0))
    assert live.snapshot(1.0, 100).requests_per_s == 100.0
    live.snapshot(4.0, 100)
    for _ in range(10):
        live.add(_done(5.0))
    assert live.snapshot(8.0, 110).requests_per_s == 10 / 4  # since the snapshot at 4 s; the one at 1 s is too old
    assert live.snapshot(30.0, 110).requests_per_s == 0.0


def test_record_without_tokens_or_count_is_done_all_the_same() -> None:
    live = LiveStatistics(1, streamed=True)
    live.add(Record(index=0, outcome=Outcome.DONE, scheduled_ns=0, requested_output_tokens=1))
    snapshot = live.snapshot(1.0, 1)
    assert (snapshot.done, snapshot.tokens_per_s, snapshot.latency_p99_ms) == (1, 0.0, None)


def test_an_answer_in_one_piece_has_no_time_to_the_first_token() -> None:
    live = LiveStatistics(1, streamed=False)
    live.add(_done(40.0))
    snapshot = live.snapshot(1.0, 1)
    assert (snapshot.latency, snapshot.latency_p99_ms) == ("E2E", 40.0)


def test_ttft_is_of_the_latest_requests() -> None:
    live = LiveStatistics(10_000, streamed=True)
    for _ in range(3_000):
        live.add(_done(1_000.0))
    for _ in range(2_000):
        live.add(_done(1.0))
    snapshot = live.snapshot(1.0, 5_000)
    assert (snapshot.done, snapshot.latency_p99_ms) == (5_000, 1.0)


def test_count_of_sent_that_lags_behind_gives_no_negative_in_flight() -> None:
    live = LiveStatistics(2, streamed=True)
    live.add(_done(1.0))
    assert live.snapshot(1.0, sent=0).in_flight == 0
