"""Laws of lengths for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from workloads.lengths.families import Constant, Lognormal, Normal, Uniform, Zipf
from workloads.lengths.law import Lengths
from workloads.lengths.samples import Bucket, Empirical, Histogram

_BOUNDS = st.tuples(st.integers(1, 3_000), st.integers(0, 3_000)).map(lambda pair: (pair[0], pair[0] + pair[1]))
_MEANS = st.floats(1, 3_000)
_STDEVS = st.floats(0.01, 1_500)
_CUTS = st.one_of(st.none(), st.integers(1, 4_000))

plain_normals = st.builds(Normal, _MEANS, st.one_of(st.just(0.0), _STDEVS))
truncated_normals = st.builds(Normal, _MEANS, _STDEVS, _CUTS, _CUTS)
lognormals = st.builds(Lognormal, _MEANS, _STDEVS, _CUTS, _CUTS)
uniforms = _BOUNDS.map(lambda pair: Uniform(*pair))
zipfs = st.builds(lambda exponent, pair: Zipf(exponent, *pair), st.floats(0, 4), _BOUNDS)
constants = st.builds(Constant, st.integers(1, 3_000))
buckets = st.builds(lambda pair, count: Bucket(*pair, count), _BOUNDS, st.integers(1, 500))
histograms = st.builds(Histogram, st.lists(buckets, min_size=1, max_size=8).map(tuple), st.just("file.json"))
empirical = st.builds(Empirical, st.lists(st.integers(1, 3_000), min_size=1, max_size=60).map(tuple), st.just("file.txt"))

spelled: st.SearchStrategy[Lengths] = st.one_of(
    plain_normals, truncated_normals, lognormals, uniforms, zipfs, constants
).filter(lambda law: law.fault() is None)
laws: st.SearchStrategy[Lengths] = st.one_of(spelled, histograms, empirical)
