"""The measures of one run: values and contributions worked out by hand, and the reasons for none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from msgspec import structs

from bench_records.record import Outcome, Record
from reports.compare.measures import (
    BINS,
    MEASURES,
    Measure,
    exact_percentiles,
    mean,
    measure_run,
    open_loop_gap,
    percentile,
    percentiles,
    schedule_covariates,
    share,
    throughput,
)
from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT, THROUGHPUTS, TPOT, TTFT
from reports.metrics.censoring import CensoredLatencies
from reports.metrics.full_load import full_load
from reports.metrics.output_events import completions, output_tokens
from reports.metrics.requests import Requests
from reports.statistics.estimate import Cause, Reason, TooFew

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]
SteadyRun = Callable[..., list[Record]]


# ---- names


@pytest.mark.parametrize(
    ("measure", "name", "title", "unit"),
    [
        (Measure(TTFT, 0.99), "p99_ttft", "TTFT p99", "ms"),
        (Measure(TPOT), "mean_tpot", "TPOT mean", "ms"),
        (Measure(REQUEST_THROUGHPUT), "request_throughput", "Request throughput", "1/s"),
    ],
)
def test_a_measure_is_named_by_its_statistic_and_its_metric(measure: Measure, name: str, title: str, unit: str) -> None:
    assert (measure.name, measure.title, measure.unit) == (name, title, unit)


def test_all_but_the_share_of_failures_are_relative_and_throughput_is_better_when_higher() -> None:
    assert [measure.name for measure in MEASURES if not measure.relative] == ["failed_share"]
    assert [measure.name for measure in MEASURES if measure.higher_is_better] == [
        "request_throughput",
        "output_token_throughput",
    ]


# ---- percentiles


@pytest.mark.parametrize(("q", "n", "known"), [(0.5, 99, False), (0.5, 100, True), (0.99, 661, False), (0.99, 662, True)])
def test_a_percentile_of_too_few_values_has_a_value_and_no_sample(q: float, n: int, known: bool) -> None:
    values = np.arange(1.0, n + 1.0)
    measured = percentile(values, q)
    assert measured.value == math.ceil(q * n)
    if known:
        assert measured.reason is None
        assert measured.sample is values
        assert (measured.ordered == values).all()
    else:
        assert measured.reason == TooFew(n, n + 1)
        assert (measured.sample == np.zeros(n)).all()
        assert measured.ordered.size == 0


def test_a_percentile_is_of_the_known_values_in_any_order() -> None:
    values = np.array([np.nan, *range(200, 0, -1), np.nan, *[np.inf] * 10])
    low, high = percentiles(values, [0.5, 0.9])
    assert (low.value, high.value) == (105.0, 189.0)  # of 210 values
    assert low.ordered.tolist() == [*range(1, 201), *[np.inf] * 10]


def test_a_percentile_among_failures_has_no_value() -> None:
    measured = percentile(np.array([1.0] * 60 + [np.inf] * 61), 0.5)
    assert (measured.value, measured.reason) == (None, Cause.REACHES_FAILED)
    assert percentile(np.array([1.0] * 61 + [np.inf] * 60), 0.5).value == 1.0
    assert percentile(np.array([1.0] * 2 + [np.inf] * 10), 0.5).value is None  # of too few values
    assert percentile(np.array([np.nan] * 3), 0.5).value is None


@pytest.mark.parametrize(
    ("q", "cut_at_ms", "failures", "value", "reason"),
    [
        (0.3, 400.0, 0, 300.0, None),
        (0.3, 200.0, 0, 300.0, Cause.REACHES_CUT),  # 290 ms, were these not slower
        (0.3, 300.0, 0, 300.0, None),
        (0.3, 299.0, 0, 300.0, Cause.REACHES_CUT),
        (0.98, 990.0, 0, 980.0, None),
        (0.99, 400.0, 0, 990.0, Cause.REACHES_CUT),
        (0.99, 990.0, 0, 990.0, None),
        (0.995, 400.0, 0, None, Cause.REACHES_CUT),
        (0.98, 400.0, 20, None, Cause.REACHES_CUT),
        (0.99, 400.0, 20, None, Cause.REACHES_FAILED),
    ],
)
def test_a_percentile_is_known_where_the_latencies_that_were_cut_off_do_not_decide_it(
    q: float, cut_at_ms: float, failures: int, value: float | None, reason: Reason | None
) -> None:
    """Ten of 1,000 were cut off, of which the others took 1 ms, 2 ms and so on, and the last ones failed."""
    latencies = np.array([*range(1, 991 - failures), *[np.inf] * failures, *[cut_at_ms] * 10])
    cut = CensoredLatencies(latencies, np.arange(1_000) >= 990)
    (found,) = exact_percentiles(cut, [q])
    assert (found.reason, found.value) == (reason, None if reason is Cause.REACHES_CUT else value)
    if reason is Cause.REACHES_CUT:
        assert found.sample.tolist() == [0.0] * 1_000
    whole = CensoredLatencies(cut.slowest_ms, np.zeros(1_000, dtype=np.bool_))
    assert exact_percentiles(whole, [q])[0].value == value


@pytest.mark.parametrize(("smallest", "reason"), [(0.0, Cause.ZEROS), (-1.0, Cause.ZEROS), (0.01, None)])
def test_a_percentile_is_not_compared_where_a_value_has_no_logarithm(smallest: float, reason: str | None) -> None:
    measured = percentile(np.array([smallest] + [5.0] * 120), 0.5)
    assert (measured.value, measured.reason) == (5.0, reason)


# ---- means and shares


def test_contributions_to_a_mean_are_relative_and_of_the_known_values() -> None:
    measured = mean(np.array([1.0, 3.0, np.nan, np.inf] * 50))
    assert (measured.value, measured.reason) == (2.0, None)
    assert measured.sample[:4].tolist() == [-1.0, 1.0, 0.0, 0.0]  # ±1/2, of half of the requests


@pytest.mark.parametrize(
    ("n", "value", "reason"),
    [(0, None, TooFew(0, 100)), (1, 4.0, TooFew(1, 100)), (99, 4.0, TooFew(99, 100)), (100, 4.0, None)],
)
def test_a_mean_of_too_few_values_has_no_contributions(n: int, value: float | None, reason: str | None) -> None:
    measured = mean(np.array([4.0] * n + [np.nan] * 7))
    assert (measured.value, measured.reason) == (value, reason)
    assert (measured.sample == np.zeros(n + 7)).all()


def test_a_mean_of_zeros_has_no_ratio_to_another() -> None:
    """TPOT where a proxy holds each answer back until its end: all tokens arrive at one time."""
    measured = mean(np.zeros(100))
    assert (measured.value, measured.reason) == (0.0, Cause.ALL_ZERO)
    assert (measured.sample == 0.0).all()


def test_contributions_to_the_share_of_failures_are_of_the_requests_that_ended() -> None:
    measured = share(np.array([0.0, 0.0, 0.0, 1.0, np.nan]))
    assert measured.value == 0.25
    assert measured.sample.tolist() == pytest.approx([-0.25 * 1.25] * 3 + [0.75 * 1.25, 0.0])


def test_the_share_of_failures_is_unknown_where_no_request_ended() -> None:
    measured = share(np.array([np.nan, np.nan]))
    assert (measured.value, measured.reason, measured.sample.tolist()) == (None, Cause.NONE_ENDED, [0.0, 0.0])


# ---- throughputs


def test_contributions_to_a_throughput_are_of_equal_parts_of_the_full_load(make_requests: MakeRequests, answered: Make) -> None:
    """100 requests, due every 10 ms from 1,000 ms on, each answered by 2 tokens after 5 and 8 ms, and done after 10 ms."""
    records = [answered(k, at, at, [(at + 5, 1), (at + 8, 1)], done=at + 10) for k, at in enumerate(range(1_000, 2_000, 10))]
    requests = make_requests(records)
    of_requests, of_tokens = throughput(requests, REQUEST_THROUGHPUT), throughput(requests, OUTPUT_TOKEN_THROUGHPUT)
    assert (of_requests.value, of_requests.reason) == (pytest.approx(100.0, rel=1e-12), None)
    assert of_tokens.value == pytest.approx(200.0)
    assert of_requests.sample.shape == of_tokens.sample.shape == (BINS,)  # of 1 ms each
    assert np.flatnonzero(of_requests.sample > 0).tolist() == [*range(10, 1_000, 10), 999]
    assert sorted(set(of_requests.sample.tolist())) == pytest.approx([-1.0, 9.0])  # 1 in a part of 0.1 on average
    assert of_requests.other_error == 0.0  # fewer than 100 requests ended between ramp and drain
    events = output_tokens(requests)
    assert events is not None
    full = full_load(requests, events)
    assert full is not None
    per_bin = full.per_bin(events, BINS)
    assert of_tokens.sample == pytest.approx((per_bin / per_bin.mean() - 1.0) * full.part_in_error)
    assert of_tokens.other_error == full.drain_error
    sent = full.chance_per_bin(events, BINS)
    assert of_tokens.sample_of_run == pytest.approx((sent / sent.mean() - 1.0) * full.part_in_error)


def test_the_gap_of_an_open_loop_is_that_of_its_schedule_with_the_error_of_independent_gaps(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Gaps of 5 and 15 ms in turn: their deviation is half their mean. Sent late and out of order, which changes nothing."""
    due_ms = np.concatenate([[0], np.cumsum(np.tile([5, 15], 60))])
    records = [answered(k, at, at + 7 * (k % 2), [(at + 60, 1)]) for k, at in enumerate(due_ms)]
    expected = pytest.approx((math.log(10e6), 0.5 / math.sqrt(120)))
    requests = make_requests(records[::-1])
    assert open_loop_gap(requests) == expected
    assert open_loop_gap(make_requests(records[:2])) == pytest.approx((math.log(5e6), 0.0))
    assert open_loop_gap(make_requests(records[:1])) is None
    assert {name for name, measured in measure_run(requests, True).items() if measured.gap == expected} == {
        m.name for m in MEASURES
    }


