from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.run.warm_up import warm_up_requests
from workloads.elements.request import Request
from workloads.schedule.schedule import Schedule

_IDS = st.lists(st.integers(0, 3071), min_size=1, max_size=12).map(tuple)
_REQUESTS = st.builds(Request, output_tokens=st.integers(1, 100), input_ids=_IDS, ignore_eos=st.booleans())


def _schedule(requests: list[Request], seed: int = 0) -> Schedule:
    return Schedule(tuple(requests), tuple(range(len(requests))), seed)


@settings(max_examples=50)
@given(st.lists(_REQUESTS, min_size=1, max_size=8), st.integers(0, 20), st.integers(0, 2**32))
def test_each_is_a_scheduled_request_but_for_the_order_of_its_tokens(requests: list[Request], count: int, seed: int) -> None:
    warm_up = warm_up_requests(_schedule(requests, seed), count)
    assert len(warm_up) == count
    shapes = {(r.output_tokens, r.ignore_eos, frozenset(Counter(r.input_ids).items())) for r in requests}
    for request in warm_up:
        assert (request.output_tokens, request.ignore_eos, frozenset(Counter(request.input_ids).items())) in shapes


def test_text_keeps_its_words() -> None:
    prompt = "the sea is wide and the ships are many"
    (request,) = warm_up_requests(_schedule([Request(output_tokens=5, prompt=prompt)]), 1)
    assert request.prompt is not None
    assert Counter(request.prompt.split()) == Counter(prompt.split())
    assert request.prompt != prompt


def test_same_seed_gives_the_same_warm_up_and_another_seed_another() -> None:
    requests = [Request(output_tokens=5, input_ids=tuple(range(k, k + 50))) for k in range(20)]
    assert warm_up_requests(_schedule(requests), 10) == warm_up_requests(_schedule(requests), 10)
    assert warm_up_requests(_schedule(requests, seed=1), 10) != warm_up_requests(_schedule(requests), 10)


def test_long_prompts_come_in_another_order_from_their_beginning_on() -> None:
    requests = [Request(output_tokens=5, input_ids=tuple(range(k * 100, k * 100 + 100))) for k in range(20)]
    scheduled_beginnings = {request.input_ids[:8] for request in requests if request.input_ids}
    for request in warm_up_requests(_schedule(requests), 50):
        assert request.input_ids is not None
        assert request.input_ids[:8] not in scheduled_beginnings


def test_none_asked_for_is_none() -> None:
    assert warm_up_requests(_schedule([Request(output_tokens=5, input_ids=(1, 2))]), 0) == ()


def test_no_warm_up_prompt_is_a_scheduled_one() -> None:
    requests = [Request(output_tokens=5, input_ids=(k, k + 1)) for k in range(0, 40, 2)]
    scheduled = {request.input_ids for request in requests}
    assert not [request for request in warm_up_requests(_schedule(requests), 100) if request.input_ids in scheduled]


def test_no_warm_up_text_is_a_scheduled_one() -> None:
    requests = [Request(output_tokens=5, prompt=f"word{k} other{k}") for k in range(20)]
    scheduled = {request.prompt for request in requests}
    assert not [request for request in warm_up_requests(_schedule(requests), 100) if request.prompt in scheduled]


def test_neither_text_nor_ids_of_a_warm_up_are_a_scheduled_prompts_own() -> None:
    requests = [Request(output_tokens=5, prompt=f"word{k} other{k}", input_ids=tuple(range(k, k + 9))) for k in range(20)]
    warm_up = warm_up_requests(_schedule(requests), 100)
    assert not {request.input_ids for request in warm_up} & {request.input_ids for request in requests}
    assert not {request.prompt for request in warm_up} & {request.prompt for request in requests}
