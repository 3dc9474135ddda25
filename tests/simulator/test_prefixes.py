"""Prefix caches of replicas, and the routers that know sessions and prefixes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.answers import Answers, Deployment
from simulator.clients import OpenLoop
from simulator.prefixes import PrefixCache, Prefixes
from simulator.routers import MOST_MORE, Router, chooser, chooser_of_changing
from simulator.server import Admission, Server, StepLaw
from simulator.simulation import simulate_deployment
from simulator.traffic import Traffic
from tests.simulator.known import SERVER, poisson
from tests.simulator.test_simulation import servers
from workloads.elements.request import Request
from workloads.table.prefixes import prefix_repetition, prompt_blocks

_BLOCK = 4
MANY = 1 << 20


def _traffic(prompts: list[list[int]], gap_s: float = 1.0, sessions: list[int] | None = None) -> Traffic:
    """One request each ``gap_s``, with these prompts and two tokens of output."""
    inputs = np.array([len(prompt) for prompt in prompts])
    found = prompt_blocks([Request(2, input_ids=tuple(prompt)) for prompt in prompts], _BLOCK)
    prefixes = Prefixes([blocks for blocks, _ in found], [tokens for _, tokens in found])
    arrivals = np.arange(len(prompts)) * gap_s
    return Traffic(arrivals, inputs, inputs, np.full(len(prompts), 2), sessions=sessions, prefixes=prefixes)


def _answered(traffic: Traffic, deployment: Deployment) -> Answers:
    return simulate_deployment(deployment, traffic, OpenLoop(traffic.arrivals_s.tolist()), 1)


prompts = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=30), min_size=1, max_size=30)


@given(prompts)
def test_a_large_cache_has_what_the_account_of_repetition_counts(prompts: list[list[int]]) -> None:
    """All but the last token of a prompt that is repeated whole, which is computed."""
    answers = _answered(_traffic(prompts), Deployment(SERVER, cache_blocks=MANY))
    requests = [Request(2, input_ids=tuple(prompt)) for prompt in prompts]
    repeated = [prefix_repetition(requests[: n + 1], _BLOCK).repeated for n in range(len(prompts))]
    own = np.diff([0, *repeated])
    assert answers.cached_tokens.tolist() == np.minimum(own, [len(prompt) - 1 for prompt in prompts]).tolist()


@given(prompts, st.integers(1, 12))
def test_a_small_cache_never_has_more_than_a_large_one(prompts: list[list[int]], blocks: int) -> None:
    small, large = (_answered(_traffic(prompts), Deployment(SERVER, cache_blocks=most)) for most in (blocks, MANY))
    assert (small.cached_tokens <= large.cached_tokens).all()
    assert (small.cached_tokens <= blocks * _BLOCK).all()


@settings(max_examples=60)
@given(servers, prompts, st.integers(1, 3), st.sampled_from(Router), st.integers(1, 40))
def test_every_request_is_answered_whatever_its_cache(
    server: Server, prompts: list[list[int]], replicas: int, router: Router, blocks: int
) -> None:
    traffic = _traffic(prompts, gap_s=2e-3, sessions=[number // 3 for number in range(len(prompts))])
    answers = _answered(traffic, Deployment(server, replicas, router, blocks))
    assert np.isfinite(answers.last_s).all()
    assert (answers.cached_tokens < traffic.input_tokens).all()
    if router is Router.SESSION:
        assert all(len(set(answers.replicas[first : first + 3].tolist())) == 1 for first in range(0, len(prompts), 3))


def test_what_the_cache_has_is_not_computed() -> None:
    law = StepLaw(step=1e-3, prefill=1e-4, prefill_context=1e-7)
    traffic = _traffic([[1] * 100, [1] * 96 + [2] * 4, [3] * 100])
    answers = _answered(traffic, Deployment(Server(law), cache_blocks=MANY))
    assert answers.cached_tokens.tolist() == [0, 96, 0]
    times = answers.first_s - answers.sent_s
    assert times[1] == pytest.approx(1e-3 + 4e-4 + 4 * 100 * 1e-7)
    assert times[[0, 2]] == pytest.approx(1e-3 + 1e-2 + 100 * 100 * 1e-7)


def test_chunks_of_a_prompt_look_into_the_cache_once() -> None:
    traffic = _traffic([[1] * 100, [1] * 60 + [2] * 40])
    server = Server(StepLaw(step=1e-3), Admission(token_budget=16))
    answers = _answered(traffic, Deployment(server, cache_blocks=MANY))
    assert answers.cached_tokens.tolist() == [0, 60]
    steps = np.round((answers.first_s - answers.sent_s) / 1e-3)
    assert steps.tolist() == [7, 3]  # 100 and 40 tokens, 16 at a time


def test_without_a_cache_prefixes_change_nothing() -> None:
    traffic = poisson(40, 60, 2)
    same = Prefixes([(1, 2, 3)] * 60, [16.0] * 60)
    one, other = (_answered(each, Deployment(SERVER)) for each in (traffic, replace(traffic, prefixes=same)))
    assert one.last_s.tolist() == other.last_s.tolist()
    assert not other.cached_tokens.any()


def test_the_least_recently_used_blocks_go_first_and_of_a_prompt_the_last() -> None:
    cache = PrefixCache(4)
    assert cache.use((1, 2, 3)) == 0
    assert cache.use((7, 8)) == 0  # 3 goes
    assert cache.use((1, 2, 3)) == 2  # 8 goes
    assert cache.use((7, 8)) == 1


def test_the_router_by_prefix_follows_the_prompt_unless_its_replica_has_many_more() -> None:
    prefixes = Prefixes([(1, 2, 3, 4), (1, 2, 5, 6), (1, 7, 8, 9), (1, 2, 3, 4)], [16.0] * 4)
    choose = chooser(Router.PREFIX, 3, range(4), prefixes, 0)
    first = choose(0, 0, [5, 0, 0], range(3))
    assert first == 1
    assert choose(1, 1, [0, 3, 0], range(3)) == first  # half of its blocks
    assert choose(2, 2, [0, 3, 1], range(3)) == 0  # a quarter
    assert choose(3, 3, [1, MOST_MORE + 1, 0], range(3)) != first


def test_the_router_by_prefix_computes_less_than_the_one_by_load() -> None:
    random = np.random.default_rng(1)
    beginnings = [random.integers(0, 50, 60).tolist() for _ in range(9)]
    prompts = [beginnings[number % 9] + random.integers(0, 50, 8).tolist() for number in random.integers(0, 900, 200)]
    cached = {}
    for router in (Router.PREFIX, Router.LEAST_OUTSTANDING):
        answers = _answered(_traffic(prompts, gap_s=5e-3), Deployment(SERVER, 3, router, cache_blocks=60))
        cached[router] = answers.cached_tokens.sum()
        assert np.bincount(answers.replicas, minlength=3).min() > 20
    assert cached[Router.PREFIX] > 1.2 * cached[Router.LEAST_OUTSTANDING]


def test_a_replica_that_is_gone_hides_no_prefix_of_another() -> None:
    """A replica got all of the prompt and is gone, another one three of its four blocks."""
    prefixes = Prefixes([(1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4)], [4, 4, 4])
    choose = chooser_of_changing(Router.PREFIX, range(3), prefixes, 1)
    assert choose(0, 0, [9, 9, 0], [2]) == 2
    assert choose(1, 1, [0, 0, 99], [0, 1, 2]) == 1
    assert choose(2, 2, [0, 0, 9], [0, 2]) == 2
