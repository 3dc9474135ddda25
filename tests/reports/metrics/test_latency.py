"""Latencies of each request and of each token, by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bench_records.record import Outcome, Record
from reports.metrics.catalogue import E2E, TPOT, TTFT
from reports.metrics.latency import (
    answers_without_time_per_output_token,
    causal_delays_ms,
    ceiling_waits_ms,
    client_slip_ms,
    counted_gap_share,
    inter_chunk_latencies_ms,
    inter_token_latencies_ms,
    schedule_slip_ms,
    time_per_output_token_as_objective,
    time_per_output_token_ms,
)
from reports.metrics.requests import Requests

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def test_each_request_has_its_value_its_failure_or_none(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """From the schedule: a success, a failure of the target, a request that was never sent, an answer without tokens."""
    requests = make_requests(
        [
            answered(0, 10, 15, [(30, 1), (50, 1), (70, 2)]),
            failed(1, 20, Outcome.SERVER_ERROR, 20, 900),
            failed(2, 30, Outcome.NOT_SENT),
            answered(3, 40, 40, []),
        ]
    )
    for metric, values_ms in (
        (TTFT, [20.0, np.inf, np.nan, np.nan]),
        (E2E, [60.0, np.inf, np.nan, np.nan]),
        (TPOT, [40.0 / 3, np.nan, np.nan, np.nan]),
    ):
        np.testing.assert_array_equal(metric.by_request(requests).values_ms, values_ms)
        assert not metric.by_request(requests).is_bound.any()
    assert time_per_output_token_ms(requests).tolist() == [40.0 / 3]


def test_tokens_that_the_server_did_not_send_take_no_part_in_the_time_per_output_token(
    make_requests: MakeRequests, answered: Make
) -> None:
    requests = make_requests(
        [
            answered(0, 0, 0, [(30, 101), (50, 1), (70, 1)], hidden_tokens=100),
            answered(1, 0, 0, [(30, 11)], hidden_tokens=10),  # one token came
        ]
    )
    assert time_per_output_token_ms(requests).tolist() == [20.0]
    np.testing.assert_array_equal(time_per_output_token_as_objective(requests).values_ms, [20.0, 0.0])
    assert inter_token_latencies_ms(requests).tolist() == [20.0, 20.0]
    assert answers_without_time_per_output_token(requests).tolist() == [False, False]


def test_waits_at_the_ceiling_are_those_of_the_requests_sent(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    requests = make_requests(
        [
            answered(0, 0, 30, [(40, 1)], released_ns=25_000_000),
            answered(1, 10, 11, [(40, 1)]),
            failed(2, 20, Outcome.NOT_SENT, released_ns=70_000_000),
        ]
    )
    assert ceiling_waits_ms(requests).tolist() == [25.0, 0.0]


def test_the_client_s_slip_is_that_of_the_requests_sent_without_the_wait_at_the_ceiling(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    requests = make_requests(
        [
            answered(0, 0, 30, [(40, 1)], released_ns=25_000_000),
            failed(1, 10, Outcome.NOT_SENT),
            answered(2, 20, 22, [(40, 1)]),
        ]
    )
    assert client_slip_ms(requests).tolist() == [5.0, 2.0]
    assert schedule_slip_ms(requests).tolist() == [30.0, 2.0]


def test_later_turns_that_were_sent_were_due_as_much_later_as_the_answer_before_them_made_them(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """Two turns whose own times are 20 and 60 ms, one of them sent 5 ms late; one without a time, and one that was not sent."""
    requests = make_requests(
        [
            answered(0, 0, 0, [(50, 1)]),
            answered(1, 50, 55, [(59, 1)], parent=0, planned_ns=20_000_000),
            answered(2, 60, 60, [(79, 1)], parent=1, planned_ns=60_000_000),
            answered(3, 80, 80, [(89, 1)], parent=2),
            failed(4, 90, Outcome.NOT_SENT, parent=3, planned_ns=70_000_000),
        ]
    )
    assert causal_delays_ms(requests).tolist() == [30.0, 0.0]


@pytest.mark.parametrize(
    ("tokens", "known", "without"),
    [
        ([(10, 1), (20, 1)], {}, False),
        ([(10, 1)], {}, False),  # one token has none, and nothing is missing
        ([(10, 2)], {}, True),
        ([(10, 1)], {"requested_output_tokens": 3}, False),  # the answer was shorter than requested
        ([(10, 2)], {"requested_output_tokens": 1}, False),  # one token was requested
        ([(10, 2)], {"output_tokens": None, "token_counts": None}, True),
        ([(10, 2)], {"output_tokens": None, "token_counts": None, "requested_output_tokens": 1}, False),
        ([], {"requested_output_tokens": 3}, False),
    ],
)
def test_an_answer_of_several_tokens_in_one_response_lacks_its_time_per_output_token(
    make_requests: MakeRequests, answered: Make, tokens: list[tuple[float, int]], known: dict[str, int | None], without: bool
) -> None:
    requests = make_requests([answered(0, 0, 0, tokens, **known)])
    assert answers_without_time_per_output_token(requests).tolist() == [without]


def test_a_failure_lacks_no_time_per_output_token(make_requests: MakeRequests, failed: Make) -> None:
    requests = make_requests([failed(0, 0, Outcome.TIMEOUT, 0, 9, output_tokens=3)])
    assert answers_without_time_per_output_token(requests).tolist() == [False]


def test_the_share_of_gaps_that_have_a_count(make_requests: MakeRequests, answered: Make) -> None:
    """Among four gaps one ends with a response of 0 tokens, and one with a response whose tokens are unknown."""
    requests = make_requests(
        [
            answered(0, 0, 0, [(10, 1), (20, 1), (30, 0), (40, 3)]),
            answered(1, 0, 0, [(15, 1), (25, 1)], token_counts=None),
        ]
    )
    assert counted_gap_share(requests) == 0.5
    assert counted_gap_share(make_requests([answered(0, 0, 0, [(10, 9)])])) is None


@pytest.mark.parametrize("gap_ms", [[], [12.0]])
def test_gaps_are_within_an_answer(make_requests: MakeRequests, answered: Make, failed: Make, gap_ms: list[float]) -> None:
    """Not between the last response of one and the first of the next, nor of answers without responses."""
    first = [(10.0, 1), *((10.0 + gap, 1) for gap in gap_ms)]
    records = [answered(0, 0, 0, first), answered(1, 0, 0, [(35, 1)]), answered(2, 0, 0, []), failed(3, 0, Outcome.NOT_SENT)]
    for requests in (make_requests(records), make_requests([*records[2:], *records[:2]])):
        assert inter_chunk_latencies_ms(requests).tolist() == gap_ms
        assert inter_token_latencies_ms(requests).tolist() == gap_ms


@pytest.mark.parametrize(("last", "gaps_ms"), [([], [10.0, 30.0]), ([(35, 2)], [10.0, 7.5, 7.5, 30.0])])
def test_gaps_of_tokens_stand_in_the_order_in_which_they_ended(
    make_requests: MakeRequests, answered: Make, last: list[tuple[float, int]], gaps_ms: list[float]
) -> None:
    requests = make_requests([answered(0, 0, 0, [(10, 1), (40, 1)]), answered(1, 0, 0, [(10, 1), (20, 1), *last])])
    assert inter_token_latencies_ms(requests).tolist() == gaps_ms


def test_a_gap_is_shared_by_the_tokens_that_end_it(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(0, 0, 0, [(10, 2), (20, 2), (32, 2)])])
    assert inter_token_latencies_ms(requests).tolist() == [5.0, 5.0, 6.0, 6.0]


def test_a_response_without_tokens_has_no_token_latency(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(0, 0, 0, [(10, 1), (20, 0), (32, 2)])])
    with np.errstate(divide="raise"):
        assert inter_token_latencies_ms(requests).tolist() == [6.0, 6.0]


def test_gaps_that_end_together_stay_in_the_order_of_the_schedule(make_requests: MakeRequests, answered: Make) -> None:
    """300 requests that were answered at different times and get their next token from the same step."""
    first_ms = np.random.default_rng(0).permutation(300) + 1.0
    requests = make_requests([answered(k, 0, 0, [(at, 1), (1_000, 1)]) for k, at in enumerate(first_ms)])
    assert inter_chunk_latencies_ms(requests).tolist() == (1_000 - first_ms).tolist()


def test_gaps_stand_in_their_order_in_a_run_that_began_late(make_requests: MakeRequests, answered: Make) -> None:
    """Each gap ends 2 ms before that of the request before it, 1,000 s after the clock's start."""
    records = [answered(k, 1e6, 1e6, [(1e6 + 10, 1), (1e6 + end, 1)]) for k, end in enumerate((54, 52, 50))]
    assert inter_chunk_latencies_ms(make_requests(records)).tolist() == [40.0, 42.0, 44.0]