def test_an_open_loop_has_its_gap_where_too_few_requests_ended_between_ramp_and_drain(
    make_requests: MakeRequests, answered: Make
) -> None:
    requests = make_requests([answered(k, 10 * k, 10 * k, [(10 * k + 60, 1)]) for k in range(100)])
    events = completions(requests)
    assert full_load(requests, events) is None
    assert measure_run(requests, True)["request_throughput"].gap == pytest.approx((math.log(10e6), 0.0))


def test_a_throughput_has_the_errors_of_its_drain_for_pairs_and_without(make_requests: MakeRequests, answered: Make) -> None:
    latencies_ms = 200.0 * np.random.default_rng(1).lognormal(0.0, 0.5, 2_000)
    requests = make_requests([answered(k, 10 * k, 10 * k, [(10 * k + ms, 1)]) for k, ms in enumerate(latencies_ms.tolist())])
    full = full_load(requests, completions(requests))
    assert full is not None
    assert 0.0 < full.drain_error < full.late_drain_error
    measured = throughput(requests, REQUEST_THROUGHPUT)
    assert measured.reason is None
    assert (measured.other_error, measured.paired_error) == (full.drain_error, full.late_drain_error)


@pytest.mark.parametrize("parent", [None, 0])
def test_only_an_open_loop_has_a_gap(make_requests: MakeRequests, answered: Make, parent: int | None) -> None:
    """One user without a pause, whose requests are due when the last one ended; and turns of a session with pauses."""
    pause_ms = 0 if parent is None else 3
    records = [
        answered(k, at, at, [(at + 9, 1)], done=at + 10, parent=None if k == 0 else parent)
        for k, at in enumerate(range(0, 150 * (10 + pause_ms), 10 + pause_ms))
    ]
    assert open_loop_gap(make_requests(records)) is None
    at_once = [answered(k, 0, 0, [(9 * k + 1, 1)], done=9 * k + 2) for k in range(150)]
    assert open_loop_gap(make_requests(at_once)) is None


