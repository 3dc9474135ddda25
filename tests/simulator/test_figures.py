"""Ranges of predicted figures, against the law that they are drawn from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.figures import ranges_of
from simulator.latencies import THROUGHPUT

_OWN = {("ttft", "p99"): 100.0, ("e2e", "p50"): 900.0, (THROUGHPUT, "mean"): 30.0}


def test_a_range_holds_nine_in_ten_of_what_the_error_of_the_fit_makes() -> None:
    held_out = {"ttft": 0.2, "e2e": 0.03}
    ranges = ranges_of(_OWN, [], held_out, waits=False)
    low, high = ranges["ttft", "p99"]
    truths = 100.0 * np.exp(0.2 * np.random.default_rng(1).standard_normal(20_000))
    assert ((low <= truths) & (truths <= high)).mean() == pytest.approx(0.9, abs=0.03)
    assert ranges[THROUGHPUT, "mean"] == (30.0, 30.0)  # arrivals decide it
    waiting = ranges_of(_OWN, [], held_out, waits=True)
    assert waiting[THROUGHPUT, "mean"][1] == pytest.approx(30.0 * ranges["e2e", "p50"][1] / 900.0)


@given(st.lists(st.floats(50, 200), max_size=20), st.floats(0, 0.5))
def test_a_range_holds_the_own_figure_and_no_more_than_the_draws_where_there_is_no_error(
    drawn: list[float], error: float
) -> None:
    figures = [{("ttft", "p99"): value} for value in drawn]
    low, high = ranges_of({("ttft", "p99"): 100.0}, figures, {"ttft": error}, waits=False)["ttft", "p99"]
    assert low <= 100.0 <= high
    if not error:
        assert min([100.0, *drawn]) - 1e-9 <= low <= high <= max([100.0, *drawn]) + 1e-9


def test_what_is_not_known_has_no_range() -> None:
    assert ranges_of({("tpot", "p50"): float("nan")}, [], {}, waits=False) == {}
    for other in ({("ttft", "p99"): float("inf")}, {}):  # among failed requests, and where nothing was answered
        assert ranges_of({("ttft", "p99"): 100.0}, [{("ttft", "p99"): 90.0}, other], {"ttft": 0.1}, waits=False) == {}
