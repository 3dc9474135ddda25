"""Output as events in time, and rates of it with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bench_records.record import Outcome, Record
from reports.metrics.output_events import (
    Events,
    completions,
    mean_rate,
    output_tokens,
    rate,
    rate_value,
    rate_with_error_of,
    summed_token_counts,
)
from reports.metrics.requests import Requests
from reports.statistics.autocorrelation import LongRun, Mean
from reports.statistics.estimate import UNKNOWN, Cause, Estimate, Reason, TooFew

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def _tokens_at(requests: Requests) -> list[tuple[float, float]]:
    """Times in ms and tokens, as they are credited."""
    events = output_tokens(requests)
    assert events is not None
    amounts = np.ones(events.times_ns.size) if events.amounts is None else events.amounts
    return list(zip((events.times_ns / 1e6).tolist(), amounts.tolist(), strict=True))


def _by_send(events: Events | None) -> list[tuple[float, float]]:
    """Times of the sends in ms, and the tokens of each request."""
    assert events is not None
    assert events.by_send is not None
    assert events.by_send.amounts is not None
    return list(zip((events.by_send.times_ns / 1e6).tolist(), events.by_send.amounts.tolist(), strict=True))


# ---- when tokens count


def test_successes_count_when_they_end_and_their_sends_when_they_were_sent(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    records = [answered(0, 0, 5, [(10, 2)], done=90), failed(1, 1, Outcome.TIMEOUT, 6, 95), answered(2, 2, 7, [], done=80)]
    events = completions(make_requests(records))
    assert events.by_send is not None
    assert (events.times_ns.tolist(), events.by_send.times_ns.tolist()) == ([90e6, 80e6], [5e6, 7e6])
    assert (events.amounts, events.by_send.amounts) == (None, None)


@pytest.mark.parametrize("known", [{}, {"token_counts": None}])
def test_all_tokens_of_a_success_and_of_a_cancellation_belong_to_its_send(
    make_requests: MakeRequests, answered: Make, failed: Make, known: dict[str, None]
) -> None:
    records = [
        answered(0, 0, 3, [(10, 1), (20, 3)], **known),
        failed(1, 1, Outcome.TIMEOUT, 4, 9),
        answered(2, 2, 5, [(15, 2)], outcome=Outcome.WITHDRAWN),
    ]
    assert _by_send(output_tokens(make_requests(records))) == [(3, 4), (5, 2)]
    assert _by_send(output_tokens(make_requests([records[0]]))) == [(3, 4)]


def test_tokens_of_a_planned_cancellation_count_as_far_as_they_are_known(make_requests: MakeRequests, answered: Make) -> None:
    """By their responses, at its end where only their number is known, and not where nothing is."""
    cancelled = {"outcome": Outcome.WITHDRAWN}
    records = [
        answered(0, 0, 0, [(10, 1), (20, 3)]),
        answered(1, 0, 0, [(15, 2), (25, 1)], done=27, **cancelled),
        answered(2, 0, 0, [(16, 2), (26, 1)], done=28, token_counts=None, **cancelled),
        answered(3, 0, 0, [(17, 2), (27, 1)], done=29, token_counts=None, output_tokens=None, **cancelled),
    ]
    assert _tokens_at(make_requests(records)) == [(10, 1), (20, 3), (15, 2), (25, 1), (28, 3)]


def test_tokens_count_when_they_arrive(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(0, 0, 0, [(10, 1), (20, 3)], done=90), answered(1, 5, 5, [(15, 2)], done=80)])
    assert _tokens_at(requests) == [(10, 1), (20, 3), (15, 2)]
    assert summed_token_counts(requests).tolist() == [4, 2]


def test_two_tokens_in_each_response_are_not_one(make_requests: MakeRequests, answered: Make) -> None:
    assert _tokens_at(make_requests([answered(0, 0, 0, [(10, 2), (20, 2)])])) == [(10, 2), (20, 2)]


def test_tokens_that_come_singly_need_no_amounts(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """The amounts of a million responses would be 8 MB of ones."""
    single = answered(0, 0, 0, [(10, 1), (20, 1)])
    cut = failed(1, 0, Outcome.STREAM_CUT, 0, 30, token_times_ns=(15_000_000,), token_counts=(1,), output_tokens=1)
    for records in ([single], [single, cut]):
        events = output_tokens(make_requests(records))
        assert events is not None
        assert events.amounts is None
        assert (events.times_ns / 1e6).tolist() == [10, 20]


def test_tokens_of_a_failure_are_no_output(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    cut = failed(0, 0, Outcome.STREAM_CUT, 0, 30, token_times_ns=(12_000_000,), token_counts=(4,), output_tokens=4)
    assert _tokens_at(make_requests([cut, answered(1, 0, 0, [(10, 1), (20, 3)])])) == [(10, 1), (20, 3)]


@pytest.mark.parametrize("known", [{"token_counts": None}, {"output_tokens": 5}])
def test_tokens_of_which_the_responses_do_not_tell_all_count_at_the_end(
    make_requests: MakeRequests, answered: Make, known: dict[str, int | None]
) -> None:
    record = answered(0, 0, 0, [(10, 1), (20, 3)], done=90, **known)
    assert _tokens_at(make_requests([record])) == [(90, known.get("output_tokens") or 4)]


def test_a_request_without_responses_has_no_tokens_in_them(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    requests = make_requests([failed(0, 0, Outcome.TIMEOUT, 0, 9), answered(1, 0, 0, [(10, 1), (20, 3)])])
    assert summed_token_counts(requests).tolist() == [0, 4]


# ---- the error of a rate


def _mean(value: float, standard_error: float, *, n: int = 1_000, drifts: bool = False) -> Mean:
    return Mean(value, standard_error, n, float(n), LongRun(1.0, 1e9, 1.0, 1.0, drifts))


def test_a_rate_has_the_relative_error_of_its_parts() -> None:
    """With parts of a mean of 2 ± 0.02 a half is 1.96 % of the mean: the lower limit is 1 / 1.0196 of it, the upper one
    1 + 0.0196 · 1.0196² times it.
    """
    half = 0.01 * 1.959964
    found = rate_with_error_of(50.0, _mean(2.0, 0.02))
    assert (found.value, found.reason) == (50.0, None)
    assert found.interval == pytest.approx((50.0 / (1 + half), 50.0 * (1 + half * (1 + half) ** 2)), rel=1e-6)


def test_the_rate_lies_within_its_interval_whatever_the_rounding() -> None:
    found = rate_with_error_of(0.1 + 0.2, _mean(0.3, 0.0))
    assert found.interval is not None
    assert found.interval[0] <= found.value <= found.interval[1]


@pytest.mark.parametrize(
    ("mean", "reason"),
    [
        (_mean(2.0, 0.02, n=99), TooFew(99, 100)),
        (_mean(2.0, 0.02, drifts=True), Cause.DRIFTS),
        (_mean(2.0, 2.0), Cause.UNEVEN),  # the error is as large as the mean: there is no upper limit
        (_mean(0.0, 0.02), Cause.UNEVEN),
    ],
)
def test_a_rate_without_an_interval_says_why(mean: Mean, reason: Reason) -> None:
    assert rate_with_error_of(50.0, mean) == Estimate(50.0, None, reason)


# ---- rates of events


def _evenly(count: int) -> Events:
    """So many events from 1 s to 11 s, both included."""
    return Events(np.linspace(1e9, 11e9, count))


def test_a_rate_is_the_amount_in_the_window_by_its_length() -> None:
    amounts = Events(np.array([0.5e9, 1e9, 3e9, 11e9, 11.5e9]), np.array([9.0, 1.0, 2.0, 4.0, 9.0]))
    assert rate_value(amounts, 1e9, 11e9) == 0.7
    assert rate_value(amounts, 0.25e9, 0.75e9) == 18.0
    assert rate_value(amounts, 1e9, 1e9) is None
    assert rate(amounts, 1e9, 1e9) == UNKNOWN


@pytest.mark.parametrize(
    ("times_s", "rate_per_s"),
    [((4.0, 1.0, np.nan, 2.0), 2 / 3), ((1.0, 3.0), 0.5), ((1.0, 1.0), None), ((1.0, np.nan), None), ((np.nan,), None)],
)
def test_a_mean_rate_is_the_gaps_by_their_sum(times_s: Sequence[float], rate_per_s: float | None) -> None:
    assert mean_rate(np.array(times_s) * 1e9) == rate_per_s


def test_a_rate_of_100_events_has_an_interval() -> None:
    """At the ends of the window, too, but not beyond them."""
    enough, too_few = (rate(_evenly(count), 1e9, 11e9) for count in (100, 99))
    assert too_few == Estimate(9.9, None, TooFew(99, 100))
    assert enough.value == 10.0
    assert not isinstance(enough.reason, TooFew)
    assert rate(_evenly(100), 1e9 + 1, 11e9).reason == TooFew(99, 100)


def test_the_tokens_of_one_request_are_no_hundred_values(make_requests: MakeRequests, answered: Make) -> None:
    """A single answer of 300 tokens had an interval of ±15 %, where another answer may have any length."""

    def tokens_of(requests: int) -> Estimate:
        records = [answered(k, 10 * k, 10 * k, [(10 * k + 2 + 3 * t, 1) for t in range(300)]) for k in range(requests)]
        events = output_tokens(make_requests(records))
        assert events is not None
        return rate(events, 0.0, 1e6 * (10 * requests + 900))

    few = tokens_of(1), tokens_of(99)
    assert [found.reason for found in few] == [TooFew(1, 100), TooFew(99, 100)]
    assert not any(found.interval for found in few)
    assert not isinstance(tokens_of(100).reason, TooFew)


def test_less_confidence_has_a_narrower_interval() -> None:
    events = Events(np.sort(np.random.default_rng(0).uniform(0.0, 10e9, 2_000)))
    half, nearly_all = (rate(events, 0.0, 10e9, confidence) for confidence in (0.5, 0.95))
    assert half is not None
    assert nearly_all is not None
    assert half.interval is not None
    assert nearly_all.interval is not None
    assert nearly_all.interval[0] < half.interval[0] < 200.0 < half.interval[1] < nearly_all.interval[1]
