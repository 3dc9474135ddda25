"""Options of the embedded engine: each test fails if its option is ignored."""

from __future__ import annotations

import itertools
import os
import queue
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from serving.engines.openvino.engine import OpenVinoEngine
from serving.engines.openvino.folder import DEMO_ENGINE_DIR, read_geometry
from serving.engines.openvino.scheduling import available_bytes
from serving.engines.protocol import (
    EngineOptions,
    EngineStats,
    FinishReason,
    Guide,
    GuideType,
    Increment,
    PerfMetrics,
    Returns,
    Sampling,
    SchedulerPolicy,
)

_PROMPTS = [[10 + k + j for j in range(100)] for k in range(8)]
_ids = itertools.count(1)


@contextmanager
def _open(**options: object) -> Iterator[OpenVinoEngine]:
    engine = OpenVinoEngine(DEMO_ENGINE_DIR, EngineOptions(**options))  # type: ignore[arg-type]
    try:
        yield engine
    finally:
        engine.close()


def _run(
    engine: OpenVinoEngine, prompts: Sequence[list[int]], sampling: Sampling, returns: Returns | None = None
) -> tuple[list[list[Increment]], list[EngineStats]]:
    """Run all prompts at once, streamed; returns the increments of each, and the stats during the run."""
    delivered: queue.Queue[tuple[int, Increment]] = queue.Queue()
    first = next(_ids) * 1000
    for number, prompt in enumerate(prompts):

        def deliver(increment: Increment, number: int = number) -> None:
            delivered.put((number, increment))

        engine.submit(first + number, prompt, sampling, deliver, streaming=True, returns=returns or Returns())
    answers: list[list[Increment]] = [[] for _ in prompts]
    seen = []
    while not all(answer and answer[-1].is_last for answer in answers):
        number, increment = delivered.get(timeout=120)
        answers[number].append(increment)
        seen.append(engine.stats())
    return answers, seen


def _tokens(answer: list[Increment]) -> list[int]:
    assert answer[-1].error is None
    return [token for increment in answer for token in increment.token_ids]


def _perf(answer: list[Increment]) -> PerfMetrics:
    details = answer[-1].details
    assert details is not None
    assert details.perf is not None
    return details.perf


@pytest.fixture(scope="module")
def engine() -> Iterator[OpenVinoEngine]:
    """A deployment without options, for the tests that need no other and do not read what it counted before."""
    with _open() as opened:
        yield opened


@pytest.fixture(scope="module")
def roomy(engine: OpenVinoEngine) -> list[list[int]]:
    """Reference output of a deployment with enough cache."""
    return [_tokens(answer) for answer in _run(engine, _PROMPTS, Sampling(200))[0]]


def test_guaranteed_no_evict_starts_only_requests_that_fit_in_the_worst_case(roomy: list[list[int]]) -> None:
    with _open(max_tokens_in_paged_kv_cache=960) as engine:  # 30 blocks; each request may need 10
        answers, seen = _run(engine, _PROMPTS, Sampling(200))
    assert [_tokens(answer) for answer in answers] == roomy
    assert max(stats.scheduled_requests for stats in seen) == 3
    assert max(stats.waiting_requests for stats in seen) == 5
    assert max(stats.paused_requests for stats in seen) == 0


def test_max_utilization_starts_all_and_pauses_some_without_changing_output(roomy: list[list[int]]) -> None:
    with _open(max_tokens_in_paged_kv_cache=960, batch_scheduler_policy=SchedulerPolicy.MAX_UTILIZATION) as engine:
        answers, seen = _run(engine, _PROMPTS, Sampling(200))
    assert [_tokens(answer) for answer in answers] == roomy
    assert max(stats.scheduled_requests for stats in seen) > 5
    assert max(stats.waiting_requests for stats in seen) == 0
    assert max(stats.paused_requests for stats in seen) > 0
    assert max(stats.kv_cache_used_fraction for stats in seen) > 0.9


def test_request_that_can_never_fit_error_names_the_parameter_to_raise() -> None:
    with _open(max_tokens_in_paged_kv_cache=128) as engine:
        [[refused]] = _run(engine, [_PROMPTS[0]], Sampling(60))[0]
        assert "may need 5 blocks of the KV cache, which has 4; raise max_tokens_in_paged_kv_cache" in (refused.error or "")
        assert len(_tokens(_run(engine, [_PROMPTS[0]], Sampling(28))[0][0])) == 28


