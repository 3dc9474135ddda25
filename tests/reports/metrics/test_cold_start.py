"""A cold start: a target that is slow at first, at a load that is no heavier than later."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from bench_records.record import Outcome, Record
from reports.metrics.cold_start import find_cold_start
from reports.metrics.configuration import ConfiguredLoad
from reports.metrics.in_flight import ends_at_even_server
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import mean_of
from reports.statistics.probability import student_quantile

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def _cold_run(make_requests: MakeRequests, answered: Make, ttft_ms: Sequence[float], start_ms: float = 5_000.0) -> Requests:
    return make_requests([answered(k, at, at, [(at + ms, 1)]) for k, ms in enumerate(ttft_ms) for at in [start_ms + 10 * k]])


@pytest.mark.parametrize("load", [ConfiguredLoad(), ConfiguredLoad(closed=True), ConfiguredLoad(concurrency=500)])
def test_of_several_beginnings_the_most_significant_is_the_cold_start(
    make_requests: MakeRequests, answered: Make, load: ConfiguredLoad
) -> None:
    """101 slow requests within a second of twelve: a twelfth of the sending. The one at its end belongs to it."""
    later = np.random.default_rng(1).normal(100.0, 10.0, 1_100)
    requests = _cold_run(make_requests, answered, [300.0] * 100 + [401.0, *later])
    found = find_cold_start(requests, load)
    assert found is not None
    assert (found.seconds, found.early_ms) == (pytest.approx(1.0, rel=1e-12), pytest.approx(301.0, rel=1e-12))
    assert found.later_ms == pytest.approx(np.round(later[-600:] * 1e6).mean() / 1e6, rel=1e-8)
    assert found.ratio == found.early_ms / found.later_ms


def test_the_latter_half_is_what_comes_after_the_middle(make_requests: MakeRequests, answered: Make) -> None:
    ttft_ms = np.where(np.arange(1_201) < 400, 300.0, 100.0)
    ttft_ms[600] = 200.0  # due in the very middle
    found = find_cold_start(_cold_run(make_requests, answered, ttft_ms.tolist()))
    assert found is not None
    assert (found.early_ms, found.later_ms) == (300.0, 100.0)


def test_the_first_request_of_each_user_is_no_cold_start(make_requests: MakeRequests, answered: Make) -> None:
    requests = _cold_run(make_requests, answered, [300.0] * 100 + [100.0] * 1_100)
    assert find_cold_start(requests, ConfiguredLoad(closed=True, concurrency=100)) is None
    assert find_cold_start(requests, ConfiguredLoad(closed=True, concurrency=50)) is not None


@pytest.mark.parametrize(("count", "share"), [(460, 1 / 24), (456, 1 / 12)])
def test_a_beginning_has_20_requests_at_least(make_requests: MakeRequests, answered: Make, count: int, share: float) -> None:
    """20 and 19 of them in a 24th of the sending."""
    later = np.random.default_rng(2).normal(100.0, 2.0, count - 20).tolist()
    found = find_cold_start(_cold_run(make_requests, answered, [300.0] * 20 + later))
    assert found is not None
    assert found.seconds == pytest.approx(0.01 * (count - 1) * share)


def test_a_cold_start_is_seen_in_200_requests_half_of_them_late(make_requests: MakeRequests, answered: Make) -> None:
    ttft_ms = [300.0] * 60 + [100.0] * 140
    assert find_cold_start(_cold_run(make_requests, answered, ttft_ms)) is not None
    assert find_cold_start(make_requests(_in_halves(answered, 100, 100))) is not None
    assert find_cold_start(make_requests(_in_halves(answered, 99, 100))) is None
    assert find_cold_start(make_requests(_in_halves(answered, 101, 99))) is None


def _in_halves(answered: Make, first: int, second: int) -> list[Record]:
    """So many requests in each second of two, 60 slow ones first."""
    due_ms = [*np.linspace(0.0, 990.0, first), *np.linspace(1_010.0, 2_000.0, second)]
    return [answered(k, at, at, [(at + (300 if k < 60 else 100), 1)]) for k, at in enumerate(due_ms)]


def test_one_slow_request_is_no_cold_start(make_requests: MakeRequests, answered: Make) -> None:
    assert find_cold_start(_cold_run(make_requests, answered, [100_000.0] + [100.0] * 1_200)) is None


def test_a_quarter_above_the_later_mean_is_a_cold_start_and_less_is_none(make_requests: MakeRequests, answered: Make) -> None:
    exact, less = ([ms] * 400 + [100.0] * 801 for ms in (125.0, 124.9))
    found = find_cold_start(_cold_run(make_requests, answered, exact))
    assert found is not None
    assert found.ratio == 1.25
    assert found.seconds == pytest.approx(0.5)  # of equals the shortest
    assert find_cold_start(_cold_run(make_requests, answered, less)) is None


def test_a_beginning_must_be_above_the_mean_of_a_tail_too(make_requests: MakeRequests, answered: Make) -> None:
    """One in ten of the later requests takes 600 ms: their median is 100 ms and their mean 150 ms."""
    later = [600.0 if k % 10 == 0 else 100.0 for k in range(800)]
    assert find_cold_start(_cold_run(make_requests, answered, [180.0] * 401 + later)) is None
    assert find_cold_start(_cold_run(make_requests, answered, [190.0] * 401 + later)) is not None


@pytest.mark.parametrize(("factor", "found"), [(0.97, False), (1.03, True)])
def test_a_cold_start_is_significant(make_requests: MakeRequests, answered: Make, factor: float, found: bool) -> None:
    """At 0.1 % by Student's quantile, for five beginnings; 401 requests of a third of the sending against 600."""
    later = np.round(np.random.default_rng(3).gamma(0.25, 400.0, 800), 6)
    mean = mean_of(later[-600:] * 1e6)
    error = (mean.long_run.variance / 600 * (1 / 401 + 1 / 600)) ** 0.5
    limit = student_quantile(1 - 0.001 / 5, mean.long_run.degrees) * error
    early_ms = (mean.value + factor * limit) / 1e6
    assert early_ms > 1.25 * mean.value / 1e6
    requests = _cold_run(make_requests, answered, [early_ms] * 401 + later.tolist())
    assert (find_cold_start(requests) is not None) == found


