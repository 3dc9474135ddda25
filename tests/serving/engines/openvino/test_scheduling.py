from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engines.openvino.folder import CacheGeometry
from serving.engines.openvino.scheduling import Admission, cache_blocks, worst_case_blocks
from serving.engines.protocol import EngineOptions, SchedulerPolicy
from serving.errors import EngineError

_GUARANTEED, _UTILIZED = SchedulerPolicy.GUARANTEED_NO_EVICT, SchedulerPolicy.MAX_UTILIZATION
_GEOMETRY = CacheGeometry(layers=2, kv_heads=4, head_size=8)  # 16,384 bytes per block


def test_cache_size_respects_both_limits() -> None:
    options = EngineOptions(max_tokens_in_paged_kv_cache=3200, kv_cache_free_gpu_mem_fraction=0.5)
    assert _GEOMETRY.block_bytes == 16_384
    assert cache_blocks(options, _GEOMETRY, 1 << 30) == 100
    assert cache_blocks(options, _GEOMETRY, 60 * 16_384) == 30
    assert cache_blocks(options, None, 60 * 16_384) == 100  # a network whose geometry is unknown


def test_fraction_without_room_for_a_block_is_rejected() -> None:
    with pytest.raises(EngineError, match=r"kv_cache_free_gpu_mem_fraction 0.9 .* no room for one block"):
        cache_blocks(EngineOptions(), _GEOMETRY, 16_384)


def test_guaranteed_admits_the_worst_case_and_utilized_admits_all() -> None:
    guaranteed, utilized = Admission(_GUARANTEED, 9, 10), Admission(_UTILIZED, 9, 10)
    assert [guaranteed.admit(k, 4) for k in range(3)] == [True, True, False]
    assert [utilized.admit(k, 4) for k in range(3)] == [True, True, True]
    guaranteed.release(0)
    assert guaranteed.admit(2, 4)


def test_unevictable_requests_are_reserved_under_either_policy() -> None:
    utilized = Admission(_UTILIZED, 9, 10)
    assert [utilized.admit(k, 6, evictable=False) for k in range(2)] == [True, False]


def test_no_more_than_max_requests_run() -> None:
    admission = Admission(_UTILIZED, 2, 10)
    assert [admission.admit(k, 1) for k in range(3)] == [True, True, False]


def test_request_larger_than_the_cache_is_admitted_only_if_evictable() -> None:
    assert not Admission(_GUARANTEED, 1, 10).can_ever(11)
    assert Admission(_UTILIZED, 1, 10).can_ever(11)
    assert not Admission(_UTILIZED, 1, 10).can_ever(11, evictable=False)


@given(st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=60))
def test_reservations_never_exceed_the_cache_and_are_all_released(steps: list[tuple[int, bool]]) -> None:
    admission, held = Admission(_GUARANTEED, 100, 20), dict[int, int]()
    for number, (blocks, release) in enumerate(steps):
        if release and held:
            gone = next(iter(held))
            del held[gone]
            admission.release(gone)
        elif admission.admit(number, blocks):
            held[number] = blocks
        assert sum(held.values()) <= 20
    for number in held:
        admission.release(number)
    assert admission.admit(-1, 20)


def test_beams_share_the_full_blocks_of_their_prompt() -> None:
    assert worst_case_blocks(64, 32) == 3
    assert worst_case_blocks(64, 32, beam_width=4) == 2 + 4 * 2