def test_rejected_unevictable_request_does_not_block_others() -> None:
    with _open(max_tokens_in_paged_kv_cache=128, batch_scheduler_policy=SchedulerPolicy.MAX_UTILIZATION) as engine:
        [[refused]] = _run(engine, [_PROMPTS[0]], Sampling(300, bad_words=((5,),)))[0]
        assert "raise max_tokens_in_paged_kv_cache" in (refused.error or "")
        assert len(_tokens(_run(engine, [_PROMPTS[0]], Sampling(28))[0][0])) == 28


def test_beams_count_as_generated_tokens(engine: OpenVinoEngine) -> None:
    before = engine.stats().generated_tokens_total
    ended: queue.Queue[Increment] = queue.Queue()
    engine.submit(next(_ids) * 1000, _PROMPTS[0], Sampling(20, beam_width=4, return_beams=4), ended.put, streaming=False)
    assert ended.get(timeout=120).is_last
    deadline = time.monotonic() + 120
    while engine.stats().generated_tokens_total != before + 80:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_cache_is_no_larger_than_its_fraction_of_free_memory() -> None:
    geometry = read_geometry(DEMO_ENGINE_DIR)
    assert geometry is not None
    before = available_bytes()
    with _open(kv_cache_free_gpu_mem_fraction=1e-4, max_tokens_in_paged_kv_cache=10**9) as engine:
        least, most = (1e-4 * size / geometry.block_bytes for size in sorted((before, available_bytes())))
        assert 0.7 * least < engine.stats().kv_cache_blocks < 1.3 * most


@pytest.mark.parametrize(("reuse", "reused"), [(True, [0, 3]), (False, [0, 0])])
def test_blocks_are_reused_only_where_reuse_is_enabled(reuse: bool, reused: list[int]) -> None:
    with _open(enable_kv_cache_reuse=reuse) as engine:
        answers = [_run(engine, [_PROMPTS[0]], Sampling(40), Returns(perf_metrics=True))[0][0] for _ in range(2)]
        stats = engine.stats()
    assert [_perf(answer).kv_reused_blocks for answer in answers] == reused
    assert (stats.kv_prompt_blocks_total, stats.kv_reused_blocks_total) == (8, sum(reused))


@pytest.mark.parametrize(("chunked", "least_steps"), [(True, 10), (False, 1)])
def test_long_prompt_takes_several_steps_only_with_chunked_context(chunked: bool, least_steps: int) -> None:
    with _open(enable_chunked_context=chunked, max_num_tokens=64) as engine:
        answers, _ = _run(engine, [[5 + k % 900 for k in range(640)]], Sampling(1))
        assert len(_tokens(answers[0])) == 1
        assert engine.stats().iterations_total == least_steps


def test_full_queue_rejects_and_unlimited_queue_accepts() -> None:
    """Refused are those that come while the first runs; it and the others are cancelled after all have come."""
    for size, refusals in ((3, 4), (0, 0)):
        with _open(max_queue_size=size, max_num_sequences=1) as engine:
            ended: queue.Queue[Increment] = queue.Queue()
            for number, prompt in enumerate(_PROMPTS):
                engine.submit(number + 1, prompt, Sampling(300), ended.put, streaming=False)
            for number in range(len(_PROMPTS)):
                engine.cancel(number + 1)
            last = [ended.get(timeout=120) for _ in _PROMPTS]
        errors = [increment.error for increment in last if increment.error]
        assert len(errors) == refusals
        assert set(errors) <= {"Maximum queue size of 3 has been reached, please try again later"}
        assert sum(increment.finish is FinishReason.CANCELLED for increment in last) == len(_PROMPTS) - refusals


def test_guides_are_rejected_without_a_guided_decoding_backend() -> None:
    with _open(guided_decoding_backend="") as engine:
        [[refused]] = _run(engine, [_PROMPTS[0]], Sampling(4, guide=Guide(GuideType.JSON)))[0]
        assert refused.error == "guided_decoding_guide: this model is deployed without guided_decoding_backend"
        assert len(_tokens(_run(engine, [_PROMPTS[0]], Sampling(4))[0][0])) == 4


def test_lora_cache_evicts_the_least_recently_used_adapter() -> None:
    import numpy as np

    weights = np.full((1, 4 * 512), 0.01, dtype=np.float16).tobytes()
    config = np.array([[1, 0, 4]], dtype=np.int32).tobytes()
    with _open(lora_cache_host_memory_bytes=2 * len(weights)) as engine:
        errors = {}
        for task in (1, 2, 3):
            engine.register_lora(task, weights, config)
        for task in (1, 2, 3):
            errors[task] = _run(engine, [_PROMPTS[0]], Sampling(2, lora_task_id=task))[0][0][-1].error
    assert errors[1] == "LoRA task 1 not found in cache. Please send LoRA weights with request"
    assert errors[2] is errors[3] is None


