"""A vocabulary gives the same ids for the same positions, as a list and as a range."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workloads.prompts.vocabulary import Vocabulary


@given(first=st.integers(0, 10**6), size=st.integers(1, 500), count=st.integers(0, 50), seed=st.integers(0, 2**31))
def test_a_list_and_a_range_of_the_same_ids_draw_alike(first: int, size: int, count: int, seed: int) -> None:
    ids = range(first, first + size)
    drawn = Vocabulary(ids).draw(np.random.default_rng(seed), count)
    assert drawn == Vocabulary(list(ids)).draw(np.random.default_rng(seed), count)
    assert len(drawn) == count
    assert set(drawn) <= set(ids)


def test_every_id_is_drawn() -> None:
    assert set(Vocabulary([3, 5, 8]).draw(np.random.default_rng(0), 200)) == {3, 5, 8}


def test_a_range_of_billions_is_not_listed() -> None:
    assert len(Vocabulary(range(10**12)).draw(np.random.default_rng(0), 5)) == 5


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(0, 2**31), st.sampled_from([range(7, 3_000, 3), [5, 9, 2**40]]))
def test_many_draws_at_once_are_those_of_one_after_another(counts: list[int], seed: int, ids: range | list[int]) -> None:
    vocabulary, generator = Vocabulary(ids), np.random.default_rng(seed)
    one_by_one = [vocabulary.draw(generator, count) for count in counts]
    assert list(vocabulary.draw_each(np.random.default_rng(seed), counts)) == one_by_one
