"""The steady part of a run, by MSER-5, and what is credited to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records.record import Outcome, Record
from reports.metrics.configuration import ConfiguredLoad
from reports.metrics.in_flight import first_user_end_ns, mean_in_system, queue_growth
from reports.metrics.mser import mser5
from reports.metrics.output_events import completions
from reports.metrics.requests import Requests
from reports.metrics.run_metrics import compute_metrics
from reports.metrics.steady_state import find_steady

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def test_a_ramp_is_left_out_and_no_more() -> None:
    noise = np.random.default_rng(0).normal(0.0, 0.1, 500)
    ramp = np.concatenate([np.linspace(-5.0, 0.0, 100), np.zeros(400)])
    assert mser5(ramp + noise) == pytest.approx(100, abs=15)


def test_a_series_without_a_ramp_loses_little() -> None:
    cuts = [mser5(np.random.default_rng(seed).normal(10.0, 1.0, 500)) for seed in range(50)]
    assert sum(cut is not None and cut <= 100 for cut in cuts) >= 45


def test_a_constant_series_loses_nothing() -> None:
    assert mser5(np.full(500, 0.1)) == 0


def test_a_series_that_never_settles_has_no_steady_part() -> None:
    assert mser5(np.linspace(0.0, 1.0, 500)) is None


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100.0), st.floats(-100.0, 100.0))
def test_unit_and_origin_do_not_matter(seed: int, scale: float, origin: float) -> None:
    series = np.random.default_rng(seed).normal(0.0, 1.0, 300)
    series[:60] += 8.0
    assert mser5(series * scale + origin) == mser5(series)


@given(
    st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 500)), min_size=1, max_size=30),
    st.lists(st.integers(-100, 2_000), min_size=2, max_size=8, unique=True),
)
def test_the_mean_in_the_system_is_its_definition(stays: list[tuple[int, int]], edges: list[int]) -> None:
    entered = np.array([float(start) for start, _ in stays])
    left = np.array([float(start + stay) for start, stay in stays])
    ordered = sorted(edges)
    expected = [
        sum(max(0.0, min(b, leave) - max(a, enter)) for enter, leave in zip(entered, left, strict=True)) / (b - a)
        for a, b in pairwise(ordered)
    ]
    assert mean_in_system(entered, left, np.array(ordered, dtype=float)) == pytest.approx(expected, abs=1e-6)


def test_the_steady_part_lies_between_ramp_and_last_send(make_requests: MakeRequests, answered: Make) -> None:
    # 2 s of latency: 200 requests in flight, reached after 2 s; the last of 10 s of sends leaves 2 s of drain
    requests = make_requests([answered(k, 10 * k, 10 * k, [(10 * k + 2_000, 1)]) for k in range(1_000)])
    window = find_steady(requests, completions(requests)).window_ns
    assert window is not None
    assert window[0] / 1e9 == pytest.approx(2.0, abs=0.2)
    assert window[1] / 1e9 == pytest.approx(9.99)


def test_the_steady_part_of_a_closed_loop_ends_when_its_first_user_has_nothing_to_send(
    make_requests: MakeRequests, answered: Make
) -> None:
    # Two workers with 4 users each, a request each 100 ms; the second's requests run out after 6 s, the first's after 8 s.
    records = []
    for user, requests_of_user in enumerate([80] * 4 + [60] * 4):
        for k in range(requests_of_user):
            due, done = 100 * k + user, 100 * (k + 1) + user
            records.append(answered(len(records), due, due, [(done - 1, 1)], done=done))
    requests = make_requests(sorted(records, key=lambda record: record.scheduled_ns))
    assert first_user_end_ns(requests) / 1e9 == pytest.approx(6.004)
    window = find_steady(requests, completions(requests), ConfiguredLoad(closed=True)).window_ns
    assert window is not None
    assert window[1] / 1e9 == pytest.approx(6.004)
    metrics = compute_metrics(requests, streaming=True, load=ConfiguredLoad(closed=True, concurrency=8))
    assert metrics.windows.steady is not None
    assert metrics.windows.steady.request_throughput is not None
    assert metrics.windows.steady.request_throughput.value == pytest.approx(80.0, rel=0.02)


def test_a_user_whose_connection_was_refused_has_not_stopped(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    records = [
        answered(0, 0, 0, [(9, 1)], done=10),
        failed(1, 10, Outcome.CONNECT, 10, 11),
        answered(2, 111, 111, [(119, 1)], done=120),  # a tenth of a second later
        answered(3, 120, 120, [(129, 1)], done=130),
    ]
    assert first_user_end_ns(make_requests(records)) / 1e6 == pytest.approx(130)


def test_output_is_credited_to_the_window_when_it_comes(make_requests: MakeRequests, answered: Make) -> None:
    # each answer lasts 2 s, 20 tokens; whole requests counted over 12 s would give 83 requests/s of the 100 that came
    requests = make_requests(
        [answered(k, 10 * k, 10 * k, [(10 * k + 100 * (t + 1), 1) for t in range(20)]) for k in range(1_000)]
    )
    windows = compute_metrics(requests, streaming=True).windows
    assert windows.whole is not None
    assert windows.whole.request_throughput is not None
    assert windows.whole.request_throughput.value == pytest.approx(1_000 / 11.991, rel=0.01)
    assert windows.steady is not None
    assert windows.steady.request_throughput is not None
    assert windows.steady.output_token_throughput is not None
    assert windows.steady.request_throughput.value == pytest.approx(100, rel=0.02)
    assert windows.steady.output_token_throughput.value == pytest.approx(2_000, rel=0.02)
    assert windows.steady.ttft_ms is not None
    assert windows.steady.ttft_ms.p50 == pytest.approx(100)


def test_of_a_burst_the_plateau_is_the_steady_part(make_requests: MakeRequests, answered: Make) -> None:
    # all at once at a server that answers 100 a second from 0.5 s on, and ends with one straggler
    records = [answered(k, 0, 0, [(500 + 10 * k, 1)]) for k in range(999)]
    records.append(answered(999, 0, 0, [(12_000, 1)]))
    requests = make_requests(records)
    window = find_steady(requests, completions(requests)).window_ns
    assert window is not None
    assert window[0] / 1e9 == pytest.approx(0.5, abs=0.3)
    assert window[1] / 1e9 == pytest.approx(10.5, abs=0.4)


def test_few_requests_are_too_few_for_a_steady_state(make_requests: MakeRequests, answered: Make) -> None:
    steady = find_steady(requests := make_requests([answered(k, k, k, [(k + 5, 1)]) for k in range(99)]), completions(requests))
    assert steady.window_ns is None
    assert steady.too_few


@pytest.mark.parametrize(("load", "grows"), [(0.7, False), (0.9, False), (1.3, True)])
def test_only_an_overloaded_queue_grows(make_requests: MakeRequests, answered: Make, load: float, grows: bool) -> None:
    rng = np.random.default_rng(5)
    arrivals, services = np.cumsum(rng.exponential(10.0, 1_000)), rng.exponential(10.0 * load, 1_000)
    records, free = [], 0.0
    for k in range(1_000):
        free = max(free, arrivals[k]) + services[k]
        records.append(answered(k, arrivals[k], arrivals[k], [(free, 1)], done=free))
    growth = queue_growth(make_requests(records))
    assert (growth is not None) == grows
    if growth is not None:
        assert growth.share_left_behind == pytest.approx(1 - 1 / load, abs=0.12)
