"""The steady part of a run, by MSER-5, and what is credited to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.record import Outcome, Record
from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT
from reports.metrics.configuration import ConfiguredLoad
from reports.metrics.in_flight import first_user_end_ns, mean_in_system, queue_growth
from reports.metrics.mser import mser5
from reports.metrics.output_events import completions
from reports.metrics.requests import Requests
from reports.metrics.run_metrics import compute_metrics
from reports.metrics.steady_state import Steady, find_steady
from tests.reports.findings.runs import withdrawn

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
    assert metrics.windows.steady.throughputs[REQUEST_THROUGHPUT].value == pytest.approx(80.0, rel=0.02)


def test_the_steady_part_of_users_who_think_ends_with_their_last_send(make_requests: MakeRequests, answered: Make) -> None:
    """8 users, each of whom thinks for 50 ms after an answer, and stops after 10 s."""
    due = sorted(100 * k + 12 * user for user in range(8) for k in range(100))
    requests = make_requests([answered(k, at, at, [(at + 49, 1)], done=at + 50) for k, at in enumerate(due)])
    window = find_steady(requests, completions(requests), ConfiguredLoad(closed=True, concurrency=8)).window_ns
    assert window is not None
    assert window[0] / 1e9 < 2.0
    assert window[1] / 1e9 == pytest.approx(9.984)


def test_the_steady_part_of_conversations_ends_when_the_first_user_has_none_left(
    make_requests: MakeRequests, answered: Make
) -> None:
    """8 users who think for 50 ms after an answer: half of them have 60 turns, the others 80."""
    requests = make_requests(_conversations(answered, [60 if user % 2 else 80 for user in range(8)]))
    window = find_steady(requests, completions(requests), ConfiguredLoad(sessions=True)).window_ns
    assert window is not None
    assert window[1] / 1e9 == pytest.approx(5.962)


def test_conversations_that_end_one_after_another_from_the_beginning_have_no_steady_part(
    make_requests: MakeRequests, answered: Make
) -> None:
    """16 conversations that begin within 0.2 s, of 5 to 80 turns."""
    requests = make_requests(_conversations(answered, [5 * (user + 1) for user in range(16)]))
    steady = find_steady(requests, completions(requests), ConfiguredLoad(sessions=True))
    assert steady.reason == "the load on the server was still changing in the second half of the run"


@pytest.mark.parametrize("start_ms", [0, 1_000_000])
@pytest.mark.parametrize(("turns", "is_steady"), [(40, True), (39, False)])
def test_conversations_that_end_after_half_of_the_sending_have_a_steady_part(
    make_requests: MakeRequests, answered: Make, turns: int, is_steady: bool, start_ms: int
) -> None:
    """Eight conversations over 8 s: of the sixth, the first that ends, the 40th turn is due after 3.96 s and takes 40 ms."""
    records = _conversations(answered, [81, 80, 80, 80, 80, turns, 80, 80], answer_ms=40, start_ms=start_ms)
    steady = find_steady(requests := make_requests(records), completions(requests), ConfiguredLoad(sessions=True))
    if is_steady:
        assert steady.window_ns is not None
        assert steady.window_ns[1] == start_ms * 1e6 + 4e9
    else:
        assert steady.reason == "the load on the server was still changing in the second half of the run"


def _conversations(answered: Make, turns: Sequence[int], answer_ms: int = 50, start_ms: int = 0) -> list[Record]:
    """Conversations with these numbers of ``turns``: one each 100 ms, with an answer after ``answer_ms``."""
    due = sorted((start_ms + 100 * turn + 12 * user, user) for user, count in enumerate(turns) for turn in range(count))
    last: dict[int, int] = {}
    records = []
    for index, (at, user) in enumerate(due):
        records.append(answered(index, at, at, [(at + answer_ms - 1, 1)], done=at + answer_ms, parent=last.get(user)))
        last[user] = index
    return records


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
    assert windows.whole.throughputs[REQUEST_THROUGHPUT].value == pytest.approx(1_000 / 11.991, rel=0.01)
    assert windows.steady is not None
    assert windows.steady.throughputs[REQUEST_THROUGHPUT].value == pytest.approx(100, rel=0.02)
    assert windows.steady.throughputs[OUTPUT_TOKEN_THROUGHPUT].value == pytest.approx(2_000, rel=0.02)
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


def test_a_request_that_hangs_until_its_limit_does_not_prolong_the_load(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """20 requests/s for 50 s, of which one has no answer in 600 s."""
    records = [answered(k, 50 * k, 50 * k, [(50 * k + 200, 1)], done=50 * k + 1000) for k in range(1000)]
    records[500] = failed(500, 25_000, Outcome.TIMEOUT, 25_000, 625_000)
    steady = find_steady(requests := make_requests(records), completions(requests))
    assert steady.window_ns is None or steady.window_ns[1] <= 50e9


def test_the_steady_part_ends_when_all_users_hang(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """16 users, an answer a second each, until the target hangs at 30 s; their limit is 600 s."""
    due = sorted((1_000 * turn + 60 * user, user) for user in range(16) for turn in range(31))
    records = [
        failed(k, at, Outcome.TIMEOUT, at, at + 600_000)
        if at + 1_000 > 30_000
        else answered(k, at, at, [(at + 999, 1)], done=at + 1_000)
        for k, (at, _) in enumerate(due)
        if at <= 30_000
    ]
    requests = make_requests(records)
    window = find_steady(requests, completions(requests), ConfiguredLoad(closed=True, concurrency=16)).window_ns
    assert window is not None
    assert 0.0 <= window[0] < 15e9
    assert window[1] <= 31e9


def test_the_steady_part_ends_with_the_last_send_before_the_last_answer(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """10 requests/s for 60 s, of which those from 30.1 s on, when the last answer ends, have no answer in 600 s."""
    records = [
        answered(k, 100 * k, 100 * k, [(100 * k + 50, 1)], done=100 * k + 100)
        if k <= 300
        else failed(k, 100 * k, Outcome.TIMEOUT, 100 * k, 100 * k + 600_000)
        for k in range(600)
    ]
    assert _window_s(make_requests(records)) == (0.0, 30.1)


def test_an_open_loop_whose_requests_are_due_as_others_end_sends_until_its_end(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Answers take 200 ms, twenty times the gap between requests, except that of the 50th, which takes 205 ms."""
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 1)], done=10 * k + 200 + 5 * (k == 50)) for k in range(1_001)]
    assert _window_s(make_requests(records))[1] == 10.0