def test_durations_are_counted_once_per_request_or_token() -> None:
    with _open() as engine:
        _run(engine, _PROMPTS[:4], Sampling(20))
        stats = engine.stats()
    assert sum(stats.queue_time.counts) == sum(stats.time_to_first_token.counts) == 4
    assert sum(stats.inter_token_latency.counts) == 4 * 19
    assert 0 < stats.inter_token_latency.sum_s < 60
    assert (stats.prompt_tokens_total, stats.generated_tokens_total) == (400, 80)


def test_concurrent_beam_searches_and_logits_do_not_change_output(roomy: list[list[int]]) -> None:
    with _open() as engine:
        beside: queue.Queue[Increment] = queue.Queue()
        everything = Returns(log_probs=True, context_logits=True, generation_logits=True, perf_metrics=True)
        for number, (sampling, returns) in enumerate(
            [(Sampling(60, beam_width=3), Returns()), (Sampling(60), everything), (Sampling(60, bad_words=((5,),)), Returns())]
        ):
            engine.submit(number + 1, _PROMPTS[number], sampling, beside.put, streaming=False, returns=returns)
        assert [_tokens(answer) for answer in _run(engine, _PROMPTS, Sampling(200))[0]] == roomy
        assert all(beside.get(timeout=120).finish is not None for _ in range(3))


@pytest.mark.parametrize(
    ("guide", "flaw"),
    [
        (Guide(GuideType.REGEX, "(" * 20_000 + ")" * 20_000), "too deep or too large to compile"),
        (Guide(GuideType.REGEX, "([a-z]{1,300}){1,300}"), "more than 3 s to compile"),
        (Guide(GuideType.JSON_SCHEMA, '{"type": 5}'), "Type should be a string"),
    ],
    ids=["deep", "endless", "wrong"],
)
def test_guide_that_breaks_its_compiler_fails_alone_and_blocks_no_request(
    engine: OpenVinoEngine, guide: Guide, flaw: str
) -> None:
    refused: queue.Queue[Increment] = queue.Queue()
    engine.submit(next(_ids) * 1000, _PROMPTS[0], Sampling(4, guide=guide), refused.put, streaming=False)
    assert len(_tokens(_run(engine, [_PROMPTS[0]], Sampling(20))[0][0])) == 20
    assert flaw in (refused.get(timeout=120).error or "")
    sound = _run(engine, [_PROMPTS[0]], Sampling(20, guide=Guide(GuideType.REGEX, "[0-9]{2}")))[0][0]
    assert len(_tokens(sound)) in (2, 3)  # one or two tokens, and the end
    assert engine.stats().active_requests == 0


def test_guided_request_can_be_cancelled_while_its_guide_is_checked(engine: OpenVinoEngine) -> None:
    answer: queue.Queue[Increment] = queue.Queue()
    guide = Guide(GuideType.REGEX, "([a-y]{1,300}){1,300}")  # no other test's: what an engine has found of a guide stays
    request = next(_ids) * 1000
    engine.submit(request, _PROMPTS[0], Sampling(4, guide=guide), answer.put, streaming=False)
    engine.cancel(request)
    assert answer.get(timeout=120).finish is FinishReason.CANCELLED


def test_early_stopping_and_length_penalty_affect_the_beam_search() -> None:
    import openvino_genai as genai

    from serving.engines.openvino.guides import Guides
    from serving.engines.openvino.worker import generation_config

    early = generation_config(Sampling(4, beam_width=3, early_stopping=True, length_penalty=0.5), Guides(None, "none"))
    assert (early.num_beams, early.length_penalty, early.stop_criteria) == (3, 0.5, genai.StopCriteria.EARLY)
    late = generation_config(Sampling(4, beam_width=3, early_stopping=False), Guides(None, "none"))
    assert late.stop_criteria == genai.StopCriteria.HEURISTIC


def test_every_thread_of_a_ready_engine_has_a_low_priority(engine: OpenVinoEngine) -> None:
    process = engine._process.pid
    priorities = {os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir(f"/proc/{process}/task")}
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert priorities == {min(own + 10, 19)}
