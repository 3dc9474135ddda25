"""The search for a number of replicas, over draws that are known."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.sizing import confidence, draws_needed, highest_factor, size

_MOST = 50


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.sampled_from([0.8, 0.9, 0.95]))
def test_the_smallest_numbers_are_those_of_a_search_through_all(least: list[int], required: float) -> None:
    asked: list[tuple[int, int]] = []

    def holds(replicas: int, draw: int) -> bool:
        asked.append((replicas, draw))
        return replicas >= least[draw]

    found = size(holds, len(least), _MOST, required)
    assert found.least == tuple(each if each <= _MOST else None for each in least)
    held = [sum(each <= number for each in least) for number in range(1, _MOST + 1)]
    sure = [number for number, count in enumerate(held, start=1) if confidence(count, len(least)) >= required]
    left = 1 - Fraction(str(required))  # by the confidence
    open_ = [number for number, count in enumerate(held, start=1) if Fraction(count + 1, len(least) + 2) > left]
    assert found.replicas == (sure[0] if sure else None)
    assert found.lowest == (open_[0] if open_ else _MOST)
    assert len(asked) <= 15 * len(least)


@pytest.mark.parametrize(("required", "draws"), [(0.8, 3), (0.9, 8), (0.95, 18), (0.99, 98)])
def test_as_many_draws_exclude_a_number_as_certify_one(required: float, draws: int) -> None:
    assert draws_needed(required) == draws
    found = size(lambda replicas, draw: replicas >= 3, draws, _MOST, required)
    assert (found.replicas, found.lowest) == (3, 3)


def test_a_number_counts_by_the_draws_that_it_holds_in_itself() -> None:
    """Two hold in 30 of 40 draws, and three in the other ten, and in all but two of the 30: by the smallest numbers that hold,
    three would do in all.
    """

    def holds(replicas: int, draw: int) -> bool:
        return replicas >= 4 or (replicas == 3 and draw > 1) or (replicas == 2 and draw < 30)

    found = size(holds, 40, _MOST, 0.95)
    assert found.held(3) == 40
    assert confidence(38, 40) < 0.95
    assert (found.replicas, found.lowest) == (4, 2)


def test_a_confidence_needs_so_many_draws() -> None:
    assert draws_needed(0.95) == 18
    assert confidence(40, 40) > 0.95 > confidence(38, 40)


@given(st.floats(0.3, 4.0))
def test_the_highest_factor_is_within_its_ratio(true: float) -> None:
    found = highest_factor(lambda factor: factor <= true, 0.5, 3.0, 1.02)
    assert found <= max(true, 0.5)
    assert found >= min(true, 3.0) / 1.02
