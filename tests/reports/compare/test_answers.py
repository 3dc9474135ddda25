"""Answers of other lengths: named where chance does not explain them, for the lengths that were requested."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from numpy.typing import ArrayLike
from scipy import stats

from bench_records.record import Record
from reports.compare.answers import Answers, answers_of, equally_long, known_on_one_side, lengths_differ
from reports.metrics.requests import Requests


def _answers(tokens: ArrayLike, requested: ArrayLike = 20.0, *, first: int = 0, from_text: bool = False) -> Answers:
    lengths = np.asarray(tokens, dtype=np.float64)
    asked = np.broadcast_to(np.asarray(requested, dtype=np.float64), lengths.shape)
    return Answers(np.arange(first, first + lengths.size), lengths, asked, np.full(lengths.size, -1), from_text)


@pytest.mark.parametrize(
    ("tokens", "expected"), [(20.0, False), (19.9, False), (19.7, True), (20.3, True), (10.0, True)], ids=str
)
def test_answers_that_do_not_vary_differ_above_one_per_cent(tokens: float, expected: bool) -> None:
    a, b = _answers(np.full(700, 20.0)), _answers(np.full(700, tokens))
    for paired in (False, True):
        assert lengths_differ([a], [b], paired=paired) is expected


def test_what_was_requested_is_no_difference() -> None:
    a, b = _answers(np.full(700, 20.0), 20.0), _answers(np.full(700, 40.0), 40.0)
    assert not lengths_differ([a], [b], paired=False)
    assert lengths_differ([a], [_answers(np.full(700, 20.0), 40.0)], paired=False)


def test_chance_is_no_difference_and_pairs_show_what_it_hides() -> None:
    rng = np.random.default_rng(5)
    named = [0, 0]
    for _ in range(200):
        lengths = np.minimum(rng.geometric(0.05, 700), 64).astype(np.float64)
        other = np.minimum(rng.geometric(0.05, 700), 64).astype(np.float64)
        a, shorter = _answers(lengths, 64.0), _answers(np.ceil(lengths * 0.95), 64.0)
        named[0] += lengths_differ([a], [_answers(other, 64.0)], paired=False)
        assert lengths_differ([a], [shorter], paired=True)
        named[1] += lengths_differ([a], [shorter], paired=False)
    assert named[0] <= 3
    assert named[1] <= 20


def test_repeats_count_together() -> None:
    rng = np.random.default_rng(6)
    a, b = ([_answers(rng.normal(mean, 10.0, 700), 64.0) for _ in range(5)] for mean in (30.0, 28.5))
    assert lengths_differ(a, b, paired=False)
    assert not lengths_differ(a[:1], b[:1], paired=False)


@pytest.mark.parametrize(("conversations", "most"), [(70, 5), (7, 5)])
def test_answers_of_one_conversation_that_are_alike_are_chance(conversations: int, most: int) -> None:
    """30 % of equal runs with ten turns in each of 70 conversations were named."""
    rng, alike = np.random.default_rng(8), np.repeat(np.arange(conversations), 10)

    def run() -> Answers:
        lengths = rng.lognormal(4.0, 0.7, conversations)[alike] * rng.lognormal(0.0, 0.3, alike.size)
        return replace(_answers(np.ceil(np.minimum(lengths, 1_024.0)), 1_024.0), conversation_of=alike)

    assert sum(lengths_differ([run()], [run()], paired=False) for _ in range(200)) <= most


def test_pairs_of_repeats_count_together() -> None:
    rng = np.random.default_rng(8)
    lengths = [rng.normal(30.0, 10.0, 700) for _ in range(5)]
    a, b = ([_answers(run + rng.normal(mean, 10.0, 700), 64.0) for run in lengths] for mean in (0.0, -0.9))
    assert lengths_differ(a, b, paired=True)
    assert not lengths_differ(a[:1], b[:1], paired=True)


def test_failures_of_long_answers_make_no_other_shorter() -> None:
    lengths = np.random.default_rng(7).geometric(0.05, 700).astype(np.float64)
    answered = np.sort(np.argsort(lengths)[:-6])
    a, b = _answers(lengths, 256.0), replace(_answers(lengths[answered], 256.0), index=answered)
    assert a.share > 1.01 * b.share
    assert not lengths_differ([a], [b], paired=True)


def test_counts_of_other_kinds_and_no_answers_show_nothing() -> None:
    counted, estimated = _answers(np.full(700, 20.0)), _answers(np.full(700, 15.0), from_text=True)
    for paired in (False, True):
        assert not lengths_differ([counted], [estimated], paired=paired)
        assert lengths_differ([_answers(np.full(700, 20.0), from_text=True)], [estimated], paired=paired)
    assert lengths_differ([counted], [_answers(np.full(700, 15.0))], paired=True)
    none = _answers([])
    assert not lengths_differ([counted], [none], paired=False)
    assert str(none) == "no answer of known length"
    assert not lengths_differ([counted], [_answers(np.full(700, 10.0), first=700)], paired=True)  # no request in common


def test_answers_of_records(answered: Callable[..., Record], make_requests: Callable[..., Requests]) -> None:
    records = [answered(k, 0, 0, [(10, 1), (20, 1)], requested_output_tokens=4) for k in range(3)]
    found = answers_of(make_requests(records))
    assert (found.tokens.tolist(), found.requested.tolist()) == ([2.0] * 3, [4.0] * 3)
    assert str(found) == "2.0 tokens an answer, 50% of those requested"
    others = [answered(k, 0, 0, [(10, 6)], requested_output_tokens=requested) for k, requested in ((3, 0), (4, 1))]
    assert answers_of(make_requests([*records, *others])).index.tolist() == [0, 1, 2, 4]


def test_lengths_are_estimates_where_any_known_one_is_counted_from_text(
    answered: Callable[..., Record], make_requests: Callable[..., Requests]
) -> None:
    by_server = answered(0, 0, 0, [(10, 1)], requested_output_tokens=4)
    from_text = answered(1, 0, 0, [(10, 1)], requested_output_tokens=4, output_tokens_source="text")
    of_nothing = structs.replace(from_text, index=2, requested_output_tokens=0)  # has no part in the comparison
    for records, estimated in (([by_server, of_nothing], False), ([by_server, from_text], True)):
        assert answers_of(make_requests(records)).counted_from_text is estimated


def test_lengths_that_one_side_alone_knows() -> None:
    known, none = _answers(np.full(700, 20.0)), _answers([])
    assert known_on_one_side([known, known], [none])
    assert known_on_one_side([none], [known])
    assert not known_on_one_side([known], [known])
    assert not known_on_one_side([none], [none])
    assert not known_on_one_side([known, none], [known])


def test_answers_may_be_equally_long_whatever_was_requested() -> None:
    a, b = _answers(np.full(700, 20.0), 20.0), _answers(np.full(700, 20.1), 40.0)
    assert lengths_differ([a], [b], paired=False)
    assert equally_long([a], [b])
    assert not equally_long([a], [_answers(np.full(700, 20.5), 40.0)])


def test_a_difference_of_exactly_one_per_cent_is_none() -> None:
    """The answers have 100 and 101 tokens for each that was requested, so lengths and shares differ by 1 %."""
    a, b = _answers(np.full(700, 100.0), 1.0), _answers(np.full(700, 101.0), 1.0)
    assert equally_long([a], [b])
    assert equally_long([a], [a, b])
    assert not equally_long([a], [_answers(np.full(700, 101.5), 1.0)] * 2)
    assert not lengths_differ([a], [b], paired=False)
    assert lengths_differ([a], [_answers(np.full(700, 101.5), 1.0)], paired=False)


def test_the_error_of_a_share_is_wider_where_few_conversations_make_it() -> None:
    """1, 2 and 3 tokens for 2 requested ones each: deviations of -1, 0 and 1, whose sum has a variance of 2 · 3/2."""
    normal, student = (law.ppf((1.0 + 0.9973) / 2.0) for law in (stats.norm(), stats.t(2)))
    few = _answers([1.0, 2.0, 3.0], 2.0)
    assert few.error == pytest.approx(math.sqrt(3.0) / 6.0 * student / normal)
    of_one = replace(few, conversation_of=np.zeros(3, dtype=np.int64))
    assert of_one.error == math.inf
    assert not lengths_differ([of_one], [_answers([9.0, 9.0, 9.0], 2.0)], paired=False)
