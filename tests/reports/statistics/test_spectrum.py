"""The error of a mean by its lowest frequencies: laws, and spectra of which the error is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import t as student_t

from reports.statistics.spectrum import MOST_ORDINATES, error_of_mean

_MANY, _FEW = 10_000.0, 100.0


def _chi_squared(seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.random.default_rng(seed).chisquare(1.0, MOST_ORDINATES)


def test_a_flat_spectrum_has_about_its_own_variance() -> None:
    variances = [error_of_mean(_chi_squared(seed), _MANY).variance for seed in range(100)]
    assert 1.0 < np.median(variances) < 2.0  # and some allowance for slow changes


@given(st.integers(0, 10_000), st.floats(1e-6, 1e6))
@example(0, 1e-24)  # of values that alternate
@example(0, 1e24)
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


def _by_definition(ordinates: np.ndarray[tuple[int, ...], np.dtype[np.float64]], count: int) -> float:
    """The variance by the model of the module's docstring, shape for shape, with scipy's own root and distribution.

    White noise with probability 0.35, else an autoregression over 0.7 to 144 correlation times (12 of them) whose spectrum at
    frequency 0 is 0.2 to 10,000 times that of the noise (14 of them), all as likely; shapes of less than 1e-4 of the weight
    are left out.
    """
    used = [float(ordinate) for ordinate in ordinates[:count]]
    shapes = [(0.35, [1.0] * count, 1.0)]
    for length in (0.7 * (144.0 / 0.7) ** (step / 11) for step in range(12)):
        for strength in (0.2 * (1e4 / 0.2) ** (step / 13) for step in range(14)):
            spectrum = [1.0 + strength / (1.0 + (math.pi * k / length) ** 2) for k in range(1, count + 1)]
            of_mean = 1.0 + strength * (1.0 - (1.0 - math.exp(-length)) / length)
            shapes.append((0.65 / 168, spectrum, of_mean))
    weights, scales = [], []
    for prior, spectrum, of_mean in shapes:
        level = sum(power / height for power, height in zip(used, spectrum, strict=True)) / count
        likelihood = math.prod(height**-0.5 for height in spectrum) * level ** (-count / 2)
        weights.append(prior * likelihood)
        scales.append(math.sqrt(level * of_mean))
    kept = [(w, s) for w, s in zip(weights, scales, strict=True) if w > 1e-4 * sum(weights)]
    total = sum(weight for weight, _ in kept)

    def outside(half: float) -> float:
        return sum(weight / total * 2.0 * float(student_t.sf(half / scale, count)) for weight, scale in kept)

    largest = max(scale for _, scale in kept)
    half = float(brentq(lambda width: outside(width) - 0.10, 1e-6 * largest, 1e3 * largest, xtol=1e-12, rtol=1e-12))
    return (half / float(student_t.ppf(0.95, count))) ** 2


_LOW_PEAK = np.r_[30.0, 12.0, np.ones(MOST_ORDINATES - 2)]
_SPECTRA = {
    "flat": np.ones(MOST_ORDINATES),
    "one low peak": _LOW_PEAK,
    "rising to frequency 0": 1.0 + 200.0 / np.arange(1, MOST_ORDINATES + 1) ** 2,
    "steep, in another unit": 1e-3 / np.arange(1, MOST_ORDINATES + 1) ** 4,
    "by chance": np.random.default_rng(3).chisquare(1.0, MOST_ORDINATES),
}


@pytest.mark.parametrize(("independent", "count"), [(100.0, 16), (400.0, 24), (10_000.0, 32)])
@pytest.mark.parametrize("spectrum", _SPECTRA)
def test_the_variance_is_that_of_the_model(spectrum: str, independent: float, count: int) -> None:
    error = error_of_mean(_SPECTRA[spectrum], independent)
    assert error.degrees == count
    assert error.variance == pytest.approx(_by_definition(_SPECTRA[spectrum], count), rel=1e-6)


@pytest.mark.parametrize(("independent", "degrees"), [(359.9, 16), (360.0, 24), (479.9, 24), (480.0, 32)])
def test_there_are_fifteen_independent_values_to_an_ordinate(independent: float, degrees: int) -> None:
    assert error_of_mean(np.ones(MOST_ORDINATES), independent).degrees == degrees
