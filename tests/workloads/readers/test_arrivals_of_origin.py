"""The grid to which an origin rounded its arrivals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.readers.arrivals_of_origin import find_tick_ns, order_of_arrival

_MS = 1_000_000


def _poisson(mean_ms: float, count: int = 5_000) -> np.ndarray:
    return np.cumsum(np.random.default_rng(1).exponential(mean_ms * _MS, count)).astype(np.int64)


@pytest.mark.parametrize("tick_ms", [10, 100, 1_000, 3_000])
def test_a_coarse_grid_is_found(tick_ms: int) -> None:
    tick = tick_ms * _MS
    assert find_tick_ns(_poisson(tick_ms / 4) // tick * tick) == tick


def test_a_grid_that_is_off_by_a_millisecond_is_found() -> None:
    off = np.random.default_rng(2).integers(-1, 2, 5_000)
    instants = _poisson(300) // (3_000 * _MS) * 3_000
    jitter = off[(instants // 3_000) % off.size]  # the same for all requests of an instant
    assert find_tick_ns((instants + jitter) * _MS) == 3_000 * _MS


@pytest.mark.parametrize("mean_ms", [1, 5, 50, 500])
def test_times_in_milliseconds_or_finer_are_no_grid(mean_ms: float) -> None:
    assert find_tick_ns(_poisson(mean_ms)) is None
    assert find_tick_ns(_poisson(mean_ms) // _MS * _MS) is None


def test_a_constant_rate_is_no_grid() -> None:
    assert find_tick_ns(np.arange(1_000) * 100 * _MS) is None


def test_few_requests_show_no_grid() -> None:
    assert find_tick_ns(np.array([0, 0, 10**9])) is None
    assert find_tick_ns(np.zeros(50, np.int64)) is None
    assert find_tick_ns(np.zeros(0, np.int64)) is None


@given(st.lists(st.integers(0, 20), max_size=30))
def test_the_order_of_arrival_is_stable(arrivals: list[int]) -> None:
    times = np.array(arrivals, np.int64)
    order = order_of_arrival(times)
    expected = sorted(range(len(arrivals)), key=lambda place: arrivals[place])
    assert (list(range(len(arrivals))) if order is None else order.tolist()) == expected
