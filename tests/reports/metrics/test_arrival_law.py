"""Arrivals against the law that was requested."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, kstest

from reports.metrics.arrival_law import (
    ArrivalTest,
    at_even_rate_ns,
    check_arrivals,
    index_of_dispersion,
    squared_variation,
    wandering_rate,
)
from reports.metrics.configuration import Law
from workloads.arrivals.processes import Arrivals, Constant, Exponential, Gamma, RampedUp, Weibull

_LAWS: list[tuple[Arrivals, Law]] = [
    (Exponential(50.0), Law("exponential", 50.0)),
    (Gamma(50.0, 0.3), Law("gamma", 50.0, 0.3)),
    (Gamma(50.0, 5.0), Law("gamma", 50.0, 5.0)),
    (Weibull(50.0, 0.6), Law("weibull", 50.0, 0.6)),
    (Constant(50.0), Law("constant", 50.0)),
]


class _Sent:
    """As much of Requests as the test looks at."""

    def __init__(self, sent_ns: NDArray[Any], ceiling_wait_ns: NDArray[Any] | float = 0.0) -> None:
        self.sent_ns = sent_ns.astype(np.float64)
        self.ceiling_wait_ns = np.zeros_like(self.sent_ns) + ceiling_wait_ns
        self.lost = np.zeros(self.sent_ns.size, dtype=np.bool_)


def _rejected(sent_ns: NDArray[Any], law: Law) -> bool:
    test = check_arrivals(_Sent(sent_ns), law)  # type: ignore[arg-type]
    assert test is not None
    return test.rejected


@pytest.mark.parametrize(("arrivals", "law"), _LAWS)
def test_arrivals_pass_for_their_own_law_in_all_but_one_of_a_hundred(arrivals: Arrivals, law: Law) -> None:
    assert sum(_rejected(arrivals.offsets_ns(1_000, seed), law) for seed in range(100)) <= 5


@pytest.mark.parametrize(("arrivals", "law"), [(a, other) for a, own in _LAWS for _, other in _LAWS if other != own])
def test_arrivals_do_not_pass_for_another_law(arrivals: Arrivals, law: Law) -> None:
    assert _rejected(arrivals.offsets_ns(1_000, 1), law)


def test_a_rate_that_was_not_reached_is_noticed() -> None:
    assert _rejected(Exponential(40.0).offsets_ns(2_000, 1), Law("exponential", 50.0))


def test_the_order_in_which_workers_sent_does_not_matter() -> None:
    sent = Exponential(50.0).offsets_ns(500, 1).astype(float)
    shuffled = np.random.default_rng(0).permutation(np.append(sent, np.nan))
    law = Law("exponential", 50.0)
    assert check_arrivals(_Sent(sent), law) == check_arrivals(_Sent(shuffled), law)  # type: ignore[arg-type]


def test_jitter_of_a_client_is_no_other_law_for_constant_gaps() -> None:
    sent = Constant(100.0).offsets_ns(1_000, 0) + np.random.default_rng(0).integers(0, 500_000, 1_000)
    assert not _rejected(sent, Law("constant", 100.0))
    assert _rejected(sent + np.random.default_rng(1).integers(0, 5_000_000, 1_000), Law("constant", 100.0))


@pytest.mark.parametrize(("arrivals", "law"), _LAWS)
def test_a_rate_that_was_to_rise_is_held_against_a_rising_one(arrivals: Arrivals, law: Law) -> None:
    rising = [RampedUp(arrivals, 16.0).offsets_ns(500, seed) for seed in range(50)]  # most of them while the rate rises
    assert sum(_rejected(sent_ns, replace(law, ramp_up_s=16.0)) for sent_ns in rising) <= 3
    assert sum(_rejected(sent_ns, law) for sent_ns in rising) >= 25


def test_what_waited_at_the_ceiling_came_when_it_was_due() -> None:
    due_ns = Exponential(50.0).offsets_ns(1_000, 3)
    waits_ns = np.where(np.arange(1_000) % 10 < 5, 100_000_000, 0)
    law = Law("exponential", 50.0)
    declared, undeclared = (check_arrivals(_Sent(due_ns + waits_ns, wait), law) for wait in (waits_ns, 0.0))  # type: ignore[arg-type]
    assert declared is not None
    assert undeclared is not None
    assert (declared.rejected, undeclared.rejected) == (False, True)


def test_sends_of_which_some_are_unknown_are_not_compared() -> None:
    sent = _Sent(np.append(Exponential(50.0).offsets_ns(2_000, 1), np.full(100, np.nan)))
    for rate in (50.0, 80.0):
        law = Law("exponential", rate)
        assert check_arrivals(sent, law) is not None  # type: ignore[arg-type]
    sent.lost[-1] = True
    assert check_arrivals(sent, law) is None  # type: ignore[arg-type]
    bursts = _Sent(np.sort(np.concatenate([np.arange(0.0, 40.0, 0.05), 20 + np.arange(0.0, 5.0, 0.005)])) * 1e9)
    assert wandering_rate(bursts, Law("exponential", 30.0)) is not None  # type: ignore[arg-type]
    bursts.lost[-1] = True
    assert wandering_rate(bursts, Law("exponential", 30.0)) is None  # type: ignore[arg-type]


def test_few_gaps_prove_nothing() -> None:
    assert check_arrivals(_Sent(np.arange(20) * 1_000), Law("exponential", 50.0)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [(Exponential(50.0), 1.0), (Constant(50.0), 0.0), (Gamma(50.0, 0.25), 3.6), (Gamma(50.0, 4.0), 0.27)],
)
def test_the_index_of_dispersion_measures_how_bursty_arrivals_are(arrivals: Arrivals, expected: float) -> None:
    index = index_of_dispersion(arrivals.offsets_ns(50_000, 1).astype(float))
    assert index == pytest.approx(expected, rel=0.1, abs=0.02)


def test_a_burst_and_a_handful_have_no_index() -> None:
    assert index_of_dispersion(np.zeros(1_000)) is None
    assert index_of_dispersion(np.arange(199.0)) is None


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_the_rate_of_exact_arrivals_seldom_wanders(shape: float) -> None:
    law = Law("gamma", 50.0, shape)
    found = 0
    for seed in range(200):
        gaps_s = np.random.default_rng(seed).gamma(shape, 1.0 / (50.0 * shape), 3_000)
        found += wandering_rate(_Sent(np.cumsum(gaps_s) * 1e9), law) is not None  # type: ignore[arg-type]
    assert found <= 2


# ---- the numbers of the tests, by hand


def test_gaps_are_tested_by_kolmogorov_and_smirnov_s_distance() -> None:
    """Equal gaps of the mean gap: 1 − 1/e of an exponential law lies below them, and none of the gaps."""
    law = Law("exponential", 100.0)
    equal = check_arrivals(_Sent(np.arange(21) * 10_000_000), law)  # type: ignore[arg-type]
    assert equal is not None
    assert (equal.law, equal.gaps, equal.rejected) == (law, 20, True)
    assert equal.statistic == pytest.approx(1 - np.exp(-1.0), rel=1e-12)
    sent_ns = Exponential(100.0).offsets_ns(200, 5)
    found = check_arrivals(_Sent(sent_ns), law)  # type: ignore[arg-type]
    expected = kstest(np.diff(sent_ns) / 1e9, "expon", args=(0.0, 0.01))
    assert found is not None
    assert (found.statistic, found.p_value) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue, rel=1e-3))


@pytest.mark.parametrize(("late", "rejected"), [(1, False), (2, True)])
def test_one_in_a_hundred_constant_gaps_may_differ_by_more_than_a_tenth(late: int, rejected: bool) -> None:
    gaps_ns = np.full(100, 100_000_000)
    gaps_ns[10 : 10 + late] = 111_000_000
    gaps_ns[20:30] = 109_000_000
    law = Law("constant", 10.0)
    found = check_arrivals(_Sent(np.concatenate([[0], np.cumsum(gaps_ns)])), law)  # type: ignore[arg-type]
    assert found == ArrivalTest(law, 100, late / 100, None, rejected)


def _alternating(counts: tuple[int, int], seconds: float, times: int) -> _Sent:
    """Sends from 100 s on, in turns this many evenly over ``seconds``; ``times`` turns in all, and a send 20 ms later."""
    starts_s = 100.0 + seconds * np.arange(times + 1)
    sent_s = [start + seconds * np.arange(count) / count for start, count in zip(starts_s, counts * times, strict=False)][:-1]
    return _Sent(np.round(np.append(np.concatenate(sent_s), starts_s[-1] + 0.02) * 1e9))


def test_a_rate_that_changes_every_5_seconds_wanders_over_5_seconds() -> None:
    """150 and 350 in turns: a variance of 100² · 12/11 where a Poisson process of the rate has one of 250."""
    sent = _alternating((150, 350), 5.0, 12)
    found = wandering_rate(sent, Law("exponential", 50.0))  # type: ignore[arg-type]
    dispersion = 100**2 * 12 / 11 / 250
    assert found is not None
    assert (found.window_s, found.dispersion) == (5.0, pytest.approx(dispersion, rel=1e-12))
    assert found.p_value == pytest.approx(chi2.sf(11 * dispersion, 11), rel=1e-6, abs=0.0)
    assert wandering_rate(sent, Law("gamma", 50.0, 0.02)) is None  # type: ignore[arg-type]  # counts vary 50 times as much
    assert wandering_rate(sent, Law("constant", 50.0)) is None  # type: ignore[arg-type]


def test_counts_of_weibull_gaps_vary_by_the_variation_of_its_gaps() -> None:
    """With shape 1/2, Γ(5) / Γ(3)² − 1 = 5 times as much as those of a Poisson process."""
    found = wandering_rate(_alternating((150, 350), 5.0, 12), Law("weibull", 50.0, 0.5))  # type: ignore[arg-type]
    assert found is not None
    assert (found.window_s, found.dispersion) == (5.0, pytest.approx(100**2 * 12 / 11 / 250 / 5, rel=1e-12))


@pytest.mark.parametrize(("turns", "window_s"), [(6, 5.0), (5, 2.5)])
def test_a_rate_is_watched_over_windows_of_which_the_run_holds_six(turns: int, window_s: float) -> None:
    found = wandering_rate(_alternating((150, 350), 5.0, turns), Law("exponential", 50.0))  # type: ignore[arg-type]
    assert found is not None
    assert found.window_s == window_s


def test_a_rate_is_watched_over_windows_of_20_arrivals_on_average() -> None:
    sent = _alternating((5, 35), 1.0, 30)
    enough, too_few = (wandering_rate(sent, Law("exponential", rate)) for rate in (20.0, 19.9))  # type: ignore[arg-type]
    assert enough is not None
    assert enough.window_s == 1.0
    assert too_few is None or too_few.window_s > 1.0


def test_without_a_send_no_rate_wanders() -> None:
    assert wandering_rate(_Sent(np.full(3, np.nan)), Law("exponential", 50.0)) is None  # type: ignore[arg-type]


def test_the_index_of_dispersion_is_the_variance_of_counts_by_their_mean() -> None:
    """5 and 15 arrivals in turns in 20 windows: a variance of 5² · 20/19 and a mean of 10."""
    counts = [5, 15] * 10
    times = np.concatenate([10.0 * window + 10.0 * (np.arange(count) + 0.5) / count for window, count in enumerate(counts)])
    times[[0, -1]] = 0.0, 200.0
    assert index_of_dispersion(times) == pytest.approx(25 * 20 / 19 / 10)


def test_times_of_a_rising_rate_are_those_of_a_process_at_the_full_rate() -> None:
    """Within a ramp of 2 s a quarter of t²; from then on a second less."""
    times_ns = np.array([0.0, 1e9, 2e9, 3e9, 10e9])
    assert at_even_rate_ns(times_ns, 2.0).tolist() == [0.0, 0.25e9, 1e9, 2e9, 9e9]
    assert at_even_rate_ns(times_ns, 0.0).tolist() == times_ns.tolist()


def test_gaps_are_those_before_the_wait_at_the_ceiling() -> None:
    law = Law("constant", 100.0)
    due_ns, waits_ns = np.arange(30) * 10_000_000, np.where(np.arange(30) % 3, 0, 7_000_000)
    assert check_arrivals(_Sent(due_ns + waits_ns, waits_ns), law) == ArrivalTest(law, 29, 0.0, None, False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (Law("exponential", 50.0), 1.0),
        (Law("gamma", 50.0, 0.25), 4.0),
        (Law("weibull", 50.0, 1.0), 1.0),
        (Law("weibull", 50.0, 0.5), 5.0),  # Γ(5) / Γ(3)² - 1
    ],
)
def test_squared_variation_of_the_gaps_of_each_law(law: Law, expected: float) -> None:
    assert squared_variation(law) == pytest.approx(expected)
