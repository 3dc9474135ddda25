"""Replayed arrivals: cut, faster, stretched to a rate, and spread within ticks without a change of order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.arrivals.processes import Recorded
from workloads.arrivals.replay import Replay, at_rate, rows_of
from workloads.elements.errors import WorkloadError
from workloads.elements.request import Request
from workloads.schedule.load import OpenLoop
from workloads.table.workload import Workload, WorkloadFacts

_SECOND = 1_000_000_000
_times = st.lists(st.integers(0, 10**12), min_size=2, max_size=30).map(sorted).filter(lambda times: times[0] < times[-1])


def _trace(times_ns: list[int], tick_ns: int | None = None) -> Workload:
    columns = {"arrival_ns": times_ns, "input_tokens": list(range(1, len(times_ns) + 1)), "session": ["s"] * len(times_ns)}
    return Workload.of_columns(WorkloadFacts("azure", "trace.csv", tick_ns=tick_ns), len(times_ns), columns)


def _replayed(replay: Replay, workload: Workload, seed: int) -> Workload:
    """The rows of the window at the times at which they are sent."""
    timed = replay.timed(workload, seed)
    return replay.on_clock(rows_of(timed, replay.window(timed)))


def _arrivals(workload: Workload) -> list[int]:
    return list(workload.table["arrival_ns"].to_pylist())


def test_a_trace_is_replayed_at_its_own_times() -> None:
    replayed = _replayed(Replay(), _trace([0, 2, 2, 15]), seed=0)
    assert _arrivals(replayed) == [0, 2, 2, 15]
    assert replayed.table["session"].to_pylist() == ["s"] * 4
    assert replayed.facts == _trace([5]).facts


def test_the_start_is_cut_and_rows_keep_their_lengths() -> None:
    replayed = _replayed(Replay(start_s=2.0), _trace([0, _SECOND, 2 * _SECOND, 5 * _SECOND]), seed=0)
    assert _arrivals(replayed) == [0, 3 * _SECOND]
    assert replayed.table["input_tokens"].to_pylist() == [3, 4]


def test_a_window_begins_with_its_silence() -> None:
    trace = _trace([0, 200 * _SECOND, 230 * _SECOND])
    assert _arrivals(_replayed(Replay(start_s=60.0), trace, 0)) == [140 * _SECOND, 170 * _SECOND]
    assert _arrivals(_replayed(Replay(start_s=180.0, duration_s=40.0), trace, 0)) == [20 * _SECOND]
    assert _arrivals(_replayed(Replay(start_s=180.0, speed=10.0, duration_s=60.0), trace, 0)) == [2 * _SECOND, 5 * _SECOND]
    assert _arrivals(_replayed(Replay(), _trace([5, 7]), 0)) == [5, 7]  # a part of a trace that begins with silence


def test_a_time_that_is_rounded_to_the_end_of_a_window_stays_within_it() -> None:
    """Both the last nanosecond and the end of a second are 333,333,333 ns at three times the speed."""
    assert _arrivals(_replayed(Replay(speed=3.0, duration_s=1.0), _trace([0, _SECOND - 1, _SECOND]), 0)) == [0, 333_333_332]
    assert _arrivals(_replayed(Replay(speed=4.0, duration_s=4e-9), _trace([0, 3]), 0)) == [0, 0]  # a window of one nanosecond
    assert _arrivals(_replayed(Replay(speed=4.0, duration_s=1e-9), _trace([0, 1]), 0)) == [0]  # and of none


def _one_window(trace: Workload, replay: Replay, seed: int) -> list[tuple[int, int]]:
    """The requests of a window, by their input length, with their times; none where it is empty."""
    try:
        rows = _replayed(replay, trace, seed)
    except WorkloadError:
        return []
    return list(zip(rows.table["input_tokens"].to_pylist(), _arrivals(rows), strict=True))


@given(
    times=st.lists(st.integers(0, 3_000), min_size=1, max_size=40).map(sorted),
    unit_ns=st.sampled_from([1, 999_999_999, 10**8]),
    duration=st.integers(1, 900),
    speed=st.one_of(st.sampled_from([1.0, 3.0, 1_000.0, 1e6]), st.floats(0.01, 1e6)),
    spread=st.booleans(),
    seed=st.integers(0, 9),
)
def test_windows_that_follow_each_other_have_every_request_once(
    times: list[int], unit_ns: int, duration: int, speed: float, spread: bool, seed: int
) -> None:
    trace = _trace([time * unit_ns for time in times], tick_ns=unit_ns)
    window_ns, length_ns = duration * unit_ns, times[-1] * unit_ns + unit_ns
    duration_s = window_ns / _SECOND
    windows = range(-(-length_ns // window_ns))
    sent = []
    for number in windows:
        found = _one_window(trace, Replay(number * window_ns / _SECOND, speed, spread, duration_s), seed)
        assert all(0 <= at_ns < max(1, round(duration_s / speed * _SECOND)) for _, at_ns in found)
        sent += [(length, number * window_ns, at_ns) for length, at_ns in found]
    assert [length for length, _, _ in sent] == list(range(1, len(times) + 1))
    if not spread:
        due = [start_ns + at_ns * speed for _, start_ns, at_ns in sent]
        assert due == pytest.approx([time * unit_ns for time in times], abs=1.01 * speed, rel=1e-9)


@given(times=_times, speed=st.floats(0.01, 100.0))
def test_speed_divides_every_time(times: list[int], speed: float) -> None:
    replayed = np.array(_arrivals(_replayed(Replay(speed=speed), _trace(times), seed=0)))
    assert np.all(np.abs(replayed * speed - np.array(times)) <= speed)


@given(times=_times, rate=st.floats(0.1, 1000.0))
def test_a_rate_is_the_mean_rate_of_what_is_sent_and_gaps_keep_their_ratio(times: list[int], rate: float) -> None:
    replayed = np.array(_arrivals(at_rate(_trace(times), rate)))
    assert replayed[0] == 0
    assert (len(times) - 1) * _SECOND / replayed[-1] == pytest.approx(rate, rel=1e-6)
    factor = replayed[-1] / (times[-1] - times[0])
    assert np.all(np.abs(replayed - (np.array(times) - times[0]) * factor) <= 1 + 1e-6 * replayed[-1])


def test_requests_that_arrive_at_once_have_no_rate() -> None:
    with pytest.raises(WorkloadError) as refused:
        at_rate(_trace([7, 7]), 2.5)
    assert str(refused.value) == "request_rate 2.5: all requests of the trace arrive at once"
    assert _arrivals(at_rate(_trace([7]), 2.0)) == [0]  # of --request_rate 3 --duration 0.2
    alone = Workload.of_columns(WorkloadFacts("mooncake", "t"), 1, {"arrival_ns": [7], "think_time_ns": [5]})
    assert at_rate(alone, 2.0).table["think_time_ns"].to_pylist() == [5]


@given(ticks=st.lists(st.integers(0, 9), min_size=2, max_size=40).map(sorted), seed=st.integers(0, 1000))
def test_spread_arrivals_stay_in_their_tick_and_in_order(ticks: list[int], seed: int) -> None:
    tick_ns = 3 * _SECOND
    trace = _trace([tick * tick_ns for tick in ticks], tick_ns)
    spread = _replayed(Replay(spread_ticks=True), trace, seed)
    times = np.array(_arrivals(spread))
    assert np.all(np.diff(times) >= 0)
    offset = times - np.array(ticks) * tick_ns
    assert offset.max() < tick_ns
    assert offset.min() >= 0
    assert _arrivals(_replayed(Replay(spread_ticks=True), trace, seed)) == _arrivals(spread)


def test_spread_arrivals_are_even_within_the_tick() -> None:
    tick_ns = 3 * _SECOND
    times = np.array(_arrivals(_replayed(Replay(spread_ticks=True), _trace([0] * 5_000, tick_ns), seed=1)))
    assert times.mean() == pytest.approx(tick_ns / 2, rel=0.03)
    assert np.unique(times).size > 4_990


@pytest.mark.parametrize(
    ("replay", "trace", "problem"),
    [
        (
            Replay(),
            Workload.of_columns(WorkloadFacts("openai", "p.jsonl"), 1, {"prompt": ["a"]}),
            "p.jsonl has no arrival times to replay; bench dataset sends it at request_rate",
        ),
        (Replay(start_s=9.5), _trace([0, _SECOND]), "start 9.5: the last request of trace.csv arrives before it"),
        (
            Replay(start_s=2.0, duration_s=3.0),
            _trace([0, 8 * _SECOND]),
            "start 2 duration 3: trace.csv has no request in that time; the next one arrives 8 s after its beginning",
        ),
        (Replay(spread_ticks=True), _trace([0, 1]), "spread_ticks: the arrivals of trace.csv are not rounded to a tick"),
    ],
)
def test_what_cannot_be_replayed_is_refused(replay: Replay, trace: Workload, problem: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        _replayed(replay, trace, seed=0)
    assert str(refused.value) == problem


def test_a_schedule_has_the_times_of_the_trace() -> None:
    arrivals = Recorded((0, 5, 9 * _SECOND, 9 * _SECOND + 1))
    requests = [Request(1, prompt=str(k)) for k in range(4)]
    assert OpenLoop(arrivals).schedule(requests, seed=3).offsets_ns == arrivals.times_ns
    assert OpenLoop(arrivals, duration_s=9.0).schedule(requests, seed=3).offsets_ns == (0, 5)
    assert OpenLoop(arrivals, duration_s=99.0).most_requests(3, None) == 4
    assert str(arrivals) == "the trace's own arrivals, 0.333 requests/s"
    assert arrivals.busiest_second == 2
    assert Recorded((0, 1, 1_700_000_000 * _SECOND)).busiest_second == 2  # an empty second takes no memory


def _turns(times_ns: list[int], parents: list[int | None], think_ns: list[int | None]) -> Workload:
    columns = {"arrival_ns": times_ns, "parent": parents, "think_time_ns": think_ns}
    return Workload.of_columns(WorkloadFacts("qwen", "trace.jsonl"), len(times_ns), columns)


def test_rows_are_taken_with_those_of_their_parents_that_are_taken() -> None:
    taken = rows_of(_turns([0, 1, 2, 3, 4], [None, 0, 0, 1, 2], [None] * 5), (0, 2, 3, 4))
    assert taken.table["arrival_ns"].to_pylist() == [0, 2, 3, 4]
    assert taken.table["parent"].to_pylist() == [None, 0, None, 1]
    assert rows_of(_trace([0, 1, 2]), (0, 2)).table["input_tokens"].to_pylist() == [1, 3]


def test_joins_are_taken_with_those_of_their_rows_that_are_taken() -> None:
    columns = {"arrival_ns": range(6), "parent": [None, 0, 0, 0, 3, 4], "joins": [None, None, None, [1, 2], None, [1, 3]]}
    trace = Workload.of_columns(WorkloadFacts("dynamo", "t.jsonl"), 6, columns)
    taken = rows_of(trace, (0, 2, 3, 5)).table
    assert (taken["parent"].to_pylist(), taken["joins"].to_pylist()) == ([None, 0, 0, 2], [None, None, [1], None])
    assert rows_of(trace, range(6)).digest == trace.digest
    alone = rows_of(trace, (0, 5)).table
    assert (alone["parent"].to_pylist(), alone["joins"].to_pylist()) == ([None, None], [None, None])
    joined = Workload.of_columns(
        trace.facts, 3, {"arrival_ns": range(3), "parent": [None, None, 1], "joins": [None, None, [0]]}
    )
    assert rows_of(joined, range(3)).table["joins"].to_pylist() == [None, None, [0]]
    assert rows_of(joined, (0, 2)).table["parent"].to_pylist() == [None, 0]  # it waits for its join alone


def test_a_conversation_that_began_before_the_start_goes_on_without_its_parent() -> None:
    replayed = _replayed(Replay(start_s=1.0), _turns([0, _SECOND, 2 * _SECOND], [None, 0, 1], [None, 5, 6]), 0)
    assert replayed.table["parent"].to_pylist() == [None, 0]


def test_think_times_have_the_factor_of_the_arrivals() -> None:
    trace = _turns([0, 10, 20], [None, 0, None], [None, 8, None])
    assert _replayed(Replay(speed=2.0), trace, 0).table["think_time_ns"].to_pylist() == [None, 4, None]
    assert _replayed(Replay(speed=0.5), trace, 0).table["think_time_ns"].to_pylist() == [None, 16, None]
    assert _replayed(Replay(), trace, 0).table["think_time_ns"].to_pylist() == [None, 8, None]
    rated = at_rate(trace, 2 / 60e-9)
    assert (rated.table["think_time_ns"].to_pylist(), _arrivals(rated)) == ([None, 24, None], [0, 30, 60])


def test_times_that_no_clock_counts_are_refused_and_not_sent_at_once() -> None:
    day = 86_400 * _SECOND
    trace = _trace([0, day])
    with pytest.raises(WorkloadError, match="speed 1e-06 is so low that the last request would come centuries from now"):
        _replayed(Replay(speed=1e-6), trace, 0)
    with pytest.raises(WorkloadError, match="request_rate 1e-10 is so low that the last request would come centuries from now"):
        at_rate(trace, 1e-10)
    waits = Workload.of_columns(trace.facts, 2, {"arrival_ns": [0, 1], "think_time_ns": [None, day]})
    with pytest.raises(WorkloadError, match=r"request_rate 0\.01 is so low"):
        at_rate(waits, 0.01)
    assert _arrivals(_replayed(Replay(speed=1e-4), trace, 0)) == [0, 10_000 * day]


def test_rows_are_taken_in_the_order_given() -> None:
    trace = _trace([0, 1, 2])
    assert rows_of(trace, (0, 2)).table["input_tokens"].to_pylist() == [1, 3]
    assert rows_of(trace, (0, 2)).facts == trace.facts
