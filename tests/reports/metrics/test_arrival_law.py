"""Arrivals against the law that was asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reports.metrics.arrival_law import check_arrivals, index_of_dispersion, wandering_rate
from reports.metrics.configuration import Law, configured_law
from workloads.arrivals import Arrivals, Constant, Exponential, Gamma, RampedUp

_LAWS: list[tuple[Arrivals, Law]] = [
    (Exponential(50.0), Law("exponential", 50.0)),
    (Gamma(50.0, 0.3), Law("gamma", 50.0, 0.3)),
    (Gamma(50.0, 5.0), Law("gamma", 50.0, 5.0)),
    (Constant(50.0), Law("constant", 50.0)),
]


class _Sent:
    """As much of Requests as the test looks at."""

    def __init__(self, sent_ns: NDArray[Any], ceiling_wait_ns: NDArray[Any] | float = 0.0) -> None:
        self.sent_ns = sent_ns.astype(np.float64)
        self.ceiling_wait_ns = np.zeros_like(self.sent_ns) + ceiling_wait_ns


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


def test_few_gaps_prove_nothing() -> None:
    assert check_arrivals(_Sent(np.arange(20) * 1_000), Law("exponential", 50.0)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "law"),
    [
        ({"request_rate": 10.0, "time_delay_dist": "exponential_dist"}, Law("exponential", 10.0)),
        ({"request_rate": 10, "time_delay_dist": "constant"}, Law("constant", 10.0)),
        ({"request_rate": 10.0, "time_delay_dist": "gamma_dist", "burstiness": 0.5}, Law("gamma", 10.0, 0.5)),
        ({"request_rate": 10.0, "time_delay_dist": "gamma_dist", "burstiness": None}, Law("gamma", 10.0, 1.0)),
        ({"request_rate": -1.0, "time_delay_dist": "exponential_dist"}, None),
        ({"request_rate": 10.0, "time_delay_dist": "of another version"}, None),
        ({}, None),
        ([1, 2], None),
    ],
)
def test_the_law_is_the_one_that_the_options_ask_for(options: Any, law: Law | None) -> None:
    assert configured_law({"options": options}) == law


def test_the_load_decides_whether_there_is_a_law_and_how_long_its_rate_rises() -> None:
    options = {"request_rate": 10.0, "time_delay_dist": "exponential_dist"}
    assert configured_law({"options": options, "load": {"mode": "closed", "concurrency": 8}}) is None
    rising = {"options": options, "load": {"mode": "open", "ramp_up_s": 5.0}}
    assert configured_law(rising) == Law("exponential", 10.0, ramp_up_s=5.0)


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
