"""Requests drawn from client profiles have the profile's rates, gaps and lengths."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.client_profiles import (
    ClientProfile,
    GapFamily,
    LengthDistribution,
    LengthWindow,
    RateWindow,
    profile_workload,
)
from workloads.errors import WorkloadError


def _lengths(*tokens: int) -> LengthDistribution:
    return LengthDistribution(np.array(tokens), np.full(len(tokens), 1 / len(tokens)))


def _profile(*rates: RateWindow, lengths: tuple[LengthWindow, ...] | None = None, name: str = "chunk-0") -> ClientProfile:
    return ClientProfile(name, rates, lengths or (LengthWindow(0.0, _lengths(100, 300), _lengths(7)),))


def _arrival_s(*profiles: ClientProfile, duration_s: float, seed: int = 0, start_s: float = 0.0) -> np.ndarray:
    return profile_workload(profiles, "p", seed, duration_s, start_s).table["arrival_ns"].to_numpy() / 1e9


@pytest.mark.parametrize(
    ("family", "shape", "cv"),
    [
        (GapFamily.GAMMA, 4.0, 0.5),
        (GapFamily.GAMMA, 0.25, 2.0),
        (GapFamily.WEIBULL, 0.5, 5**0.5),
        (GapFamily.WEIBULL, 1.0, 1.0),
    ],
)
def test_gaps_have_the_mean_of_the_rate_and_the_cv_of_the_shape(family: GapFamily, shape: float, cv: float) -> None:
    gaps = np.diff(_arrival_s(_profile(RateWindow(0, 20_000, 10.0, family, shape)), duration_s=20_000))
    assert gaps.mean() == pytest.approx(0.1, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.06)


def test_each_window_has_its_own_rate_and_one_without_traffic_has_none() -> None:
    rates = [(0, 5.0), (1_000, 0.0), (2_000, 50.0)]
    windows = [RateWindow(start, start + 1_000, rate, GapFamily.GAMMA, 1.0) for start, rate in rates]
    arrivals = _arrival_s(_profile(*windows), duration_s=3_000)
    counts = np.histogram(arrivals, [0, 1_000, 1_990, 3_000])[0]
    assert counts.tolist() == [pytest.approx(5_000, rel=0.05), 0, pytest.approx(50_000, rel=0.02)]


def test_windows_shorter_than_a_gap_keep_the_rate() -> None:
    windows = [RateWindow(10.0 * k, 10.0 * k + 10, 0.05, GapFamily.GAMMA, 2.0) for k in range(20_000)]
    assert _arrival_s(_profile(*windows), duration_s=200_000).size == pytest.approx(10_000, rel=0.03)


@pytest.mark.parametrize("family", GapFamily)
def test_the_first_moments_have_as_many_arrivals_as_any(family: GapFamily) -> None:
    # a process that began with a whole gap, or with an arrival, would have fewer or more
    clients = [_profile(RateWindow(0, 600, 0.1, family, 0.5), name=str(k)) for k in range(4_000)]
    workload = profile_workload(clients, "p", 1, 2.0)
    assert len(workload) == pytest.approx(4_000 * 0.1 * 2.0, rel=0.12)


def test_lengths_are_those_of_the_window_of_the_arrival() -> None:
    windows = (LengthWindow(0, _lengths(100, 300), _lengths(7)), LengthWindow(500, _lengths(9), _lengths(8)))
    profile = _profile(RateWindow(0, 1_000, 5.0, GapFamily.GAMMA, 1.0), lengths=windows)
    table = profile_workload([profile], "p", 0, 1_000).table
    is_late = table["arrival_ns"].to_numpy() >= 501 * 10**9
    inputs = table["input_tokens"].to_numpy()
    assert set(inputs[is_late].tolist()) == {9}
    early = inputs[table["arrival_ns"].to_numpy() < 499 * 10**9]
    assert (early == 100).mean() == pytest.approx(0.5, abs=0.05)
    assert set(early.tolist()) == {100, 300}
    assert set(table["output_tokens"].to_pylist()) == {7, 8}


@given(seed=st.integers(0, 2**32), start=st.floats(0, 1_500))
def test_the_same_seed_draws_the_same_requests(seed: int, start: float) -> None:
    clients = [_profile(RateWindow(0, 2_000, rate, GapFamily.WEIBULL, 0.7), name=f"c{rate}") for rate in (0.5, 2.0)]
    first, again = (profile_workload(clients, "p", seed, 100.0, start) for _ in range(2))
    assert first.digest == again.digest
    arrivals = first.table["arrival_ns"].to_numpy()
    assert arrivals[0] == 0
    assert (np.diff(arrivals) >= 0).all()
    assert arrivals[-1] < 100 * 10**9


def test_a_client_does_not_change_the_requests_of_another() -> None:
    one, other = (_profile(RateWindow(0, 100, 5.0, GapFamily.GAMMA, 1.0), name=name) for name in ("one", "other"))
    alone = profile_workload([one], "p", 0, 100.0)
    both = profile_workload([one, other], "p", 0, 100.0).table
    kept = both.filter(pc.equal(both["request_class"], "one"))
    assert kept["input_tokens"].to_pylist() == alone.table["input_tokens"].to_pylist()


@pytest.mark.parametrize(
    ("duration_s", "start_s", "problem"),
    [(1e8, 0.0, "makes .* requests"), (10.0, 5_000.0, "has no request in 10 s from 5000 s")],
)
def test_too_many_requests_or_none_are_refused(duration_s: float, start_s: float, problem: str) -> None:
    profile = _profile(RateWindow(0, 1e9 if duration_s == 1e8 else 1_000, 5.0, GapFamily.GAMMA, 1.0))
    with pytest.raises(WorkloadError, match=problem):
        profile_workload([profile], "p", 0, duration_s, start_s)
