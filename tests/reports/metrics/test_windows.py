"""The whole run and its steady part: where they begin and end, and what is counted in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from bench_records.record import Outcome, Record
from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT
from reports.metrics.censoring import latencies_by_request
from reports.metrics.configuration import ConfiguredLoad
from reports.metrics.output_events import completions, rate
from reports.metrics.requests import Requests
from reports.metrics.windows import Window, Windows, compute_windows, whole_window
from reports.statistics.estimate import UNKNOWN
from reports.statistics.percentiles import Distribution

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def _from_schedule(requests: Requests) -> tuple[Distribution, Distribution]:
    ends_ns = (requests.first_token_ns, requests.last_token_ns)
    ttft_ms, e2e_ms = (latencies_by_request(requests, ends, requests.scheduled_ns).summary() for ends in ends_ns)
    assert ttft_ms is not None
    assert e2e_ms is not None
    return ttft_ms, e2e_ms


def _both(windows: Windows) -> tuple[Window, Window]:
    assert windows.whole is not None
    assert windows.steady is not None
    return windows.whole, windows.steady


@pytest.fixture
def cold(answered: Make) -> list[Record]:
    """1,000 requests, one each 10 ms from 10 ms on, which last 250 ms; the first 300 get their first token after 200 ms, the
    others after 50 ms. The tokens of each response are unknown, so both count at the end.
    """
    first_ms = [200] * 300 + [50] * 700
    return [
        answered(k, at, at, [(at + first, 1), (at + 250, 1)], done=at + 250, token_counts=None)
        for k, first in enumerate(first_ms)
        for at in [10 * k + 10]
    ]


def test_the_whole_run_lasts_from_the_first_arrival_to_the_end_of_the_last_success(
    make_requests: MakeRequests, cold: list[Record], failed: Make
) -> None:
    requests = make_requests([*cold, failed(1_000, 10_010, Outcome.TIMEOUT, 10_010, 20_000)])
    ttft_ms, e2e_ms = _from_schedule(requests)
    whole, _ = _both(compute_windows(requests, ttft_ms, e2e_ms))
    assert (whole.start_s, whole.end_s, whole.length_s) == (0.01, 10.25, 10.24)
    assert (whole.ttft_ms, whole.e2e_ms) == (ttft_ms, e2e_ms)
    assert whole.throughputs[REQUEST_THROUGHPUT].value == pytest.approx(1_000 / 10.24)
    assert whole.throughputs[OUTPUT_TOKEN_THROUGHPUT].value == pytest.approx(2_000 / 10.24)


def test_the_latencies_of_the_steady_part_are_of_the_requests_due_in_it_its_ends_included(
    make_requests: MakeRequests, cold: list[Record]
) -> None:
    requests = make_requests(cold)
    _, steady = _both(compute_windows(requests, *_from_schedule(requests)))
    assert (steady.start_s, steady.end_s) == (3.01, 10.0)  # the first request that is answered quickly, and the last
    assert steady.ttft_ms is not None
    assert steady.e2e_ms is not None
    assert (steady.ttft_ms.n, steady.ttft_ms.max) == (700, 50.0)
    assert (steady.e2e_ms.n, steady.e2e_ms.max) == (700, 250.0)
    assert steady.throughputs[OUTPUT_TOKEN_THROUGHPUT].value == pytest.approx(200.0, rel=0.01)


def test_steady_output_is_of_tokens_and_not_of_whole_requests(make_requests: MakeRequests, answered: Make) -> None:
    """One request each 10 ms, of 5 tokens in the first 3 s and of one from then on."""
    requests = make_requests([answered(k, at, at, [(at + 50, 5 if k < 300 else 1)]) for k in range(1_001) for at in [10 * k]])
    _, steady = _both(compute_windows(requests, *_from_schedule(requests)))
    assert steady.start_s == pytest.approx(3.0, abs=0.2)


def test_a_closed_loop_is_steady_until_its_first_user_has_nothing_to_send(make_requests: MakeRequests, answered: Make) -> None:
    """Eight users with a request each 100 ms, four of whom send nothing after 6 s; in an open loop it would last on."""
    due_ms = sorted(100 * k + user for user in range(8) for k in range(80 if user < 4 else 60))
    requests = make_requests([answered(k, at, at, [(at + 99, 1)], done=at + 100) for k, at in enumerate(due_ms)])
    _, closed = _both(compute_windows(requests, *_from_schedule(requests), ConfiguredLoad(closed=True)))
    assert closed.end_s == 6.004
    steady = compute_windows(requests, *_from_schedule(requests)).steady
    assert steady is None or steady.end_s != 6.004


def test_without_a_steady_part_there_is_a_reason(make_requests: MakeRequests, cold: list[Record]) -> None:
    few, enough = (compute_windows(make_requests(records), None, None) for records in (cold[:99], cold))
    assert few.not_steady is not None
    assert "100" in few.not_steady
    assert (few.steady, few.too_few_to_tell) == (None, True)
    assert (enough.not_steady, enough.too_few_to_tell) == (None, False)


def test_what_is_unknown_of_the_whole_is_unknown_of_the_steady_part(make_requests: MakeRequests, cold: list[Record]) -> None:
    requests = make_requests([*cold[:-1], msgspec.structs.replace(cold[-1], output_tokens=None)])
    _, e2e_ms = _from_schedule(requests)
    whole, steady = _both(compute_windows(requests, None, e2e_ms))
    for window in (whole, steady):
        assert window.ttft_ms is None
        assert window.e2e_ms is not None
        assert window.throughputs[OUTPUT_TOKEN_THROUGHPUT] == UNKNOWN


def test_ramp_and_drain_do_not_widen_the_interval_of_a_rate(make_requests: MakeRequests, answered: Make) -> None:
    """1,000 requests, one each 10 ms, each of which lasts a second: nothing ends in the first second, and the rate is even."""
    requests = make_requests([answered(k, 10 * k, 10 * k, [(10 * k + 1_000, 1)]) for k in range(1_000)])
    whole = whole_window(requests, None, None)
    assert whole is not None
    assert whole.throughputs[REQUEST_THROUGHPUT].interval is not None
    in_parts = rate(completions(requests), 0.0, 10_991e6)
    assert in_parts is not None
    assert in_parts.value == whole.throughputs[REQUEST_THROUGHPUT].value
    low, high = whole.throughputs[REQUEST_THROUGHPUT].interval
    assert high - low < 1.0  # requests/s, of 91
    assert in_parts.interval is None or in_parts.interval[1] - in_parts.interval[0] > 2.0


def test_the_whole_window_alone_is_that_of_both(make_requests: MakeRequests, cold: list[Record]) -> None:
    requests = make_requests(cold)
    latencies = _from_schedule(requests)
    assert whole_window(requests, *latencies) == compute_windows(requests, *latencies).whole


def test_without_a_success_there_is_no_window(make_requests: MakeRequests, failed: Make) -> None:
    requests = make_requests([failed(0, 0, Outcome.TIMEOUT, 0, 9)])
    assert compute_windows(requests, None, None) == Windows(None, None, "no request succeeded", True)
    assert whole_window(requests, None, None) is None