def test_a_throughput_of_too_few_requests_has_a_value_and_no_contributions(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    for succeeded, reason in ((99, TooFew(99, 100)), (100, None)):
        records = [answered(k, 10 * k, 10 * k, [(10 * k + 8, 1)], done=10 * k + 10) for k in range(succeeded)]
        records += [failed(succeeded, 10 * succeeded, Outcome.TIMEOUT, 10 * succeeded, 9_000)]
        measured = throughput(make_requests(records), REQUEST_THROUGHPUT)
        assert (measured.value, measured.reason) == (pytest.approx(100.0), reason)  # the window ends with the last success
        assert (measured.sample == 0).all() == (reason is not None)
        assert measured.sample.shape == (BINS,)


def test_a_throughput_without_successes_or_token_counts_is_unknown(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    nothing_done = make_requests([failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 10 * k + 5) for k in range(3)])
    uncounted = make_requests([answered(0, 0, 0, [(5, 1)], output_tokens=None, token_counts=None)])
    for metric in THROUGHPUTS:
        measured = throughput(nothing_done, metric)
        assert (measured.value, measured.reason) == (None, Cause.NONE_SUCCEEDED)
        assert measured.sample.tolist() == [0.0] * BINS
    assert throughput(uncounted, OUTPUT_TOKEN_THROUGHPUT).reason == Cause.UNCOUNTED
    assert throughput(uncounted, REQUEST_THROUGHPUT).reason == TooFew(1, 100)


def test_tokens_per_second_of_answers_without_a_token_are_zero_and_not_too_few(
    make_requests: MakeRequests, answered: Make
) -> None:
    requests = make_requests([answered(k, 10 * k, 10 * k, [], done=10 * k + 10) for k in range(100)])
    measured = throughput(requests, OUTPUT_TOKEN_THROUGHPUT)
    assert (measured.value, measured.reason) == (0.0, Cause.ALL_ZERO)
    assert throughput(requests, REQUEST_THROUGHPUT).reason is None


# ---- what the schedule fixed


def test_covariates_are_logarithms_of_the_requested_lengths_and_their_squares(
    make_requests: MakeRequests, answered: Make
) -> None:
    lengths = ((1, 3), (7, 15))
    records = [
        answered(k, k, k, [(k + 5, 1)], requested_input_tokens=inputs, requested_output_tokens=outputs)
        for k, (inputs, outputs) in enumerate(lengths)
    ]
    one = math.log(2.0)  # log(1 + 1)
    assert schedule_covariates(make_requests(records)).tolist() == [
        pytest.approx([one, one**2, 2 * one, (2 * one) ** 2]),
        pytest.approx([3 * one, (3 * one) ** 2, 4 * one, (4 * one) ** 2]),
    ]


def test_lengths_that_are_unknown_or_equal_are_no_covariates(make_requests: MakeRequests, answered: Make) -> None:
    def covariates(*lengths: tuple[int | None, int]) -> tuple[int, ...]:
        records = [
            answered(k, k, k, [(k + 5, 1)], requested_input_tokens=inputs, requested_output_tokens=outputs)
            for k, (inputs, outputs) in enumerate(lengths)
        ]
        return schedule_covariates(make_requests(records)).shape

    assert covariates((8, 3), (8, 3)) == (2, 0)
    assert covariates((8, 3), (8, 4)) == (2, 2)
    assert covariates((None, 3), (9, 4)) == (2, 2)
    assert covariates((None, 3), (9, 3)) == (2, 0)
    assert covariates((8, 3), (9, 4), (9, 4)) == (3, 4)


# ---- a whole run


def test_a_run_has_every_measure_and_an_unstreamed_one_those_of_whole_answers(
    make_requests: MakeRequests, steady_run: SteadyRun
) -> None:
    requests = make_requests(steady_run(700))
    streamed, unstreamed = measure_run(requests, True), measure_run(requests, False)
    assert list(streamed) == [measure.name for measure in MEASURES]
    assert list(unstreamed) == ["p50_e2e", "p99_e2e", "request_throughput", "output_token_throughput", "failed_share"]
    values = {name: measured.value for name, measured in streamed.items()}
    assert values == pytest.approx(
        {
            "p50_ttft": 100.0,
            "p99_ttft": 100.0,
            "p50_e2e": 120.0,
            "p99_e2e": 120.0,
            "mean_tpot": 10.0,
            "request_throughput": 700 / 7.111,  # to the end of the last request, 121 ms after it was due
            "output_token_throughput": 2_100 / 7.111,
            "failed_share": 0.0,
        }
    )
    assert all(unstreamed[name].value == values[name] for name in unstreamed)


def test_percentiles_of_a_run_are_no_means(make_requests: MakeRequests, answered: Make) -> None:
    """Every tenth TTFT is 200 ms, the others 20 ms; a second token follows after 10 ms."""
    firsts_ms = [10 * k + (200 if k % 10 == 0 else 20) for k in range(700)]
    run = measure_run(
        make_requests([answered(k, 10 * k, 10 * k, [(ms, 1), (ms + 10, 1)]) for k, ms in enumerate(firsts_ms)]), True
    )
    values = [run[name].value for name in ("p50_ttft", "p99_ttft", "p50_e2e", "p99_e2e", "mean_tpot")]
    assert values == pytest.approx([20.0, 200.0, 30.0, 210.0, 10.0])


def test_latencies_have_the_covariates_of_their_schedule(make_requests: MakeRequests, answered: Make) -> None:
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + 5, 1), (10 * k + 9, 1)], requested_output_tokens=2 + k % 3) for k in range(700)
    ]
    requests = make_requests(records)
    run = measure_run(requests, True)
    covariates = schedule_covariates(requests)
    for name in ("p50_ttft", "p99_e2e", "mean_tpot"):
        assert (run[name].covariates == covariates).all()
    assert run["request_throughput"].covariates is None