def test_latencies_of_failures_do_not_count(make_requests: MakeRequests, answered: Make) -> None:
    slow = [answered(k, 10 * k, 10 * k, [(10 * k + (200 if k < 300 else 100), 1)]) for k in range(1_000)]
    records = [replace(record, outcome=Outcome.STREAM_CUT, error="cut") if record.index < 300 else record for record in slow]
    assert find_cold_start(make_requests(slow)) is not None
    assert find_cold_start(make_requests(records)) is None


# ---- at equal load


def _at_server(answered: Make, due_ms: FloatArray, service_ms: FloatArray | float, **fields: Sequence[int]) -> list[Record]:
    """Requests that one server answers in their order; each takes ``service_ms``, shape [requests] or the same for all."""
    ends_ms = ends_at_even_server(due_ms, service_ms)
    return [
        answered(k, at, at, [(end, 1)], **{name: values[k] for name, values in fields.items()})
        for k, (at, end) in enumerate(zip(due_ms.tolist(), ends_ms.tolist(), strict=True))
    ]


def _poisson_ms(rng: np.random.Generator, counts: Sequence[int], second_ms: float = 1_000.0) -> FloatArray:
    """So many arrivals at random times in each second."""
    return np.concatenate([np.sort(rng.uniform(k, k + 1, count)) for k, count in enumerate(counts)]) * second_ms


_FALLING = [95] * 5 + [60] * 5 + [30] * 20
_AFTER_A_BURST = [300] + [20] * 29


@pytest.mark.parametrize("per_second", [_FALLING, _AFTER_A_BURST])
@pytest.mark.parametrize("seed", range(3))
def test_a_queue_of_a_load_that_falls_is_no_cold_start(
    make_requests: MakeRequests, answered: Make, per_second: list[int], seed: int
) -> None:
    due_ms = _poisson_ms(np.random.default_rng(seed), per_second)
    records = _at_server(answered, due_ms, 10.0)
    requests = make_requests(records)
    first_third = (requests.first_token_ns - requests.scheduled_ns)[requests.scheduled_ns < 1e10]
    assert first_third.mean() > 25e6  # of latencies near 12 ms later
    assert find_cold_start(requests) is None
    unknown = [replace(record, input_tokens=None, output_tokens=None, requested_output_tokens=0) for record in records]
    assert find_cold_start(make_requests(unknown)) is None


