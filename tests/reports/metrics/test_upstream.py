"""Upstream's statistics, by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench_records.record import Outcome, Record
from reports.metrics.requests import Requests
from reports.metrics.upstream import UpstreamTable, upstream_statistics

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]

_NOTHING = UpstreamTable(None, None, None, None, None, None, None, None, 0)


def test_statistics_count_from_the_send_to_the_end_of_the_response(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """100 requests that take 1 to 100 ms from their sends; the first send is at 5 ms and the last end at 1,095 ms."""
    records = [
        answered(k, 10 * k, 10 * k + 5, [(10 * k + 6, 2)], done=10 * k + 5 + k + 1, input_tokens=3 + k % 2) for k in range(100)
    ]
    beside = failed(100, 0, Outcome.TIMEOUT, 0, 5_000, output_tokens=100)
    assert upstream_statistics(make_requests([*records, beside])) == UpstreamTable(
        requests_per_s=100 / 1.09,
        output_tokens_per_s=200 / 1.09,
        mean_latency_ms=50.5,
        p99_latency_ms=99.0,
        p90_latency_ms=90.0,
        mean_input_tokens=3.5,
        mean_output_tokens=2.0,
        total_latency_ms=1_090.0,
        total_requests=100,
    )


def test_rates_of_tokens_of_which_some_are_unknown_are_unknown(make_requests: MakeRequests, answered: Make) -> None:
    records = [answered(0, 0, 0, [(4, 2)], done=5), answered(1, 0, 0, [(4, 2)], done=5, output_tokens=None)]
    found = upstream_statistics(make_requests(records))
    assert (found.output_tokens_per_s, found.mean_output_tokens, found.requests_per_s) == (None, 2.0, 400.0)


def test_answers_in_no_time_have_no_rates(make_requests: MakeRequests, answered: Make) -> None:
    found = upstream_statistics(make_requests([answered(0, 7, 7, [(7, 2)], done=7)]))
    assert (found.requests_per_s, found.output_tokens_per_s, found.total_latency_ms, found.total_requests) == (None, None, 0, 1)


def test_without_a_success_there_is_nothing_but_a_count(make_requests: MakeRequests, failed: Make) -> None:
    assert upstream_statistics(make_requests([failed(0, 0, Outcome.TIMEOUT, 0, 9)])) == _NOTHING