def test_a_success_without_a_token_is_a_success_in_the_compared_share(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    records = [answered(0, 0, 0, []), answered(1, 10, 10, [(50, 1)]), failed(2, 20, Outcome.TIMEOUT, 20, 90)]
    assert measure_run(make_requests(records), True)["failed_share"].value == pytest.approx(1 / 3)


def test_the_drains_of_an_open_loop_are_as_many_as_are_independent(make_requests: MakeRequests, answered: Make) -> None:
    """A server that is slower in long waves has few drains; one whose answers take as long at random has many."""
    rng = np.random.default_rng(1)
    waves_ms = 200.0 * (1.5 + np.sin(np.arange(2_000) / 100.0))
    found = []
    for latencies_ms in (waves_ms, rng.permutation(waves_ms)):
        records = [answered(k, 10 * k, 10 * k, [(10 * k + ms, 1)]) for k, ms in enumerate(latencies_ms.tolist())]
        found.append(throughput(make_requests(records), REQUEST_THROUGHPUT).other_independent)
    assert found[0] < 0.2 * found[1] < 400
    of_turns = throughput(make_requests([structs.replace(record, parent=0) for record in records]), REQUEST_THROUGHPUT)
    assert (of_turns.other_error > 0.0, of_turns.other_independent) == (True, math.inf)
