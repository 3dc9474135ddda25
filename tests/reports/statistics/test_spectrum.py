"""The error of a mean by its lowest frequencies: laws, and spectra of which the error is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.statistics.spectrum import MOST_ORDINATES, error_of_mean

_MANY, _FEW = 10_000.0, 100.0


def _chi_squared(seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.random.default_rng(seed).chisquare(1.0, MOST_ORDINATES)


def test_a_flat_spectrum_has_about_its_own_variance() -> None:
    variances = [error_of_mean(_chi_squared(seed), _MANY).variance for seed in range(100)]
    assert 1.0 < np.median(variances) < 2.0  # and some allowance for slow changes


@given(st.integers(0, 10_000), st.floats(1e-6, 1e6))
def test_the_variance_is_in_the_units_of_the_ordinates(seed: int, factor: float) -> None:
    plain, scaled = error_of_mean(_chi_squared(seed), _MANY), error_of_mean(factor * _chi_squared(seed), _MANY)
    assert scaled.variance == pytest.approx(factor * plain.variance, rel=1e-4)
    assert scaled.degrees == plain.degrees


def test_a_spectrum_that_still_rises_has_a_larger_variance_than_any_average_of_it() -> None:
    """A first-order autoregression over one correlation time: its ordinates fall with the square of the frequency."""
    frequencies = np.pi * np.arange(1, MOST_ORDINATES + 1)
    rising = 1.0 + 100.0 / (1.0 + frequencies**2)
    assert error_of_mean(rising, _FEW).variance > 2.0 * rising[:8].mean()


def test_series_with_more_information_have_more_ordinates() -> None:
    degrees = [error_of_mean(_chi_squared(1), independent).degrees for independent in (10.0, 400.0, 1_000.0)]
    assert degrees == [16, 24, MOST_ORDINATES]


def test_one_large_lowest_ordinate_raises_the_variance_more_than_a_large_high_one() -> None:
    low, high = np.ones(MOST_ORDINATES), np.ones(MOST_ORDINATES)
    low[0], high[-1] = 20.0, 20.0
    assert error_of_mean(low, _MANY).variance > 1.5 * error_of_mean(high, _MANY).variance