def test_a_run_whose_requests_are_all_cancelled_as_planned_may_be_steady(make_requests: MakeRequests, answered: Make) -> None:
    records = [withdrawn(answered(k, 10 * k, 10 * k, [(10 * k + 100, 1), (10 * k + 201, 1)]), tokens=1) for k in range(1_001)]
    assert _window_s(make_requests(records)) == (pytest.approx(0.2), pytest.approx(10.0))


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


# ---- the ends of the steady part, and the reasons for having none


def _reason(requests: Requests) -> str:
    steady = find_steady(requests, completions(requests))
    assert steady.window_ns is None
    assert not steady.too_few
    assert steady.reason is not None
    return steady.reason


def _window_s(requests: Requests) -> tuple[float, float]:
    window = find_steady(requests, completions(requests)).window_ns
    assert window is not None
    return window[0] / 1e9, window[1] / 1e9


@pytest.mark.parametrize("start_ms", [0, 1_000_000])
@pytest.mark.parametrize(("latency_ms", "is_steady"), [(200.0, True), (200.001, False)])
def test_the_steady_part_of_a_closed_loop_lasts_five_median_latencies_or_more(
    make_requests: MakeRequests, answered: Make, start_ms: int, latency_ms: float, is_steady: bool
) -> None:
    """20 users who think, a request each 10 ms for 1.2 s: from 0.2 s on 20 are in flight, for 1 s."""
    records = [answered(k, at, at, [(at + 1, 1)], done=at + latency_ms) for k in range(121) for at in [start_ms + 10 * k]]
    steady = find_steady(requests := make_requests(records), completions(requests), ConfiguredLoad(closed=True, concurrency=20))
    if is_steady:
        assert steady == Steady((pytest.approx(start_ms * 1e6 + 0.2e9), pytest.approx(start_ms * 1e6 + 1.2e9)), None)
    else:
        assert steady == Steady(None, "without ramp and drain it is shorter than 5 median E2E latencies")


@pytest.mark.filterwarnings("error")
def test_a_closed_loop_whose_requests_all_fail_may_be_steady(make_requests: MakeRequests, failed: Make) -> None:
    records = [failed(k, 10 * k, Outcome.SERVER_ERROR, 10 * k, 10 * k + 5) for k in range(101)]
    steady = find_steady(requests := make_requests(records), completions(requests), ConfiguredLoad(closed=True, concurrency=1))
    assert steady == Steady((0.0, 1e9), None)


def _streams(answered: Make, ttft_ms: Sequence[float], *, every_ms: float = 10.0, start_ms: float = 0.0) -> list[Record]:
    """Requests at an even rate that get their first token after ``ttft_ms`` and last 250 ms, whichever that is."""
    return [
        answered(k, at, at, [(at + first, 1), (at + 250, 1)], done=at + 250)
        for k, first in enumerate(ttft_ms)
        for at in [start_ms + every_ms * k]
    ]


