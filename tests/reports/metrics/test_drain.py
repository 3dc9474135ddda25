"""Where a run's drain begins, and by how much its length varies from run to run; by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from msgspec import structs

from bench_records.record import Outcome, Record
from reports.metrics.full_load import FullLoad, full_load, rate_of_run
from reports.metrics.output_events import Events, completions, output_tokens, rate, rate_with_error_of
from reports.metrics.requests import Requests
from reports.statistics.autocorrelation import mean_of
from reports.statistics.estimate import UNKNOWN

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def _full(requests: Requests) -> FullLoad:
    found = full_load(requests, completions(requests))
    assert found is not None
    return found


def _evenly(answered: Make, latencies_ms: Sequence[float], start_ms: float = 0.0) -> list[Record]:
    """One request each 10 ms, whose tokens are not counted."""
    return [
        answered(k, at, at, [(at + latency, 1)], done=at + latency, output_tokens=None, token_counts=None)
        for k, latency in enumerate(latencies_ms)
        for at in [start_ms + 10 * k]
    ]


@pytest.mark.parametrize("start_ms", [0.0, 1e6])
def test_the_ramp_is_a_tenth_at_least_and_the_drain_begins_with_the_last_send(
    make_requests: MakeRequests, answered: Make, failed: Make, start_ms: float
) -> None:
    """The last success counts: a request that failed afterwards is no part of the load that can end."""
    late = failed(1_001, start_ms + 10_500, Outcome.TIMEOUT, start_ms + 10_500, start_ms + 12_000)
    full = _full(make_requests([*_evenly(answered, [500.0] * 1_001, start_ms), late]))
    assert (full.begin_ns, full.start_ns, full.end_ns) == tuple((start_ms + ms) * 1e6 for ms in (0, 1_000, 10_000))
    assert full.drain_deviation_ns == 0.0


def test_100_successes_have_a_part_under_full_load(make_requests: MakeRequests, answered: Make) -> None:
    enough, few = (make_requests(_evenly(answered, [5.0] * count)) for count in (100, 99))
    assert full_load(enough, Events(np.repeat(enough.done_ns, 3))) is not None
    assert full_load(few, Events(np.repeat(few.done_ns, 3))) is None


@pytest.mark.parametrize("start_ms", [0.0, 1e6])
def test_the_drain_of_a_burst_begins_with_its_last_first_token(
    make_requests: MakeRequests, answered: Make, start_ms: float
) -> None:
    """Sent within half a second and answered within 10 s; the last one has no tokens."""
    records = [
        answered(k, start_ms, start_ms + k / 2, [(start_ms + 10 * k + 5, 1), (start_ms + 10 * k + 20, 1)]) for k in range(1_000)
    ]
    silent = answered(1_000, start_ms, start_ms + 500, [], done=start_ms + 10_000)
    assert _full(make_requests([*records, silent])).end_ns == (start_ms + 9_995) * 1e6


def test_a_burst_without_tokens_has_no_part_under_full_load(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(k, 0, 0, [], done=10 * k + 10) for k in range(200)])
    assert full_load(requests, completions(requests)) is None


def test_the_drain_of_a_closed_loop_begins_when_its_first_user_has_nothing_to_send(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Eight users with a request each 100 ms, of whom the last four have 60 requests and the others 80."""
    due_ms = sorted(100 * k + user for user in range(8) for k in range(80 if user < 4 else 60))
    requests = make_requests([answered(k, at, at, [(at + 99, 1)], done=at + 100) for k, at in enumerate(due_ms)])
    assert _full(requests).end_ns == 6_004e6


# ---- by how much its length varies

_PATTERN = [25.0, 5.0, 5.0, 5.0, 5.0]  # until all are answered: 25, 15 (the first one still runs), 5, 5 and 5 ms


def _spread(*counts: int) -> float:
    """Standard deviation of this many drains of 25, 15 and 5 ms, in ns."""
    return float(np.repeat([25e6, 15e6, 5e6], counts).std())


