from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bench_records.record import Outcome, Record
from harness.distribution.live_histograms import E2E, SLIP, TPOT, TTFT, LiveHistograms, bucket_ms

_MS = 1_000_000


def _record(index: int, outcome: Outcome = Outcome.DONE) -> Record:
    return Record(
        index=index,
        outcome=outcome,
        scheduled_ns=0,
        requested_output_tokens=3,
        sent_ns=2 * _MS,
        done_ns=50 * _MS,
        token_times_ns=(10 * _MS, 20 * _MS, 40 * _MS),
        token_counts=(1, 1, 1),
        output_tokens=3,
    )


@given(st.floats(1e-3, 1e6))
def test_a_bucket_is_within_half_a_per_cent(value_ms: float) -> None:
    assert abs(bucket_ms(value_ms) - value_ms) <= 0.005 * value_ms


def test_zero_has_a_bucket() -> None:
    assert bucket_ms(0.0) == 0.0


def test_latencies_count_from_the_schedule_to_the_last_token() -> None:
    histograms = LiveHistograms(streamed=True)
    histograms.add(_record(0))
    update = histograms.take(in_flight=4)
    assert {histogram.name: histogram.sum_ms for histogram in update.histograms} == {
        E2E: 40.0,
        TTFT: 10.0,
        TPOT: 15.0,
        SLIP: 2.0,
    }
    assert update.in_flight == 4


def test_tokens_that_the_server_did_not_send_take_no_part_in_the_time_per_output_token() -> None:
    histograms = LiveHistograms(streamed=True)
    histograms.add(replace(_record(0), token_counts=(101, 1, 1), output_tokens=103, hidden_tokens=100))
    assert {histogram.name: histogram.sum_ms for histogram in histograms.take(0).histograms}[TPOT] == 15.0


def test_an_answer_in_one_piece_has_no_latencies_of_tokens() -> None:
    histograms = LiveHistograms(streamed=False)
    histograms.add(_record(0))
    assert {histogram.name for histogram in histograms.take(0).histograms} == {E2E, SLIP}


def test_an_answer_whose_tokens_came_in_one_response_has_no_time_between_them() -> None:
    histograms = LiveHistograms(streamed=True)
    histograms.add(replace(_record(0), token_times_ns=(40 * _MS,), token_counts=(3,)))
    assert {histogram.name for histogram in histograms.take(0).histograms} == {E2E, TTFT, SLIP}


def test_updates_add_up_to_all_records() -> None:
    together, parts = LiveHistograms(streamed=True), LiveHistograms(streamed=True)
    counts: Counter[float] = Counter()
    for index in range(9):
        record = _record(index, Outcome.TIMEOUT if index % 4 == 3 else Outcome.DONE)
        together.add(record)
        parts.add(record)
        if index % 2:
            counts.update(next((histogram.buckets for histogram in parts.take(0).histograms if histogram.name == TTFT), {}))
    counts.update(next((histogram.buckets for histogram in parts.take(0).histograms if histogram.name == TTFT), {}))
    whole = together.take(0)
    assert dict(counts) == next(histogram.buckets for histogram in whole.histograms if histogram.name == TTFT) == {10.0: 7}
    assert whole.failures == {"timeout": 2}
    assert next(histogram for histogram in whole.histograms if histogram.name == E2E).failed == 2


def test_a_cancellation_that_was_planned_is_no_failure() -> None:
    histograms = LiveHistograms(streamed=True)
    histograms.add(_record(0, Outcome.WITHDRAWN))
    assert histograms.take(0).histograms == ()


def test_failures_alone_are_shown_too() -> None:
    histograms = LiveHistograms(streamed=True)
    histograms.add(_record(0, Outcome.TIMEOUT))
    (e2e,) = histograms.take(0).histograms
    assert (e2e.name, e2e.count, e2e.failed, e2e.least_ms) == (E2E, 0, 1, None)