@pytest.mark.parametrize("start_ms", [0, 1_000_000])
def test_the_ramp_ends_when_as_many_are_in_flight_as_later(make_requests: MakeRequests, answered: Make, start_ms: int) -> None:
    """2 s of latency and 10 s of sends, which are parted into 500: from the 100th on, 200 are in flight. One never ended."""
    records = [answered(k, start_ms + 10 * k, start_ms + 10 * k, [(start_ms + 10 * k + 2_000, 1)]) for k in range(1_001)]
    never = answered(1_001, start_ms + 5_000, start_ms + 5_000, [(start_ms + 7_000, 1)], outcome=Outcome.LOST, done_ns=None)
    window = _window_s(make_requests([*records, never]))
    assert window == (pytest.approx(start_ms / 1e3 + 2.0, abs=1e-6), pytest.approx(start_ms / 1e3 + 10.0, abs=1e-6))


def test_100_requests_are_enough(make_requests: MakeRequests, answered: Make) -> None:
    records = _streams(answered, [100.0] * 100)
    enough, few = (find_steady(requests, completions(requests)) for requests in map(make_requests, (records, records[:99])))
    assert (enough.too_few, few.too_few) == (False, True)
    assert few.reason is not None
    assert "100" in few.reason


def test_a_start_that_is_slow_to_the_first_token_is_no_steady_part(make_requests: MakeRequests, answered: Make) -> None:
    """150 of 750 requests: MSER-5 sees the means of one or two requests each."""
    assert _window_s(make_requests(_streams(answered, [110.0] * 150 + [100.0] * 600)))[0] == 1.5


def test_few_answers_with_tokens_have_no_latencies_that_could_change(make_requests: MakeRequests, answered: Make) -> None:
    """Among 1,000 answers 84 have tokens, ever sooner."""
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + 240 - k / 5, 1)] if k % 12 == 0 else [], done=10 * k + 250) for k in range(1_000)
    ]
    start_s, end_s = _window_s(make_requests(records))
    assert start_s == pytest.approx(0.25, abs=0.1)
    assert end_s == 9.99


def test_a_load_that_still_changes_is_not_steady(make_requests: MakeRequests, answered: Make) -> None:
    """A backlog of 500 that shrinks to the end; twice as many in flight from a third of the run on; more than was offered."""
    shrinking = [answered(k, 10 * k, 10 * k, [(10 * k + 5_010 - 5 * k, 1)]) for k in range(1_001)]
    doubled = [answered(k, at, at, [(at + (200 if k < 350 else 800), 1)]) for k in range(1_001) for at in [10 * k]]
    assert _reason(make_requests(shrinking)).startswith("the load")
    assert _reason(make_requests(doubled)).startswith("the load")


def test_latencies_that_still_change_are_not_steady(make_requests: MakeRequests, answered: Make) -> None:
    assert _reason(make_requests(_streams(answered, np.linspace(10, 240, 1_000).tolist()))).startswith("latencies were")


