"""Runs whose arrivals came in few clusters: which are found, and that no number of them has an interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench_records.record import Record
from reports.metrics.catalogue import REQUEST_THROUGHPUT, TTFT
from reports.metrics.clustered_arrivals import clustered_arrivals
from reports.metrics.configuration import OPEN_LOOP, ConfiguredLoad
from reports.metrics.goodput import Objective
from reports.metrics.requests import Requests
from reports.metrics.run_metrics import Metrics, compute_metrics
from reports.metrics.windows import whole_window
from reports.run.console import render_answer
from reports.run_report import RunReport
from reports.statistics.arrays import FloatArray
from reports.statistics.estimate import Cause, Estimate
from reports.statistics.percentiles import Distribution

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]
MakeReport = Callable[..., RunReport]


def _poisson_ms(n: int, seed: int) -> FloatArray:
    return np.cumsum(np.random.default_rng(seed).exponential(10.0, n))


def _spells_ms(n: int, seed: int) -> FloatArray:
    """Arrivals at 40 and at 160 requests/s by turns, 200 requests each on average."""
    rng = np.random.default_rng(seed)
    lengths = rng.geometric(1 / 200, n // 50 + 50)
    means_ms = np.repeat(np.where(np.arange(lengths.size) % 2, 6.25, 25.0), lengths)[:n]
    return np.cumsum(rng.exponential(means_ms))


@pytest.fixture
def at(answered: Make, make_requests: MakeRequests) -> Callable[[FloatArray], Requests]:
    """Requests due at times in ms, in whatever order; each ended after 7 ms."""
    one = make_requests([answered(0, 0, 0, [(7, 1)])])

    def requests(times_ms: FloatArray) -> Requests:
        due_ns = np.round(times_ms * 1e6)
        return replace(one, scheduled_ns=due_ns, done_ns=due_ns + 7e6, parent=np.full(due_ns.size, np.nan))

    return requests


@pytest.mark.parametrize("n", [101, 300, 2_000])
def test_independent_arrivals_are_not_clustered(at: Callable[[FloatArray], Requests], n: int) -> None:
    found = [clustered_arrivals(at(_poisson_ms(n, seed))) for seed in range(200)]
    assert sum(reason is not None for reason in found) <= 2


def test_arrivals_in_few_clusters_are_found_and_many_are_enough(at: Callable[[FloatArray], Requests]) -> None:
    few, many = at(_spells_ms(2_000, 1)), at(_spells_ms(40_000, 1))
    assert (clustered_arrivals(few), clustered_arrivals(many)) == (Cause.CLUSTERED_ARRIVALS, None)


def test_the_order_of_the_records_does_not_matter(at: Callable[[FloatArray], Requests]) -> None:
    times_ms = _spells_ms(2_000, 1)
    assert clustered_arrivals(at(np.random.default_rng(0).permutation(times_ms))) == Cause.CLUSTERED_ARRIVALS
    assert clustered_arrivals(at(np.random.default_rng(0).permutation(_poisson_ms(2_000, 1)))) is None


def test_of_fewer_than_a_hundred_gaps_nothing_is_known(at: Callable[[FloatArray], Requests]) -> None:
    """Forty gaps of 1 ms, the others of 20 ms."""
    gaps_ms = np.repeat([1.0, 20.0], [40, 61])
    assert clustered_arrivals(at(np.cumsum(gaps_ms[:100]))) is None
    assert clustered_arrivals(at(np.cumsum(gaps_ms))) == Cause.CLUSTERED_ARRIVALS


def test_arrivals_all_at_once_are_not_clustered(at: Callable[[FloatArray], Requests]) -> None:
    assert clustered_arrivals(at(np.zeros(500))) is None


def test_where_answers_decide_when_requests_are_due_arrivals_say_nothing_of_the_load(
    at: Callable[[FloatArray], Requests],
) -> None:
    requests = at(_spells_ms(2_000, 1))
    one_user = replace(requests, done_ns=np.append(requests.scheduled_ns[1:], requests.done_ns[-1]))
    sessions = replace(requests, parent=np.arange(2_000) - 1.0)
    assert (clustered_arrivals(one_user), clustered_arrivals(sessions)) == (None, None)


def test_the_ramp_of_a_rate_is_no_cluster(at: Callable[[FloatArray], Requests]) -> None:
    """100 requests/s from the third second on; before it, the rate grows evenly from 0."""
    even_ms = _poisson_ms(500, 3)
    requests = at(np.where(even_ms < 1_000, np.sqrt(2 * 2_000 * even_ms), even_ms + 1_000))
    assert clustered_arrivals(requests) == Cause.CLUSTERED_ARRIVALS
    assert clustered_arrivals(requests, ramp_up_s=2.0) is None


def _heavy_tailed_ms(n: int, seed: int) -> FloatArray:
    """Independent gaps, of which a few make up most of the time: lognormal ones with a coefficient of variation of 13."""
    sigma = np.sqrt(np.log(1.0 + 13.0**2))
    return np.cumsum(np.random.default_rng(seed).lognormal(0.0, sigma, n))


def test_few_gaps_that_make_up_most_of_the_time_part_clusters(at: Callable[[FloatArray], Requests]) -> None:
    found = [clustered_arrivals(at(_heavy_tailed_ms(2_000, seed))) for seed in range(50)]
    assert sum(reason == Cause.CLUSTERED_ARRIVALS for reason in found) >= 48


def test_one_long_silence_parts_two_clusters(at: Callable[[FloatArray], Requests]) -> None:
    due_ms = _poisson_ms(2_000, 1)
    assert clustered_arrivals(at(due_ms)) is None
    due_ms[1_000:] += 3_000.0  # 300 mean gaps
    assert clustered_arrivals(at(due_ms)) == Cause.CLUSTERED_ARRIVALS


def test_many_clusters_of_heavy_tailed_gaps_are_enough(at: Callable[[FloatArray], Requests]) -> None:
    """20,000 arrivals in 500 groups of 40, which makes a squared coefficient of variation of about 79."""
    rng = np.random.default_rng(3)
    due_ms = np.cumsum(np.where(np.arange(20_000) % 40 == 0, rng.exponential(400.0, 20_000), 0.001))
    gaps_ms = np.diff(due_ms)
    assert 60 < gaps_ms.var() / gaps_ms.mean() ** 2 < 100
    assert clustered_arrivals(at(due_ms)) is None
    assert clustered_arrivals(at(due_ms[:2_000])) == Cause.CLUSTERED_ARRIVALS


def test_bursts_at_even_intervals_are_no_chance(at: Callable[[FloatArray], Requests]) -> None:
    assert clustered_arrivals(at(np.repeat(400.0 * np.arange(50), 40))) is None


@pytest.mark.parametrize("n", [120, 300, 2_000])
def test_gamma_gaps_of_a_quarter_are_no_heavy_tail(at: Callable[[FloatArray], Requests], n: int) -> None:
    found = [clustered_arrivals(at(np.cumsum(np.random.default_rng(s).gamma(0.25, 40.0, n)))) for s in range(100)]
    assert sum(reason is not None for reason in found) <= 3


def test_a_part_of_a_run_is_judged_by_its_own_arrivals(at: Callable[[FloatArray], Requests]) -> None:
    """A second at 50 requests/s, then two at 500."""
    slow_ms, quick_ms = _poisson_ms(150, 2) * 2, 4_000 + _poisson_ms(1_000, 2) / 5
    requests, first = at(np.concatenate([slow_ms, quick_ms])), np.arange(1_150) < 150
    assert clustered_arrivals(requests) == Cause.CLUSTERED_ARRIVALS
    assert (clustered_arrivals(requests, chosen=first), clustered_arrivals(requests, chosen=~first)) == (None, None)


@pytest.fixture
def metrics_at(answered: Make, make_requests: MakeRequests) -> Callable[[FloatArray], Metrics]:
    """The numbers of requests due at times in ms, with a TTFT of 40 to 60 ms and two more tokens at once 5 to 7 ms later, of
    which all but the first follow a reasoning.
    """

    def metrics(times_ms: FloatArray, load: ConfiguredLoad = OPEN_LOOP) -> Metrics:
        ttft_ms = np.random.default_rng(4).uniform(40, 60, times_ms.size)
        records = [
            answered(k, due, due, [(due + first, 1), (due + first + 5 + k % 3, 2)])
            for k, (due, first) in enumerate(zip(np.round(times_ms, 3).tolist(), np.round(ttft_ms, 3).tolist(), strict=True))
        ]
        requests = make_requests(records)
        reasoned = replace(
            requests, has_reasoning=np.ones(times_ms.size, dtype=np.bool_), first_output_ns=requests.last_token_ns
        )
        return compute_metrics(reasoned, True, load, [Objective(TTFT, 50.0)])

    return metrics


def _distributions(metrics: Metrics) -> list[Distribution]:
    """The distributions of latencies that depend on the load, from both anchors and in both windows."""
    assert metrics.ttft_ms is not None
    assert metrics.ttfo_ms is not None
    windows = [window for window in (metrics.windows.whole, metrics.windows.steady) if window is not None]
    found = [metrics.ttft_ms.scheduled, metrics.ttft_ms.sent, metrics.e2e_ms.scheduled, metrics.e2e_ms.sent]
    found += [metrics.ttfo_ms.scheduled, metrics.ttfo_ms.sent]
    found += [metrics.tpot_ms, metrics.itl_ms, metrics.icl_ms, *(w.ttft_ms for w in windows), *(w.e2e_ms for w in windows)]
    return [distribution for distribution in found if distribution is not None]


def _rates(metrics: Metrics) -> list[Estimate]:
    windows = [window for window in (metrics.windows.whole, metrics.windows.steady) if window is not None]
    found = [rate for window in windows for rate in window.throughputs.values()]
    assert metrics.goodput is not None
    return [rate for rate in (*found, metrics.goodput.rate) if rate.value is not None]


def test_no_number_of_such_a_run_has_an_interval(metrics_at: Callable[[FloatArray], Metrics]) -> None:
    clustered, independent = metrics_at(_spells_ms(2_000, 1)), metrics_at(_poisson_ms(2_000, 1))
    assert (len(_distributions(independent)), len(_rates(independent))) == (13, 5)
    for distribution in _distributions(clustered):
        numbers = (distribution.mean, distribution.percentile(0.50), distribution.percentile(0.99))
        assert [(number.interval, number.reason) for number in numbers] == [(None, Cause.CLUSTERED_ARRIVALS)] * 3
    assert {(rate.interval, rate.reason) for rate in _rates(clustered)} == {(None, Cause.CLUSTERED_ARRIVALS)}
    assert all(d.mean.interval and d.percentile(0.99).interval for d in _distributions(independent))
    assert all(rate.interval for rate in _rates(independent))
    for metrics, known in ((clustered, False), (independent, True)):
        assert metrics.goodput is not None
        limits = (metrics.goodput.attainment_interval, metrics.goodput.from_send_interval)
        assert [interval is not None for interval in limits] == [known, known]
        assert metrics.failed_share is not None
        assert (metrics.failed_share.interval is not None) is known


def test_the_configured_ramp_of_a_run_is_no_cluster(metrics_at: Callable[..., Metrics]) -> None:
    even_ms = _poisson_ms(500, 3)
    ramped_ms = np.where(even_ms < 1_000, np.sqrt(2 * 2_000 * even_ms), even_ms + 1_000)
    plain, ramped = (metrics_at(ramped_ms, ConfiguredLoad(ramp_up_s=ramp_s)) for ramp_s in (0.0, 2.0))
    assert _distributions(plain)[0].mean.reason == Cause.CLUSTERED_ARRIVALS
    assert _distributions(ramped)[0].mean.reason is None


def test_the_whole_window_alone_has_no_interval_either(answered: Make, make_requests: MakeRequests) -> None:
    requests = make_requests([answered(k, 10 * k, 10 * k, [(10 * k + 7, 1)]) for k in range(200)])
    window = whole_window(requests, None, None, Cause.CLUSTERED_ARRIVALS)
    assert window is not None
    rate = window.throughputs[REQUEST_THROUGHPUT]
    assert (rate.interval, rate.reason) == (None, Cause.CLUSTERED_ARRIVALS)


def test_stages_and_classes_are_judged_by_their_own_arrivals(make_report: MakeReport, answered: Make) -> None:
    """Half a minute at an even rate, then spells; and the same requests in two classes."""
    even_ms, spells_ms = _poisson_ms(3_000, 1), 30_000 + _spells_ms(2_000, 1)
    times_ms = np.round(np.concatenate([even_ms[even_ms < 30_000], spells_ms]), 3).tolist()
    records = [
        answered(k, t, t, [(t + 7 + k % 5, 1)], traffic_class="even" if t < 30_000 else "spells")
        for k, t in enumerate(times_ms)
    ]
    steps = [{"begin_s": 0.0, "end_s": 30.0, "rate_per_s": 100.0}, {"begin_s": 30.0, "end_s": 100.0, "rate_per_s": 60.0}]
    classes = [{"name": name, "weight": 1.0} for name in ("even", "spells")]
    mixture = {"classes": classes, "objectives": {"even": ["ttft<=9ms"], "spells": ["ttft<=9ms"]}}
    report = make_report(records, load={"mode": "open", "stages": steps}, mixture=mixture)
    goodputs = [numbers.goodput for numbers in report.classes]
    assert [goodput is not None and goodput.attainment_interval is not None for goodput in goodputs] == [True, False]
    for even, spells in (report.stages, report.classes):
        for latency in ("ttft_ms", "e2e_ms"):
            assert getattr(even, latency).mean.reason is None
            assert getattr(spells, latency).mean.reason == Cause.CLUSTERED_ARRIVALS


def test_the_answer_names_the_reason(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, t, t, [(t + 7 + k % 5, 1)]) for k, t in enumerate(np.round(_spells_ms(2_000, 1), 3).tolist())]
    assert "arrivals in few clusters" in render_answer(make_report(records))
