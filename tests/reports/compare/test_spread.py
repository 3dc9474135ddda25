"""Errors of differences: exact cases of means and of quantiles, and what both can and cannot show."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reports.compare.spread import Evidence, QuantileSpread, Spread, common_threshold, detectable_errors

T_975, T_80 = 2.228138852, 0.879057828  # Student's t with 10 degrees of freedom


def _quantile_spread(
    q: float = 0.5, *, excess: float = 0.0, expected: float = 0.0, share_error: float = 0.05
) -> QuantileSpread:
    """A has 10 values, r of rank r, and B 30, 2 r + 1/2. The medians have the ranks 5 and 15, and the ranks at which a share e
    is taken off the excess are 5 + 7.5 e and 15 − 7.5 e: so the change is then 25.5 − 22.5 e.
    """
    a, b = np.arange(1.0, 11.0), 2.0 * np.arange(1.0, 31.0) + 0.5
    return QuantileSpread(q, a, b, excess, expected, share_error, 10.0, Evidence.REQUESTS)


def _bent(*, bent_a: bool) -> QuantileSpread:
    """One side is constant, and the other rises by 1 a rank up to its median, and by 3 a rank from there on."""
    ranks = np.arange(1.0, 11.0)
    rising, constant = np.where(ranks <= 5, ranks, 3.0 * ranks - 10.0), np.zeros(10)
    sides = (rising, constant) if bent_a else (constant, rising)
    return QuantileSpread(0.5, *sides, 0.0, 0.0, 0.04, 10.0, Evidence.REQUESTS)


# ---- means


def test_a_difference_of_two_errors_has_the_p_value_of_students_t() -> None:
    from scipy.stats import t

    spread = Spread(-0.1, 0.05, 10.0, Evidence.RUNS)
    assert spread.p_value == pytest.approx(2.0 * t.sf(2.0, 10))


def test_the_interval_of_a_difference_is_students() -> None:
    low, high = Spread(0.1, 0.05, 10.0, Evidence.RUNS).interval(0.95)
    assert (low, high) == pytest.approx((0.1 - 0.05 * T_975, 0.1 + 0.05 * T_975))


def test_the_smallest_difference_that_is_shown_in_four_of_five_cases() -> None:
    assert detectable_errors(0.05, 10.0) == pytest.approx(T_975 + T_80)
    assert Spread(0.1, 0.05, 10.0, Evidence.RUNS).smallest_shown(0.05) == pytest.approx(0.05 * (T_975 + T_80))


@pytest.mark.parametrize(("estimate", "p_value"), [(0.0, 1.0), (0.001, 0.0), (-0.001, 0.0)])
def test_without_an_error_any_difference_is_certain(estimate: float, p_value: float) -> None:
    assert Spread(estimate, 0.0, 2.0, Evidence.RUNS).p_value == p_value


@pytest.mark.parametrize(
    ("evidence", "single"),
    [
        (Evidence.REQUESTS, True),
        (Evidence.REQUEST_PAIRS, True),
        (Evidence.RUNS, False),
        (Evidence.RUN_PAIRS, False),
    ],
)
def test_evidence_within_runs_is_of_single_starts(evidence: Evidence, single: bool) -> None:
    assert evidence.single_starts is single


# ---- quantiles


@pytest.mark.parametrize(("expected", "change"), [(0.0, 25.5), (0.1, 23.25), (-0.2, 30.0)])
def test_what_lengths_explain_of_an_excess_is_taken_off_the_change(expected: float, change: float) -> None:
    assert _quantile_spread(excess=0.3, expected=expected).estimate == pytest.approx(change)


def test_the_interval_of_a_quantile_holds_the_changes_that_the_test_does_not_reject() -> None:
    spread = _quantile_spread(expected=0.1)
    half = 22.5 * 0.05 * T_975
    assert spread.interval(0.95) == pytest.approx((23.25 - half, 23.25 + half))
    assert spread.error == pytest.approx(22.5 * 0.05)


def test_a_quantiles_p_value_is_that_of_the_excess_without_what_lengths_explain() -> None:
    from scipy.stats import t

    assert _quantile_spread(excess=0.2, expected=0.1).p_value == pytest.approx(2.0 * t.sf(2.0, 10))
    assert _quantile_spread(excess=0.1, expected=0.1, share_error=0.0).p_value == 1.0


def test_the_smallest_change_of_a_quantile_that_is_shown() -> None:
    assert _quantile_spread(expected=0.1).smallest_shown(0.05) == pytest.approx(22.5 * 0.05 * (T_975 + T_80))


@pytest.mark.parametrize("bent_a", [True, False])
def test_the_side_of_a_quantile_that_needs_the_larger_change_counts(bent_a: bool) -> None:
    """Half of the excess is moved on each side, of 10 values, and the larger change lies beyond the median: 3 a rank."""
    shown = _bent(bent_a=bent_a).smallest_shown(0.05)
    assert shown == pytest.approx(3.0 * 10 / 2 * 0.04 * (T_975 + T_80))


def _share_taken_off(q: float, share: float) -> float:
    """The change of ten values 1 to 10 against ten values 101 to 110, when ``share`` is taken off the excess."""
    a = np.arange(1.0, 11.0)
    return QuantileSpread(q, a, a + 100.0, 0.0, share, 0.05, 10.0, Evidence.REQUESTS).estimate


@pytest.mark.parametrize(
    ("q", "share", "change"),
    [
        (0.5, -0.8, 108.0),  # the ranks 1 and 9
        (0.5, 0.8, 92.0),  # the ranks 9 and 1
        (0.9, 0.2, 98.0),  # the ranks 10 and 8
        (0.9, -0.2, 102.0),  # the ranks 8 and 10
        (0.5, -0.9, math.inf),  # the ranks 0.5 and 9.5: the largest value of A that is 10 % below is unknown
        (0.5, 0.9, -math.inf),
        (0.9, 0.3, -math.inf),  # the ranks 10.5 and 7.5
        (0.9, -0.3, math.inf),
        (0.5, 1.2, -math.inf),  # beyond both
        (0.5, -1.2, math.inf),
    ],
)
def test_the_change_is_known_up_to_the_smallest_and_largest_values(q: float, share: float, change: float) -> None:
    assert _share_taken_off(q, share) == pytest.approx(change)


def test_a_change_between_failures_and_less_than_the_smallest_value_is_infinite() -> None:
    """Among ten values of A four failed: nine tenths taken off make its rank 9.5, a failure's, and that of B 0.5."""
    a, b = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, *[math.inf] * 4]), np.arange(1.0, 11.0)
    assert QuantileSpread(0.5, a, b, 0.0, 0.9, 0.05, 10.0, Evidence.REQUESTS).estimate == -math.inf
    assert QuantileSpread(0.5, b, a, 0.0, -0.9, 0.05, 10.0, Evidence.REQUESTS).estimate == math.inf


def test_an_error_beyond_the_values_is_infinite() -> None:
    spread = _quantile_spread(share_error=0.5)
    assert spread.interval(0.95) == (-math.inf, math.inf)
    assert spread.error == math.inf
    assert spread.smallest_shown(0.05) == math.inf


def test_the_common_threshold_is_the_nearest_rank_of_both_samples_together() -> None:
    a, b = np.array([1.0, 3.0, 5.0, 7.0]), np.array([2.0, 4.0, 6.0, 8.0, 9.0, 10.0])
    assert [common_threshold(a, b, q) for q in (0.1, 0.5, 0.51, 0.9, 1.0)] == [1.0, 5.0, 6.0, 9.0, 10.0]