def test_a_drain_varies_as_the_time_from_any_send_to_the_end_of_all_that_is_in_flight(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Every send after the ramp counts, in which requests took longer: 27 times the pattern."""
    latencies_ms = [40.0] * 10 + (_PATTERN * 30)[10:150]
    found = _full(make_requests(_evenly(answered, latencies_ms))).drain_deviation_ns
    assert found == pytest.approx(_spread(27, 27, 81), rel=1e-9)
    assert found == pytest.approx(8e6, rel=1e-9)


def test_of_many_sends_some_200_are_enough(make_requests: MakeRequests, answered: Make) -> None:
    """901 sends from the 101st on, which is at the ramp's end, to the last: every fourth, 226 of them."""
    found = _full(make_requests(_evenly(answered, (_PATTERN * 201)[:1_001]))).drain_deviation_ns
    assert found == pytest.approx(_spread(46, 45, 135), rel=1e-9)


def test_drains_that_vary_from_send_to_send_are_all_independent(make_requests: MakeRequests, answered: Make) -> None:
    assert _full(make_requests(_evenly(answered, (_PATTERN * 201)[:1_001]))).independent_drains == 226


def test_drains_that_stay_long_for_a_while_are_no_more_independent_than_their_spells(
    make_requests: MakeRequests, answered: Make
) -> None:
    """They take 5 ms after a hundred sends and 9 ms after the next hundred, in turns: nine such spells after the ramp."""
    latencies_ms = [5.0 if k // 100 % 2 else 9.0 for k in range(1_001)]
    assert 4 < _full(make_requests(_evenly(answered, latencies_ms))).independent_drains < 18


def test_a_burst_that_ends_with_its_last_first_token_has_no_drain_to_take_a_speed_from(
    make_requests: MakeRequests, answered: Make
) -> None:
    """A burst whose requests get their first token 10 ms apart and end after it as in the pattern; the last one at once."""
    first_ms = [10 * k + 5 for k in range(150)]
    latencies_ms = [*(_PATTERN * 30)[:149], 0.0]
    records = [
        answered(k, 0, 0, [(first, 1)], done=first + latency)
        for k, (first, latency) in enumerate(zip(first_ms, latencies_ms, strict=True))
    ]
    full = _full(make_requests(records))
    assert full.end_ns == full.run_end_ns == 1_495e6
    assert full.drain_deviation_ns == pytest.approx(float(np.repeat([25e6, 15e6, 5e6, 0.0], [27, 27, 80, 1]).std()), rel=1e-9)


def test_answers_that_take_no_time_have_no_part_under_full_load(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(k, 0, 0, [(0, 1)], done=0) for k in range(100)])
    assert full_load(requests, completions(requests)) is None


def test_without_a_send_between_ramp_and_drain_nothing_is_known_to_vary(make_requests: MakeRequests, answered: Make) -> None:
    """Sixty users whose first requests last 20 s. One stops after 19 s, and the others send two more."""
    records = []
    for user in range(60):
        times_ms = [0] + ([19_000] if user == 0 else [20_000 + user, 20_500 + user, 21_000 + user])
        for due, done in pairwise(times_ms):
            tokens = [(at, 1) for at in range(due + 1_000, done, 1_000)] + [(done - 1, 1)]
            records.append(answered(len(records), due, due, tokens, done=done))
    requests = make_requests(sorted(records, key=lambda record: record.scheduled_ns))
    tokens_at = output_tokens(requests)
    assert tokens_at is not None
    full = full_load(requests, tokens_at)
    assert full is not None
    assert (full.end_ns, full.drain_deviation_ns) == (19_000e6, 0.0)


# ---- the rate of the whole run


def _share_of_interval(requests: Requests, confidence: float = 0.95) -> float:
    """Half of the interval as a share of the rate of the whole run, which lasts 11 s."""
    found = rate_of_run(completions(requests), 0.0, 11_000e6, full_load(requests, completions(requests)), confidence)
    assert found is not None
    assert found.interval is not None
    assert found.value == pytest.approx(1_001 / 11)
    return (found.interval[1] - found.interval[0]) / 2 / found.value


def test_the_rate_of_an_even_run_is_as_uncertain_as_the_length_of_its_drain(
    make_requests: MakeRequests, answered: Make
) -> None:
    """One request in 50 takes 900 ms and the others take 5 ms: from any send, all have ended after 405 to 900 ms."""
    varied = make_requests(_evenly(answered, [900.0 if k % 50 == 0 else 5.0 for k in range(1_001)]))
    alike = make_requests(_evenly(answered, [900.0] * 1_001))
    deviation = _full(varied).drain_deviation_ns
    assert deviation == pytest.approx(500e6 / 12**0.5, rel=0.05)
    assert 1.96 < _share_of_interval(varied) / (deviation / 11e9) < 3.0
    assert _share_of_interval(alike) < 0.2 * _share_of_interval(varied)
    assert _share_of_interval(varied, 0.5) < 0.5 * _share_of_interval(varied)


def test_without_a_part_under_full_load_the_error_is_that_of_equal_parts(make_requests: MakeRequests, answered: Make) -> None:
    events = completions(make_requests(_evenly(answered, np.random.default_rng(0).uniform(1, 500, 400).tolist())))
    for confidence in (0.5, 0.95):
        assert rate_of_run(events, 0.0, 4_500e6, None, confidence) == rate(events, 0.0, 4_500e6, confidence)
    assert rate_of_run(events, 5e9, 5e9, None) == UNKNOWN


def test_the_error_of_a_rate_shrinks_with_the_root_of_the_time_and_the_share_of_the_drain(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Sends at random over 10 s from 20 s on, each of which ends after half a second: the length of the drain never varies."""
    sends_ms = 20_000 + np.sort([0.0, *np.random.default_rng(4).uniform(0, 10_000, 1_998).round(3), 10_000.0])
    requests = make_requests([answered(k, at, at, [(at + 500, 1)], done=at + 500) for k, at in enumerate(sends_ms)])
    events, full = completions(requests), _full(requests)
    assert full.drain_deviation_ns < 1_000  # ns, of rounding
    mean = mean_of(full.chance_per_bin(events))
    until_drain = ((full.end_ns - full.start_ns) / 10e9) ** 0.5 * 10 / 10.5
    expected = rate_with_error_of(2_000 / 10.5, replace(mean, standard_error=mean.standard_error * until_drain))
    found = rate_of_run(events, 20e9, 30.5e9, full)
    assert found is not None
    assert found.interval is not None
    assert expected.interval is not None
    assert found.value == pytest.approx(2_000 / 10.5)
    assert found.interval == pytest.approx(expected.interval, rel=1e-6)


def test_a_part_of_less_than_three_fifths_or_of_few_events_is_no_measure_of_the_run(
    make_requests: MakeRequests, answered: Make
) -> None:
    """400 requests within 4 s, answered within 7 s; 110 requests, of which 99 end between ramp and drain."""
    drained = make_requests(_evenly(answered, [3_000.0 * k / 399 for k in range(400)], 1_000.0))
    few = make_requests(_evenly(answered, [10.0] * 110, 1_000.0))
    for requests, end_ns in ((drained, 7_990e6), (few, 2_100e6)):
        events = completions(requests)
        full = full_load(requests, events)
        for confidence in (0.5, 0.95):
            assert rate_of_run(events, 1e9, end_ns, full, confidence) == rate(events, 1e9, end_ns, confidence)


def test_100_events_between_ramp_and_drain_are_enough(make_requests: MakeRequests, answered: Make) -> None:
    """The first ends with the ramp, at 110 ms, and the last at the last send, at 1,100 ms."""
    requests = make_requests(_evenly(answered, [10.0] * 111))
    events = completions(requests)
    assert rate_of_run(events, 0.0, 1_110e6, full_load(requests, events)) != rate(events, 0.0, 1_110e6)


# ---- the speed of a request in the drain


@pytest.mark.parametrize(("gap_ms", "factor"), [(5, 0.5), (10, 1.0), (20, 1.0)])
def test_a_drain_in_which_requests_are_faster_than_under_load_varies_less(
    make_requests: MakeRequests, answered: Make, gap_ms: int, factor: float
) -> None:
    """A token each 10 ms under load, and each ``gap_ms`` in the second half of the drain, of which one request is left.

    Where tokens are not counted, the speed is unknown.
    """
    records = []
    for k in range(1_001):
        tokens = [(10 * k + 10 * t, 1) for t in range(1, 91 if k % 50 == 0 else 6)]
        if k == 1_000:
            tokens = tokens[:45] + [(10_450 + gap_ms * t, 1) for t in range(1, 450 // gap_ms)] + [(10_900, 1)]
        records.append(answered(k, 10 * k, 10 * k, tokens, done=tokens[-1][0]))
    assert _less_by_speed(make_requests, records) == pytest.approx(factor, rel=0.03)


def _less_by_speed(make_requests: MakeRequests, records: Sequence[Record]) -> float:
    """What a drain's deviation is multiplied by for the speed of requests in it, which is unknown without counts."""
    uncounted = [structs.replace(record, output_tokens=None, token_counts=None) for record in records]
    counted, plain = (_full(make_requests(counting)).drain_deviation_ns for counting in (records, uncounted))
    return counted / plain


def _last_alone(answered: Make, tokens_of: Callable[[int, int], list[tuple[float, int]]], count: int = 1_001) -> list[Record]:
    """One request each 10 ms with the tokens of (number, ms until its end): 50 ms, of every fiftieth and the last 900 ms."""
    spans_ms = [900 if k % 50 == 0 else 50 for k in range(count)]
    return [
        answered(k, 10 * k, 10 * k, [(10 * k + at, n) for at, n in tokens_of(k, span)], done=10 * k + span)
        for k, span in enumerate(spans_ms)
    ]


@pytest.mark.parametrize(("tokens", "factor"), [(45, 1.0), (90, 1.0), (180, 0.5)])
def test_the_tokens_of_an_answer_in_one_response_were_made_since_its_send(
    make_requests: MakeRequests, answered: Make, tokens: int, factor: float
) -> None:
    """A token each 10 ms under load; of the one request in the drain this many in 900 ms."""
    records = _last_alone(answered, lambda k, span: [(span, tokens if k == 1_000 else span // 10)])
    assert _less_by_speed(make_requests, records) == pytest.approx(factor, rel=0.03)


def test_the_wait_for_the_first_token_is_no_time_in_which_tokens_are_made(make_requests: MakeRequests, answered: Make) -> None:
    """Half of each answer's time: after it come 10 tokens in 25 ms, and of a long one, or in the drain, 180 in 450 ms."""
    records = _last_alone(answered, lambda _, span: [(span / 2 + 2.5 * t, 1) for t in range(1, span // 5 + 1)])
    assert _less_by_speed(make_requests, records) == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize("count", [1_001, 10_051])
def test_the_speed_under_load_is_that_of_requests_of_all_kinds(make_requests: MakeRequests, answered: Make, count: int) -> None:
    """5 and 15 tokens in turns in 50 ms, and 180 in the 900 ms of the long ones; 360 in the drain, where it is twice the speed.
    With ten thousand requests as well as with a thousand.
    """

    def tokens_of(k: int, span_ms: int) -> list[tuple[float, int]]:
        short, long = 15 if k % 2 else 5, 360 if k == count - 1 else 180
        return [(span_ms, short if span_ms == 50 else long)]

    assert _less_by_speed(make_requests, _last_alone(answered, tokens_of, count)) == pytest.approx(0.5, rel=0.03)


def test_without_a_speed_under_load_or_in_the_drain_they_are_taken_as_equal(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Answers whose responses all come at the end, except the last one; and one whose last token comes long before its end."""
    at_once = _last_alone(answered, lambda k, span: [(10 * t if k == 1_000 else span, 1) for t in range(1, span // 10 + 1)])
    silent = _last_alone(answered, lambda k, span: [(10 * t, 1) for t in range(1, (40 if k == 1_000 else span // 10) + 1)])
    for records in (at_once, silent):
        assert _less_by_speed(make_requests, records) == pytest.approx(1.0, rel=1e-9)
