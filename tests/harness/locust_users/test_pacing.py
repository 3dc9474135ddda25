"""Planned starts of a user's requests keep their law; users follow a rate."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.locust_users.pacing import planned_starts_s, users_at
from workloads.arrivals.law import CONSTANT, EXPONENTIAL, ArrivalLaw, parse_law
from workloads.arrivals.rate_profile import parse_profile


def _gaps_s(law: ArrivalLaw, gap_s: float, user: int = 0) -> np.ndarray:
    return np.diff(list(islice(planned_starts_s(law, gap_s, 7, user), 1001)))


def test_gaps_have_the_law_also_where_one_block_of_them_ends() -> None:
    assert _gaps_s(CONSTANT, 0.5) == pytest.approx(np.full(1000, 0.5))
    assert stats.kstest(_gaps_s(EXPONENTIAL, 2.0), "expon", args=(0, 2.0)).pvalue > 0.01
    gamma = _gaps_s(parse_law("gamma:shape=4"), 2.0)
    assert stats.kstest(gamma, "gamma", args=(4, 0, 0.5)).pvalue > 0.01


def test_users_are_independent_and_start_apart() -> None:
    firsts = [next(planned_starts_s(CONSTANT, 2.0, 7, user)) for user in range(200)]
    assert stats.kstest(firsts, "uniform", args=(0, 2.0)).pvalue > 0.01
    assert abs(np.corrcoef(_gaps_s(EXPONENTIAL, 1.0, 0), _gaps_s(EXPONENTIAL, 1.0, 1))[0, 1]) < 0.1


@given(st.floats(0.0, 12.0), st.floats(0.1, 100.0))
def test_users_are_the_rate_times_their_seconds_and_none_only_without_a_rate(at_s: float, gap_s: float) -> None:
    profile = parse_profile("stages:5/s*5s,0/s*2s,40/s*5s")
    expected = profile.rate_at(at_s) * gap_s
    users = users_at(profile, at_s, gap_s)
    assert (users == 0) == (expected == 0)
    assert users == 1 or abs(users - expected) <= 0.5