@pytest.mark.parametrize(("last_ms", "falls"), [(109.0, True), (114.0, False)])
def test_latencies_that_fall_to_the_end_are_not_steady(
    make_requests: MakeRequests, answered: Make, last_ms: float, falls: bool
) -> None:
    """Ten of 1 ms and ten that fall from 200 ms to ``last_ms``, in turns: the mean of those in the first three tenths of the
    run is above that of those in the last three by 1.52 or 1.47, and in the first four by less than 1.5.
    """
    ttft_ms = np.where(np.arange(1_001) // 10 % 2, np.linspace(200.0, last_ms, 1_001), 0.01)
    requests = make_requests(_streams(answered, ttft_ms.tolist(), every_ms=1_000.0))
    if falls:
        assert _reason(requests).startswith("latencies fell")
    else:
        assert _window_s(requests) == (0.0, 1_000.0)


def test_of_100_latencies_a_slow_start_and_a_fall_are_seen(make_requests: MakeRequests, answered: Make) -> None:
    """101 answers, one a second, the last of which has no tokens."""
    falling = np.where(np.arange(100) // 5 % 2, np.linspace(200.0, 106.0, 100), 0.01).tolist()
    slow, falls = (
        make_requests([*_streams(answered, ttft_ms, every_ms=1_000.0), answered(100, 100_000, 100_000, [], done=100_250)])
        for ttft_ms in ([200.0] * 20 + [100.0] * 80, falling)
    )
    assert _window_s(slow) == (20.0, 100.0)
    assert _reason(falls).startswith("latencies fell")


def test_what_a_server_for_the_requested_rate_would_keep_waiting_is_no_growth(
    make_requests: MakeRequests, answered: Make
) -> None:
    """50 requests/s were offered and 100 came."""
    requests = make_requests(
        [answered(k, at, at, [(at + (200 if k < 350 else 800), 1)]) for k in range(1_001) for at in [10 * k]]
    )
    assert find_steady(requests, completions(requests), ConfiguredLoad(rate_per_s=50.0)).window_ns is not None
    assert find_steady(requests, completions(requests), ConfiguredLoad(rate_per_s=100.0)).window_ns is None


# ---- all sent at once


def _answered_at(answered: Make, ends_ms: Sequence[float], sent_within_ms: float = 0.0) -> list[Record]:
    sends = np.linspace(0.0, sent_within_ms, len(ends_ms))
    return [answered(k, at, at, [(end, 1)], done=end) for k, (at, end) in enumerate(zip(sends, ends_ms, strict=True))]


def _at_rates(*parts: tuple[float, float]) -> list[float]:
    """Times in ms of even output: for this many seconds this many per second."""
    times: list[float] = []
    begin = 0.0
    for seconds, rate in parts:
        times += (begin + 1e3 * (np.arange(round(seconds * rate)) + 0.5) / rate).tolist()
        begin += 1e3 * seconds
    return [*times, begin]


@pytest.mark.parametrize(("within_ms", "is_burst"), [(500, True), (999, True), (1_000, False)])
def test_sends_within_less_than_a_tenth_of_the_run_are_a_burst(
    make_requests: MakeRequests, answered: Make, within_ms: float, is_burst: bool
) -> None:
    requests = make_requests(_answered_at(answered, _at_rates((10, 100)), within_ms))
    if is_burst:
        assert _window_s(requests) == pytest.approx((0.0, 10.0), abs=0.15)
    else:
        assert _reason(requests).startswith("the load")


def test_a_burst_late_on_the_clock_of_which_one_has_no_end(make_requests: MakeRequests, answered: Make) -> None:
    late_ms = 1e6
    records = [
        answered(k, late_ms, late_ms, [(late_ms + end, 1)], done=late_ms + end) for k, end in enumerate(_at_rates((10, 100)))
    ]
    lost = answered(len(records), late_ms, late_ms, [], outcome=Outcome.LOST, done_ns=None)
    assert _window_s(make_requests([*records, lost])) == pytest.approx((1_000.0, 1_010.0), abs=0.15)


def test_a_request_of_a_burst_that_the_client_cut_off_does_not_prolong_it(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    records = [answered(k, 0, 0, [(end, 1)], done=end) for k, end in enumerate(_at_rates((10, 100)))]
    cut = failed(len(records), 0, Outcome.WITHDRAWN, 0, 60_000)
    assert (
        _window_s(make_requests([*records, cut])) == _window_s(make_requests(records)) == pytest.approx((0.0, 10.0), abs=0.15)
    )


@pytest.mark.parametrize("start_ms", [0, 1_000_000])
@pytest.mark.parametrize(("waves", "is_steady"), [(5, False), (8, True)])
def test_the_steady_part_of_a_burst_whose_answers_end_in_waves_holds_five_of_them(
    make_requests: MakeRequests, answered: Make, waves: int, is_steady: bool, start_ms: int
) -> None:
    """64 answers a wave, which end within 0.3 s of each 10 s."""
    ends_ms = [start_ms + 10_000.0 * (k // 64 + 1) + 5.0 * (k % 64) for k in range(64 * waves)]
    records = [answered(k, start_ms, start_ms, [(end, 1)], done=end) for k, end in enumerate(ends_ms)]
    if is_steady:
        start_s, end_s = _window_s(make_requests(records))
        assert end_s - start_s >= 50.0
    else:
        reason = "answers end in waves, and without ramp and drain it is shorter than 5 of them"
        assert _reason(make_requests(records)) == reason


@pytest.mark.parametrize(
    ("parts", "window_s"),
    [
        ([(2.5, 60), (6, 100), (1.5, 130)], (2.5, 8.5)),
        ([(3.5, 60), (5, 100), (1.5, 130)], (3.5, 8.5)),  # half of it
        ([(4, 60), (4.5, 100), (1.5, 130)], None),
        ([(3, 20), (2.5, 60), (4.5, 100)], None),  # the rate rose until after the middle
        ([(4.5, 100), (2.5, 60), (3, 20)], None),  # and fell before it
    ],
)
def test_the_plateau_of_a_burst_is_at_least_half_of_its_output(
    make_requests: MakeRequests, answered: Make, parts: list[tuple[float, float]], window_s: tuple[float, float] | None
) -> None:
    requests = make_requests(_answered_at(answered, _at_rates(*parts)))
    if window_s is None:
        assert _reason(requests).startswith("output came")
    else:
        assert _window_s(requests) == pytest.approx(window_s, abs=0.15)
