"""Packed token ids are a sequence like a tuple of them, in 4 bytes each where they fit."""

from __future__ import annotations

import pickle
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.token_ids import TokenIds, int64_bytes, packed_ids, token_ids

_IDS = st.lists(st.one_of(st.integers(0, 200_000), st.integers(-(2**63), 2**63 - 1)), max_size=20)


@given(_IDS, st.integers(-25, 25), st.integers(-25, 25), st.sampled_from([None, 1, 2, -1]))
def test_they_are_a_sequence_like_a_tuple(ids: list[int], first: int, last: int, step: int | None) -> None:
    packed = token_ids(ids)
    assert packed == tuple(ids)
    assert tuple(packed) == tuple(ids)
    assert (len(packed), repr(packed)) == (len(ids), f"TokenIds of {tuple(ids)}")
    assert packed[first:last:step] == tuple(ids[first:last:step])
    assert all(packed[k] == ids[k] for k in range(-len(ids), len(ids)))
    assert hash(packed) == hash(tuple(ids))
    assert pickle.loads(pickle.dumps(packed)) == packed


@given(_IDS)
def test_their_int64_bytes_are_those_of_a_tuple(ids: list[int]) -> None:
    expected = struct.pack(f"<{len(ids)}q", *ids)
    assert int64_bytes(token_ids(ids)) == int64_bytes(tuple(ids)) == expected


@given(_IDS, _IDS)
def test_they_are_equal_where_the_ids_are(some: list[int], others: list[int]) -> None:
    assert (token_ids(some) == token_ids(others)) == (some == others)
    assert token_ids(some) != some  # a list is no value of a frozen request


def test_ids_of_a_vocabulary_take_4_bytes_each() -> None:
    assert len(packed_ids(np.arange(1_000)).packed) == 4_000
    assert len(token_ids([-(2**31), 2**31 - 1]).packed) == 8
    assert len(token_ids([2**31]).packed) == len(token_ids([-(2**31) - 1]).packed) == 8
    assert token_ids([2**31]) != token_ids([0])
    assert TokenIds(token_ids([5]).packed) == (5,)


def test_ids_in_8_bytes_are_equal_to_the_same_in_4_and_to_no_others_of_the_same_bytes() -> None:
    wide = TokenIds(struct.pack("<q", 5), "q")
    assert wide == token_ids([5])
    assert wide != token_ids([5, 0])
    assert wide.packed == token_ids([5, 0]).packed
