"""Admission of waiting requests: upstream's two capacity policies, over blocks of the paged KV cache."""

from __future__ import annotations

import os

from serving.engines.openvino.folder import TOKENS_PER_BLOCK, CacheGeometry
from serving.engines.protocol import EngineOptions, SchedulerPolicy
from serving.errors import EngineError


def blocks_for(tokens: int) -> int:
    return -(-tokens // TOKENS_PER_BLOCK)


def cache_blocks(options: EngineOptions, geometry: CacheGeometry | None, free_bytes: int) -> int:
    """Number of cache blocks that both ``max_tokens_in_paged_kv_cache`` and the share of free memory allow.

    Raises EngineError when not even one block fits.
    """
    blocks = blocks_for(options.max_tokens_in_paged_kv_cache)
    if geometry is not None:
        blocks = min(blocks, int(options.kv_cache_free_gpu_mem_fraction * free_bytes) // geometry.block_bytes)
    if blocks < 1:
        raise EngineError(
            f"kv_cache_free_gpu_mem_fraction {options.kv_cache_free_gpu_mem_fraction:g} of the {free_bytes >> 20} MiB of free "
            "memory has no room for one block of the KV cache"
        )
    return blocks


def available_bytes() -> int:
    """RAM that is available without swapping."""
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        for line in meminfo:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def step_tokens(options: EngineOptions, context_tokens: int) -> int:
    """The most tokens of a step of the pipeline. Without chunked prefill a whole prompt must fit one step."""
    return options.max_num_tokens if options.enable_chunked_context else max(options.max_num_tokens, context_tokens)


def worst_case_blocks(prompt_tokens: int, max_tokens: int, beam_width: int = 1) -> int:
    """Largest number of blocks that a request can occupy. Beams share the full blocks of their prompt."""
    if beam_width == 1:
        return blocks_for(prompt_tokens + max_tokens)
    shared = prompt_tokens // TOKENS_PER_BLOCK
    own = blocks_for(prompt_tokens + max_tokens) - shared + 1  # one more while a shared block is copied
    return shared + beam_width * own


class Admission:
    """Running requests and their reserved blocks. First come, first served: a request that must wait blocks those after it."""

    def __init__(self, policy: SchedulerPolicy, max_requests: int, blocks: int) -> None:
        self._policy = policy
        self._max_requests = max_requests
        self._blocks = blocks
        self._reserved: dict[int, int] = {}
        self._reserved_blocks = 0

    def admit(self, request_id: int, blocks: int, *, evictable: bool = True) -> bool:
        """Start a request that may need ``blocks``, if the policy allows it now.

        A request that is not ``evictable`` cannot be paused, so its blocks are reserved under either policy.
        """
        if len(self._reserved) >= self._max_requests:
            return False
        reserve = blocks if self._policy is SchedulerPolicy.GUARANTEED_NO_EVICT or not evictable else 0
        if self._reserved_blocks + reserve > self._blocks:
            return False
        self._reserved[request_id] = reserve
        self._reserved_blocks += reserve
        return True

    def can_ever(self, blocks: int, *, evictable: bool = True) -> bool:
        """Whether an empty cache would suffice. MAX_UTILIZATION admits a request that may end before it uses them all."""
        return blocks <= self._blocks or (evictable and self._policy is SchedulerPolicy.MAX_UTILIZATION)

    def release(self, request_id: int) -> None:
        self._reserved_blocks -= self._reserved.pop(request_id, 0)