def test_prompts_that_are_hardly_longer_than_answers_differ_by_no_more_than_they_are(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Prompts of 1,001 tokens at first and 1,000 later, and answers of 998: neither explains a threefold latency."""
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + (300 if k < 100 else 100), 998)], input_tokens=1_001 if k < 100 else 1_000)
        for k in range(1_201)
    ]
    assert find_cold_start(make_requests(records)) is not None


@pytest.mark.parametrize("seed", range(3))
def test_a_target_that_is_slow_at_an_even_load_is_cold_although_a_queue_forms(
    make_requests: MakeRequests, answered: Make, seed: int
) -> None:
    """Its first answer takes 3 s, as where kernels are compiled, and all others 10 ms, at half of its capacity."""
    due_ms = _poisson_ms(np.random.default_rng(seed), [50] * 30)
    service_ms = np.where(np.arange(due_ms.size) == 0, 3_000.0, 10.0)
    found = find_cold_start(make_requests(_at_server(answered, due_ms, service_ms)))
    assert found is not None
    assert found.ratio > 2


def test_a_cold_start_before_the_load_rises_is_found(make_requests: MakeRequests, answered: Make) -> None:
    due_ms = _poisson_ms(np.random.default_rng(0), [30] * 8 + [60] * 22)
    service_ms = np.where(due_ms < 4_000.0, 100.0, 10.0)
    assert find_cold_start(make_requests(_at_server(answered, due_ms, service_ms))) is not None


@pytest.mark.parametrize("side", ["input_tokens", "output_tokens"])
def test_long_requests_at_first_are_a_load(make_requests: MakeRequests, answered: Make, side: str) -> None:
    """Each takes 1 ms per 100 tokens; the first have twice as many as the others, at an even rate."""
    due_ms = _poisson_ms(np.random.default_rng(1), [40] * 30)
    tokens = np.where(due_ms < 8_000.0, 2_000, 1_000)
    lengths = {"input_tokens": [1] * due_ms.size, "output_tokens": [1] * due_ms.size, side: tokens.tolist()}
    records = _at_server(answered, due_ms, tokens / 100.0, **lengths)
    assert find_cold_start(make_requests(records)) is None
    unknown = [replace(record, input_tokens=None, output_tokens=None) for record in records]
    assert find_cold_start(make_requests(unknown)) is not None


@pytest.mark.parametrize("known", ["input_tokens", "requested_input_tokens"])
@pytest.mark.parametrize(
    ("tokens", "slow_ms", "found"),
    [(1_020, 197, False), (1_020, 198, True), (1_050, 284, False), (1_050, 285, True), (1_080, 10_000, False)],
)
def test_arrivals_explain_a_beginning_where_they_make_half_of_its_excess_or_double_the_latencies(
    make_requests: MakeRequests, answered: Make, tokens: int, slow_ms: int, found: bool, known: str
) -> None:
    """The first 51 prompts, a 24th of the sending, have this many tokens, and the others 1,000. In an even server at its
    capacity the first take 1.478, 1.905 or 2.029 times as long as those of the second half. So they explain latencies that are
    1 + 2 · 0.478 = 1.956 times as long, 1 + 2 · 0.905 = 2.810 times, and any number of times. Only 50 of the 51 are slow.
    """
    requests = make_requests(
        [
            answered(k, at, at, [(at + (slow_ms if k < 50 else 100), 1)], **{known: tokens if k < 51 else 1_000})
            for k, at in enumerate(range(5_000, 17_001, 10))
        ]
    )
    assert (find_cold_start(requests) is not None) is found


def test_early_requests_that_failed_were_a_load_too(make_requests: MakeRequests, answered: Make) -> None:
    """Two in three of the first were cut off: those that were answered came at the later rate."""
    due_ms = _poisson_ms(np.random.default_rng(2), [95] * 8 + [30] * 22)
    records = [
        replace(record, outcome=Outcome.STREAM_CUT, error="cut") if record.scheduled_ns < 8e9 and k % 3 else record
        for k, record in enumerate(_at_server(answered, due_ms, 10.0))
    ]
    assert find_cold_start(make_requests(records)) is None
