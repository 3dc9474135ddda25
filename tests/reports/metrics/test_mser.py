"""MSER-5 against its definition, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.metrics.mser import mser5


def _steps(*batches: float, extra: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Five equal values for each batch, and a few more that fill no batch."""
    return np.concatenate([np.repeat(np.array(batches, dtype=float), 5), np.full(extra, 1e9)])


@pytest.mark.parametrize(
    ("ramp", "cut"),
    [
        ([], 0),
        ([9], 5),
        ([9, 7], 10),
        ([9, 7, 5], 15),
        ([9, 7, 5, 3], None),  # four of ten batches: half of them but one
        ([9, 7, 5, 3, 2], None),
        ([9, 7, 5, 3, 2, 1.5], None),
    ],
)
@pytest.mark.parametrize("extra", [0, 3])
def test_all_that_comes_before_an_even_rest_is_left_out(ramp: list[float], cut: int | None, extra: int) -> None:
    assert mser5(_steps(*ramp, *[1] * (10 - len(ramp)), extra=extra)) == cut


def test_batches_count_and_not_their_values() -> None:
    """0 and 10 in turns make batches of 4 and 6 in turns; a batch of 20 is the outlier."""
    series = np.tile([0.0, 10.0], 50)
    series[:5] = 20.0
    assert mser5(series) == 5


def test_a_peak_after_the_middle_is_no_ramp() -> None:
    assert mser5(_steps(*[1] * 6, 9, *[1] * 5)) == 0


def test_of_eleven_batches_half_but_one_are_four() -> None:
    assert mser5(_steps(9, 7, 5, *[1] * 8)) == 15
    assert mser5(_steps(9, 7, 5, 3, *[1] * 7)) is None


@pytest.mark.parametrize("level", [100_000, -100_000])
def test_a_small_ramp_is_found_on_a_high_level(level: int) -> None:
    assert mser5(level + _steps(0.5, *[0] * 9)) == 5


@given(st.lists(st.integers(0, 20), min_size=10, max_size=30))
def test_the_cut_makes_the_rest_s_standard_error_smallest(batches: list[int]) -> None:
    m = len(batches)
    errors = []
    for left_out in range(m // 2 + 1):
        rest = np.array(batches[left_out:], dtype=float)
        errors.append(float(((rest - rest.mean()) ** 2).sum()) / rest.size**2)
    smallest = next(d for d, error in enumerate(errors) if error <= min(errors) + 1e-9)
    assert mser5(_steps(*batches)) == (None if smallest >= m // 2 - 1 else 5 * smallest)


def test_rounding_on_a_high_level_is_no_ramp() -> None:
    """Values that differ in their last digit only: a part's error is smaller than the whole's by chance."""
    level = 1e6 + np.random.default_rng(0).integers(-3, 4, 100) * 1e-10
    assert mser5(level) == 0
