"""Requests drawn from client profiles have the profile's rates, gaps and lengths."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.arrivals.client_profiles import (
    ClientProfile,
    GapFamily,
    LengthDistribution,
    LengthWindow,
    RateWindow,
    profile_workload,
)
from workloads.elements.errors import WorkloadError


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


def test_a_gap_goes_on_from_one_window_into_the_next() -> None:
    windows = [RateWindow(10.0 * k, 10.0 * k + 10, 1 / 7, GapFamily.GAMMA, 1e6) for k in range(70)]
    gaps = np.diff(_arrival_s(_profile(*windows), duration_s=700.0))
    assert gaps == pytest.approx(np.full(gaps.size, 7.0), rel=0.01)
    assert gaps.size >= 98


def test_windows_outside_the_span_and_without_traffic_change_nothing() -> None:
    inside = RateWindow(1_000, 2_000, 5.0, GapFamily.WEIBULL, 0.7)
    before = [RateWindow(0, 500, 1e9, GapFamily.GAMMA, 2.0), RateWindow(500, 1_000, 3.0, GapFamily.GAMMA, 0.5)]
    behind = [RateWindow(2_000, 3_000, 1e9, GapFamily.GAMMA, 2.0)]
    quiet = RateWindow(0, 1_500, 0.0, GapFamily.GAMMA, 2.0)
    alone = profile_workload([_profile(inside)], "p", 0, 900.0, 1_000.0)
    assert len(alone) == pytest.approx(4_500, rel=0.1)
    assert profile_workload([_profile(*before, inside, *behind)], "p", 0, 900.0, 1_000.0).digest == alone.digest
    assert profile_workload([_profile(quiet, inside)], "p", 0, 900.0, 1_000.0).digest == alone.digest


@pytest.mark.parametrize(("family", "shape"), [(GapFamily.GAMMA, 4.0), (GapFamily.WEIBULL, 0.5)])
def test_the_first_moments_have_as_many_arrivals_as_any(family: GapFamily, shape: float) -> None:
    # a process that began with a whole gap, or with an arrival, would have fewer or more
    clients = [_profile(RateWindow(0, 600, 0.1, family, shape), name=str(k)) for k in range(4_000)]
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


def test_lengths_have_the_probabilities_of_their_distribution() -> None:
    inputs = LengthDistribution(np.array([10, 20, 30]), np.array([0.7, 0.2, 0.1]))
    profile = _profile(RateWindow(0, 1_000, 5.0, GapFamily.GAMMA, 1.0), lengths=(LengthWindow(0.0, inputs, _lengths(7)),))
    drawn = profile_workload([profile], "p", 0, 1_000).table["input_tokens"].to_numpy()
    assert [(drawn == tokens).mean() for tokens in (10, 20, 30)] == pytest.approx([0.7, 0.2, 0.1], abs=0.03)


def _drawn(seed: int, *names: str) -> dict[str, tuple[list[int], list[int]]]:
    """Arrivals in ns and input lengths of equal clients, by their names."""
    rates, lengths = RateWindow(0, 100, 5.0, GapFamily.GAMMA, 1.0), (LengthWindow(0.0, _lengths(*range(1, 9)), _lengths(7)),)
    table = profile_workload([_profile(rates, lengths=lengths, name=name) for name in names], "p", seed, 100.0).table
    of_clients = ((name, table.filter(pc.equal(table["request_class"], name))) for name in names)
    return {name: (rows["arrival_ns"].to_pylist(), rows["input_tokens"].to_pylist()) for name, rows in of_clients}


def test_another_seed_draws_other_arrivals_and_other_lengths() -> None:
    (arrivals, lengths), (other_arrivals, other_lengths) = _drawn(1, "one")["one"], _drawn(2, "one")["one"]
    assert arrivals[:50] != other_arrivals[:50]
    assert lengths[:50] != other_lengths[:50]


def test_clients_of_one_law_draw_other_arrivals_and_other_lengths() -> None:
    drawn = _drawn(1, "one", "other")
    assert np.diff(drawn["one"][0][:50]).tolist() != np.diff(drawn["other"][0][:50]).tolist()
    assert drawn["one"][1][:50] != drawn["other"][1][:50]


def test_a_workload_names_its_source_seed_and_span() -> None:
    workload = profile_workload([_profile(RateWindow(0, 10, 5.0, GapFamily.GAMMA, 1.0))], "profiles", 3, 5.0)
    assert (workload.facts.format, workload.facts.source) == ("servegen", "profiles, seed 3, 5 s from 0 s")


def test_a_seed_keeps_its_meaning() -> None:
    """The first requests of seed 5 are those of the first version, so that a published run can be repeated."""
    rates = [RateWindow(0, 50, 5.0, family, 0.7) for family in (GapFamily.GAMMA, GapFamily.WEIBULL)]
    table = profile_workload([_profile(rate, name=rate.family.value) for rate in rates], "p", 5, 50.0).table
    assert table["arrival_ns"][:4].to_pylist() == [0, 161_841_896, 240_001_784, 1_150_549_185]
    lengths = "".join(str(tokens // 100) for tokens in table["input_tokens"][:16].to_pylist())
    assert lengths == "1333313113131113"


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
    [
        (1e8, 0.0, "p: duration 1e+08 makes 500,000,000 requests, more than 20,000,000"),
        (10.5, 5_000.0, "p: has no request in 10.5 s from 5000 s on; start and duration choose them"),
    ],
)
def test_too_many_requests_or_none_are_refused(duration_s: float, start_s: float, problem: str) -> None:
    profile = _profile(RateWindow(0, 1e9 if duration_s == 1e8 else 1_000, 5.0, GapFamily.GAMMA, 1.0))
    with pytest.raises(WorkloadError) as refused:
        profile_workload([profile], "p", 0, duration_s, start_s)
    assert str(refused.value) == problem


def test_as_many_requests_as_the_limit_are_drawn_and_one_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [_profile(RateWindow(0, 10, 0.5, GapFamily.GAMMA, 1.0), name=str(k)) for k in range(10)]
    monkeypatch.setattr("workloads.arrivals.client_profiles.MOST_REQUESTS", 50)
    assert len(profile_workload(clients, "p", 0, 10.0)) > 0
    monkeypatch.setattr("workloads.arrivals.client_profiles.MOST_REQUESTS", 49)
    with pytest.raises(WorkloadError, match="duration 10 makes 50 requests, more than 49"):
        profile_workload(clients, "p", 0, 10.0)


def test_gaps_of_nearly_nothing_end_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.arrivals.client_profiles.MOST_REQUESTS", 1_000)
    profile = _profile(RateWindow(0, 10, 10.0, GapFamily.GAMMA, 1e-6))
    with pytest.raises(WorkloadError, match=r"^a client's gaps of shape 1e-06 make a burst of more than 1,000 requests$"):
        profile_workload([profile], "p", 0, 10.0)
