"""Every law of lengths: what it draws has the mean, the deviation and the bounds that it states."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import lognorm, norm, truncnorm, zipfian

from tests.workloads.lengths.strategies import laws, spelled
from workloads.elements.errors import WorkloadError
from workloads.elements.random_streams import Stream
from workloads.elements.request import LONGEST_TOKENS
from workloads.lengths.families import Constant, Lognormal, Normal, Uniform, Zipf
from workloads.lengths.law import Lengths, Side, check
from workloads.lengths.samples import Bucket, Empirical, Histogram, shipped_histogram

_COUNT = 20_000
_SEEDS = st.integers(0, 2**32)


def _drawn(law: Lengths, count: int = _COUNT, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return law.draw(count, seed, Stream.INPUT_LENGTHS)


def _fourth_moment(lengths: np.ndarray[tuple[int], np.dtype[np.int64]], mean: float) -> float:
    return float(((lengths - mean) ** 4).mean())


@given(laws, _SEEDS)
def test_draws_have_the_stated_mean_within_five_standard_errors(law: Lengths, seed: int) -> None:
    """A sound law fails by chance in fewer than one of 10⁶ examples; light tails are assumed by the central limit alone."""
    moments = law.moments()
    assume(not (isinstance(law, Lognormal) and law.stdev > 2 * law.mean))  # tails too heavy for 20,000 draws
    drawn = _drawn(law, seed=seed)
    assert float(drawn.mean()) == pytest.approx(moments.mean, abs=5 * moments.stdev / sqrt(_COUNT) + 1e-6)


@given(laws, _SEEDS)
def test_draws_have_the_stated_deviation_within_six_standard_errors(law: Lengths, seed: int) -> None:
    """The standard error of a variance is √((μ₄ − σ⁴) / n)."""
    moments = law.moments()
    assume(not (isinstance(law, Lognormal) and law.stdev > law.mean))
    assume(not (isinstance(law, Zipf) and law.exponent > 2))  # a few draws in the tail decide
    assume(not moments.stdev or moments.stdev > 0.1)
    drawn = _drawn(law, seed=seed)
    error = sqrt(max(0.0, _fourth_moment(drawn, moments.mean) - moments.stdev**4) / _COUNT)
    assert float(((drawn - moments.mean) ** 2).mean()) == pytest.approx(moments.stdev**2, abs=6 * error + 1e-6)


@given(laws, _SEEDS)
def test_no_length_leaves_the_bounds_and_the_mean_lies_within_them(law: Lengths, seed: int) -> None:
    low, high = law.bounds
    drawn = _drawn(law, 2_000, seed)
    assert 1 <= low <= drawn.min() <= drawn.max() <= high <= LONGEST_TOKENS
    assert low - 1e-6 <= law.moments().mean <= high + 1e-6
    assert drawn.dtype == np.int64
    assert drawn.shape == (2_000,)


@given(laws, _SEEDS, st.integers(0, 200), st.integers(0, 3_000))
def test_fewer_draws_are_the_first_of_more(law: Lengths, seed: int, few: int, more: int) -> None:
    assert _drawn(law, few, seed).tolist() == _drawn(law, few + more, seed)[:few].tolist()


@given(laws, _SEEDS)
def test_a_seed_draws_the_same_and_a_stream_of_its_own(law: Lengths, seed: int) -> None:
    assert _drawn(law, 50, seed).tolist() == _drawn(law, 50, seed).tolist()
    if law.moments().stdev > 20:
        assert _drawn(law, 50, seed).tolist() != law.draw(50, seed, Stream.OUTPUT_LENGTHS).tolist()


# ---- moments against scipy, and by hand


@pytest.mark.parametrize(("mean", "stdev", "low", "high"), [(128, 400, 1, 4096), (128, 40, 10, 400), (500, 300, 400, 450)])
def test_a_truncated_normal_is_the_conditional_one(mean: float, stdev: float, low: int, high: int) -> None:
    reference = truncnorm((low - 1 - mean) / stdev, (high - mean) / stdev, mean, stdev)
    lengths = np.arange(low, high + 1)
    probabilities = np.diff(reference.cdf(lengths), prepend=0.0)  # of ceil(N)
    moments, expected = Normal(mean, stdev, low, high).moments(), float(probabilities @ lengths)
    assert moments.mean == pytest.approx(expected, rel=1e-9)
    assert moments.stdev == pytest.approx(sqrt(float(probabilities @ (lengths - expected) ** 2)), rel=1e-9)
    drawn = _drawn(Normal(mean, stdev, low, high))
    for k in np.linspace(low, high - 1, 5).astype(int):
        assert (drawn <= k).mean() == pytest.approx(reference.cdf(k), abs=0.02)


def _of_lognormal(mean: float, stdev: float, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    """The lengths from ``low`` to ``high``, and the probability that a rounded lognormal is each of them."""
    sigma = sqrt(np.log1p((stdev / mean) ** 2))
    reference = lognorm(sigma, scale=mean / np.exp(sigma**2 / 2))
    lengths = np.arange(low, high + 1)
    return lengths, reference.cdf(lengths + 0.5) - reference.cdf(lengths - 0.5)


@pytest.mark.parametrize(
    ("law", "low", "high"),
    [
        (Lognormal(3, 4, 1, 20), 1, 20),
        (Lognormal(3, 4, 1), 1, 3_000),
        (Lognormal(100, 60, 50), 50, 5_000),
        (Lognormal(512, 300, None, 600), 1, 600),
        (Lognormal(100_000, 1_000_000, None, 20_000), 1, 20_000),
    ],
)
def test_a_truncated_lognormal_is_the_conditional_one(law: Lognormal, low: int, high: int) -> None:
    lengths, probabilities = _of_lognormal(law.mean, law.stdev, low, high)
    probabilities /= probabilities.sum()
    moments, expected = law.moments(), float(probabilities @ lengths)
    assert moments.mean == pytest.approx(expected, rel=1e-6)
    assert moments.stdev == pytest.approx(sqrt(float(probabilities @ (lengths - expected) ** 2)), rel=1e-4)
    assert (_drawn(law) == low).mean() == pytest.approx(probabilities[0], abs=0.02)
    assert _drawn(law).min() >= low


def test_what_a_free_lognormal_draws_below_a_token_is_a_token() -> None:
    law = Lognormal(1, 1)
    lengths, probabilities = _of_lognormal(1, 1, 1, 1_000)
    probabilities[0] += 1 - probabilities.sum()
    assert law.moments().mean == pytest.approx(float(probabilities @ lengths), rel=1e-6)
    assert (_drawn(law) == 1).mean() == pytest.approx(probabilities[0], abs=0.02)


def test_bounds_that_no_draw_reaches_change_no_draw() -> None:
    assert _drawn(Normal(128, 5, 50, 300)).tolist() == _drawn(Normal(128, 5)).tolist()
    assert _drawn(Lognormal(500, 50, 1, 10_000)).tolist() == _drawn(Lognormal(500, 50)).tolist()


def test_what_a_truncated_law_keeps_is_what_the_free_one_drew() -> None:
    free = _drawn(Normal(100, 60, 1, None), 40_000)
    assert _drawn(Normal(100, 60, 50, 120), 5_000).tolist() == free[(free >= 50) & (free <= 120)][:5_000].tolist()
    assert _drawn(Normal(100, 60, 50, 120), 1).size == 1


@pytest.mark.parametrize(
    ("mean", "stdev", "seed", "stream", "lengths"),
    [
        (128, 5, 0, Stream.INPUT_LENGTHS, [126, 127, 123, 130, 121, 124, 117, 128, 129, 122, 132, 126]),
        (20, 2, 7, Stream.OUTPUT_LENGTHS, [17, 21, 23, 18, 20, 21, 17, 21, 20, 17, 19, 23]),
        (1, 100, 3, Stream.INPUT_LENGTHS, [22, 1, 1, 1, 2, 36, 1, 84, 1, 49, 11, 57]),
    ],
)
def test_a_seed_draws_the_lengths_that_it_always_drew(
    mean: float, stdev: float, seed: int, stream: Stream, lengths: list[int]
) -> None:
    assert Normal(mean, stdev).draw(12, seed, stream).tolist() == lengths


@pytest.mark.parametrize(
    ("law", "mean"),
    [
        (Normal(128, 5), 128.5),
        (Normal(20, 2), 20.5),
        (Normal(128, 0), 128),
        (Normal(20.2, 0), 21),
        (Normal(0.4 + 1, 0), 2),
        (Constant(7), 7),
        (Uniform(10, 200), 105),
        (Uniform(5, 5), 5),
    ],
)
def test_rounding_up_is_in_the_mean(law: Lengths, mean: float) -> None:
    assert law.moments().mean == pytest.approx(mean, abs=1e-6)


def test_the_mean_of_a_clamped_normal_is_that_of_a_rectified_one() -> None:
    mean, stdev = 128.0, 400.0
    z = mean / stdev
    rectified = mean * norm.cdf(z) + stdev * norm.pdf(z)
    assert Normal(mean, stdev).moments().mean == pytest.approx(rectified + 0.5, abs=0.2)
    assert Normal(mean, stdev).shift() == pytest.approx(rectified - mean, abs=0.3)


def test_a_lognormal_has_the_mean_and_deviation_of_the_lengths_themselves() -> None:
    moments = Lognormal(512, 300).moments()
    assert (moments.mean, moments.stdev) == (pytest.approx(512, rel=1e-6), pytest.approx(300, rel=1e-5))
    sigma = sqrt(np.log1p((300 / 512) ** 2))
    median = lognorm(sigma, scale=512 / np.exp(sigma**2 / 2)).median()
    assert np.median(_drawn(Lognormal(512, 300))) == pytest.approx(median, rel=0.02)


def test_a_zipf_has_the_probabilities_of_a_bounded_power_law() -> None:
    reference = zipfian(1.2, 4096)
    moments = Zipf(1.2, 1, 4096).moments()
    assert (moments.mean, moments.stdev) == (pytest.approx(reference.mean()), pytest.approx(reference.std()))
    drawn = _drawn(Zipf(1.2, 1, 4096))
    for k in (1, 2, 5, 100):
        assert (drawn <= k).mean() == pytest.approx(reference.cdf(k), abs=0.02)
    assert Zipf(0, 10, 20).moments().mean == pytest.approx(15)
    lengths = np.arange(1_000, 2_001)
    assert Zipf(100, 1_000, 2_000).moments().mean == pytest.approx(np.average(lengths, weights=(lengths / 1_000.0) ** -100))


def test_a_histogram_draws_a_bucket_by_its_count_and_a_length_within_it_uniformly() -> None:
    law = Histogram((Bucket(1, 10, 30), Bucket(500, 500, 0), Bucket(100, 101, 10)), "h")
    assert law.bounds == (1, 101)
    assert law.moments().mean == pytest.approx(0.75 * 5.5 + 0.25 * 100.5)
    drawn = _drawn(law)
    lengths, counts = np.unique(drawn, return_counts=True)
    assert lengths.tolist() == [*range(1, 11), 100, 101]
    assert counts[:10] / _COUNT == pytest.approx(0.075, abs=0.01)
    assert counts[10:] / _COUNT == pytest.approx(0.125, abs=0.012)


def test_upstreams_histogram_has_upstreams_counts() -> None:
    inputs, outputs = (shipped_histogram("example", side) for side in Side)
    assert (sum(bucket.count for bucket in inputs.buckets), sum(bucket.count for bucket in outputs.buckets)) == (885, 742)
    assert (inputs.bounds, outputs.bounds) == ((151, 275), (6, 30))


def test_an_empirical_law_draws_every_length_of_the_file_as_often_as_it_has_it() -> None:
    law = Empirical((3, 3, 3, 9), "f")
    drawn = _drawn(law)
    assert (drawn == 3).mean() == pytest.approx(0.75, abs=0.02)
    assert set(drawn.tolist()) == {3, 9}


def test_moments_of_finite_laws_are_exact() -> None:
    lengths = np.arange(10, 21)
    for law in (Uniform(10, 20), Zipf(0, 10, 20), Histogram((Bucket(10, 20, 7),), "h"), Empirical(tuple(range(10, 21)), "f")):
        moments = law.moments()
        assert (moments.mean, moments.stdev) == (pytest.approx(lengths.mean()), pytest.approx(lengths.std()))


def test_what_lies_beyond_the_longest_counts_as_the_longest() -> None:
    law = Normal(LONGEST_TOKENS, 100_000)
    assert law.moments().mean == pytest.approx(LONGEST_TOKENS - 100_000 / sqrt(2 * np.pi), rel=1e-6)
    half_a_stdev_below = Normal(LONGEST_TOKENS - 50_000, 100_000)  # σ·(φ(1/2) − Φ(−1/2)/2) of the mean lies beyond
    beyond = 100_000 * (norm.pdf(0.5) - norm.cdf(-0.5) / 2)
    assert half_a_stdev_below.moments().mean == pytest.approx(LONGEST_TOKENS - 50_000 - beyond, rel=1e-6)


def test_bounds_may_leave_two_hundredths_of_a_law_but_not_half_a_hundredth() -> None:
    assert Normal(100, 10, 121, None).fault() is None
    assert Normal(100, 10, 127, None).fault() is not None


def test_large_ranges_keep_their_accuracy() -> None:
    assert Normal(1_000_000, 2).moments().stdev == pytest.approx(sqrt(4 + 1 / 12), rel=1e-6)
    even = Normal(2**19 + 0.5, 1e6, 1, 2**20).moments()  # symmetric, and half a token is rounded up
    assert even.mean == pytest.approx(2**19 + 0.5, rel=1e-6)
    moments = Normal(5_000_000, 1_000_000).moments()
    assert moments.mean == pytest.approx(5_000_000.5, rel=1e-6)


def test_no_draw_is_longer_than_the_longest() -> None:
    assert _drawn(Normal(10_000_000, 10_000_000), 1_000).max() == LONGEST_TOKENS
    assert _drawn(Lognormal(9_000_000, 10_000_000), 2_000).max() <= LONGEST_TOKENS


# ---- shift: what bounds do to a mean


@pytest.mark.parametrize(
    "law",
    [Normal(128, 5), Normal(20, 2), Normal(20.3, 1.5), Normal(20.2, 0), Normal(1, 0), Lognormal(512, 300), Constant(3)],
)
def test_a_law_within_its_bounds_is_not_shifted(law: Lengths) -> None:
    assert law.shift() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("law", "is_up"), [(Normal(5, 5), True), (Normal(128, 400, None, 200), False), (Lognormal(512, 300, None, 600), False)]
)
def test_a_cut_law_is_shifted_away_from_the_cut(law: Lengths, is_up: bool) -> None:
    assert (law.shift() > 0) == is_up
    assert abs(law.shift()) > 0.01 * law.asked.mean


# ---- what is out of range


_FAULTS: list[tuple[Lengths, str]] = [
    *((Normal(mean, 1), "mean") for mean in (0, 0.5, -3, float("nan"), float("inf"), float("-inf"), 2**31)),
    *((Normal(5, stdev), "stdev") for stdev in (-1, -0.001, float("nan"), float("inf"), 2**31)),
    (Normal(100, 10, 0, 50), "min"),
    (Normal(100, 10, 60, 50), "min"),
    (Normal(100, 10, 1, LONGEST_TOKENS + 1), "max"),
    (Normal(100, 1, 200, 300), "min"),
    (Normal(100, 0, 101, 300), "min"),
    (Lognormal(0.5, 3), "mean"),
    (Lognormal(5, 0), "stdev"),
    (Lognormal(5, -1), "stdev"),
    (Lognormal(5, 1, 1_000, 2_000), "min"),
    (Uniform(0, 5), "min"),
    (Uniform(6, 5), "min"),
    (Uniform(5, LONGEST_TOKENS + 1), "max"),
    (Zipf(-0.1, 1, 5), "exponent"),
    (Zipf(float("nan"), 1, 5), "exponent"),
    (Zipf(1, 5, 1), "min"),
    (Constant(0), "tokens"),
    (Constant(LONGEST_TOKENS + 1), "tokens"),
    (Histogram((), "h"), "buckets"),
    (Histogram((Bucket(1, 5, 0),), "h"), "buckets"),
    (Histogram((Bucket(0, 5, 1),), "h"), "buckets"),
    (Histogram((Bucket(5, 4, 1),), "h"), "buckets"),
    (Histogram((Bucket(4, 5, -1), Bucket(4, 5, 2)), "h"), "buckets"),
    (Histogram((Bucket(4, 5, 2**53), Bucket(4, 5, 1)), "h"), "buckets"),
    (Empirical((), "f"), "tokens"),
    (Empirical((5, 0), "f"), "tokens"),
]


@pytest.mark.parametrize(("law", "parameter"), _FAULTS)
def test_a_parameter_out_of_range_is_named_with_the_option(law: Lengths, parameter: str) -> None:
    fault = law.fault()
    assert fault is not None
    assert fault.parameter == parameter
    with pytest.raises(WorkloadError, match=r"^isl "):
        check(law, "isl")
    with pytest.raises(WorkloadError, match=r"^own "):
        check(law, "isl", {parameter: "own"})


@pytest.mark.parametrize(
    ("law", "problem"),
    [
        (Normal(0, 1), "own 0: the mean must lie between 1 and 10,000,000 tokens"),
        (Normal(5, -1), "own -1: the deviation must lie between 0 and 10,000,000 tokens"),
        (Normal(100, 1, 200, 300), "own 200: less than 1% of the law lies within 200..300; widen min and max"),
        (Lognormal(0.5, 3), "own 0.5: the mean must lie between 1 and 10,000,000 tokens"),
        (Lognormal(5, -1), "own -1: the deviation must lie between 0 and 10,000,000 tokens"),
        (Lognormal(5, 0), "own 0: the deviation of a lognormal must be above 0; constant:tokens=N is a constant length"),
        (Zipf(101, 1, 5), "own 101: the exponent must lie between 0 and 100"),
        (Constant(0), "own 0: the length must lie between 1 and 10,000,000 tokens"),
        (Constant(10_000_001), "own 10000001: the length must lie between 1 and 10,000,000 tokens"),
        (Uniform(0, 5), "own 0: the min must lie between 1 and 10,000,000 tokens"),
        (Normal(100, 10, 60, 50), "own 60: min=60 is above max=50"),
        (Uniform(5, 10_000_001), "own 10000001: the max must lie between 1 and 10,000,000 tokens"),
        (Uniform(6, 5), "own 6: min=6 is above max=5"),
        (
            Histogram((), "h"),
            "own 0: the histogram is empty: give at least one bucket [min, max, count] with a count above 0",
        ),
        (Histogram((Bucket(0, 5, 1),), "h"), "own 0: the bucket [0, 5, 1] is no [min, max, count] of lengths"),
        (Histogram((Bucket(4, 5, 2**53),) * 2, "h"), "own 1.8014398509481984e+16: the counts add up to more than 2^53"),
        (Empirical((), "f"), "own 0: the file has no length"),
        (Empirical((5, 0), "f"), "own 0: the file has a length of 0; all must lie between 1 and 10,000,000 tokens"),
    ],
)
def test_a_fault_is_its_value_and_the_rule_that_it_breaks(law: Lengths, problem: str) -> None:
    fault = law.fault()
    assert fault is not None
    with pytest.raises(WorkloadError) as raised:
        check(law, "isl", {fault.parameter: "own"})
    assert str(raised.value) == problem
    with pytest.raises(WorkloadError) as raised:
        check(law, "isl")
    assert str(raised.value) == f"isl {law.spelling}: {problem.partition(': ')[2]}"


@pytest.mark.parametrize(
    "law",
    [
        Normal(1, 0), Normal(LONGEST_TOKENS, 0), Normal(1, LONGEST_TOKENS), Uniform(1, LONGEST_TOKENS), Constant(1),
        Constant(LONGEST_TOKENS), Zipf(0, 1, 1), Zipf(100, 1, LONGEST_TOKENS), Normal(100, 0, 100, 100),
        Lognormal(5, 1e-9), Lognormal(1, LONGEST_TOKENS),
        Histogram((Bucket(1, 1, 0), Bucket(1, LONGEST_TOKENS, 1)), "h"), Histogram((Bucket(1, 1, 2**53),), "h"),
        Empirical((1, LONGEST_TOKENS), "f"),
    ],
)  # fmt: skip
def test_the_ends_of_what_a_parameter_may_be_are_allowed(law: Lengths) -> None:
    check(law, "isl")


@pytest.mark.parametrize(
    ("law", "text"),
    [
        (Normal(128, 5), "N(128, 5)"),
        (Normal(128, 5, 120), "N(128, 5) from 120"),
        (Normal(128, 5, None, 130), "N(128, 5) up to 130"),
        (Lognormal(512, 300), "lognormal(512, 300)"),
        (Lognormal(512, 300, 9), "lognormal(512, 300) from 9"),
        (Lognormal(512, 300, 9, 600), "lognormal(512, 300) within 9..600"),
        (Histogram((Bucket(1, 2, 3),), "data/h.json"), "histogram h.json"),
        (Empirical((1, 2), "data/lengths.txt"), "lengths of lengths.txt"),
    ],
)
def test_a_law_prints_its_parameters_and_its_bounds(law: Lengths, text: str) -> None:
    assert str(law) == text


@given(spelled)
def test_a_law_reads_as_a_sentence_and_has_a_finite_mean(law: Lengths) -> None:
    assert str(law)
    assert np.isfinite(law.moments().mean)
    assert np.isfinite(law.moments().stdev)
