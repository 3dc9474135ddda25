"""The model of the prefix cache, compared with the library: concurrent requests share exactly the predicted blocks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.openvino.logits import EXACT
from serving.engines.openvino.prefix_cache import Allocation, PrefixCacheAccount

_BLOCKS = 400


@pytest.fixture(scope="module")
def pipeline() -> Any:
    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = _BLOCKS
    scheduler.enable_prefix_caching = True
    return genai.ContinuousBatchingPipeline(str(DEMO_ENGINE_DIR), scheduler, "CPU", EXACT)


def _used(pipeline: Any) -> int:
    return round(pipeline.get_metrics().cache_usage / 100 * _BLOCKS)


def test_new_blocks_match_the_growth_in_the_library(pipeline: Any) -> None:
    """Requests start one by one and keep running, so a prompt needs no blocks for what it shares with them."""
    chance = random.Random(1)
    account = PrefixCacheAccount(enabled=True)
    stems = [[chance.randrange(3, 3000) for _ in range(200)] for _ in range(3)]
    config = genai.GenerationConfig()
    config.max_new_tokens = 2000
    config.ignore_eos = True
    prompts: list[list[int]] = []
    handles: list[Any] = []
    used_before = reused = 0
    for number in range(40):
        tail = [chance.randrange(3, 3000) for _ in range(chance.randrange(70))]
        prompt = [*chance.choice(stems)[: chance.randrange(1, 200)], *tail]
        handles.append(pipeline.add_request(number, ov.Tensor(np.array([prompt], dtype=np.int64)), config))
        pipeline.step()
        others_began_a_block = sum((len(earlier) + number - k) % 32 == 1 for k, earlier in enumerate(prompts))
        prompts.append(prompt)
        allocation = account.start(prompt)
        used = _used(pipeline)
        assert used - used_before == allocation.new_blocks + others_began_a_block, f"request {number}"
        reused += allocation.reused_blocks
        used_before = used
    assert reused > 40
    for handle in handles:
        handle.cancel()
    pipeline.step()


def test_blocks_of_an_ended_request_are_reused() -> None:
    account = PrefixCacheAccount(enabled=True)
    prompt, output = list(range(100)), list(range(500, 540))
    first = account.start(prompt)
    assert (first.new_blocks, first.reused_blocks) == (4, 0)
    account.finish(first, prompt, output)
    again = account.start(prompt)
    assert (again.new_blocks, again.reused_blocks) == (1, 3)  # the fourth block extends beyond the prompt
    account.finish(again, prompt, output)
    longer = account.start([*prompt, *output, 7])
    assert (longer.new_blocks, longer.reused_blocks) == (0, 5)  # 139 tokens are cached, in four full blocks and a partial one


def test_least_recently_used_blocks_are_evicted() -> None:
    account = PrefixCacheAccount(enabled=True)
    prompts = [[k] * 32 for k in range(1, 4)]
    for prompt in prompts:
        account.finish(account.start(prompt), prompt, [9])
    account.trim(2)
    assert [account.start(prompt).reused_blocks for prompt in reversed(prompts)] == [1, 1, 0]


def test_blocks_of_running_requests_are_not_evicted() -> None:
    account = PrefixCacheAccount(enabled=True)
    account.start([1] * 32)
    account.trim(0)
    assert account.start([1] * 32).reused_blocks == 1


def test_without_reuse_every_prompt_needs_all_its_blocks() -> None:
    account = PrefixCacheAccount(enabled=False)
    for _ in range(2):
        allocation = account.start([1] * 33)
        assert allocation == Allocation(2, 0)
        account.finish(allocation, [1] * 33, [5])
