"""The real engine with the demo engine's weights: one process for all tests that do not break it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
import pytest

from serving.engines import open_engine
from serving.engines.openvino.engine import OpenVinoEngine
from serving.engines.openvino.folder import DEMO_ENGINE_DIR, read_limits
from serving.engines.process_engine import Link
from serving.engines.protocol import (
    Engine,
    EngineLimits,
    EngineOptions,
    EngineStats,
    FinishReason,
    Increment,
    Returns,
    Sampling,
    SchedulerPolicy,
)
from serving.errors import EngineError

_WAIT_S = 60.0
_PROMPT = list(range(10, 40))


@contextmanager
def _open(options: EngineOptions | None = None) -> Iterator[Engine]:
    engine = open_engine("openvino", DEMO_ENGINE_DIR, options or EngineOptions())
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def _open_with_process(options: EngineOptions | None = None) -> Iterator[tuple[Engine, psutil.Process]]:
    before = {child.pid for child in psutil.Process().children()}
    with _open(options) as engine:
        (process,) = [child for child in psutil.Process().children() if child.pid not in before]
        yield engine, process


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with _open(EngineOptions(enable_kv_cache_reuse=False)) as opened:
        yield opened


class _Answer:
    """Increments of one request."""

    def __init__(self) -> None:
        self.increments: list[Increment] = []
        self.first = threading.Event()
        self.ended = threading.Event()

    def deliver(self, increment: Increment) -> None:
        assert not self.ended.is_set()
        self.increments.append(increment)
        self.first.set()
        if increment.is_last:
            self.ended.set()

    def last(self) -> Increment:
        assert self.ended.wait(_WAIT_S)
        return self.increments[-1]

    def tokens(self) -> list[int]:
        assert self.last().error is None
        return [token for increment in self.increments for token in increment.token_ids]


_ids = iter(range(1, 10**9))


def _submit(engine: Engine, prompt: Sequence[int], sampling: Sampling, streaming: bool = False) -> tuple[int, _Answer]:
    answer, request_id = _Answer(), next(_ids)
    engine.submit(request_id, prompt, sampling, answer.deliver, streaming=streaming)
    return request_id, answer


def _ask(engine: Engine, prompt: Sequence[int], sampling: Sampling, streaming: bool = False) -> _Answer:
    answer = _submit(engine, prompt, sampling, streaming)[1]
    answer.last()
    return answer


# ---- generating


@pytest.mark.parametrize("count", [1, 2, 33])
@pytest.mark.parametrize("streaming", [True, False])
def test_generates_the_requested_number_of_tokens(engine: Engine, count: int, streaming: bool) -> None:
    answer = _ask(engine, _PROMPT, Sampling(count), streaming)
    tokens = answer.tokens()
    assert len(tokens) == count
    assert all(0 <= token < engine.limits.vocabulary_size for token in tokens)
    assert answer.last().finish is FinishReason.LENGTH
    assert [increment.is_last for increment in answer.increments] == [False] * (len(answer.increments) - 1) + [True]


def test_streamed_increments_join_to_the_unstreamed_tokens(engine: Engine) -> None:
    streamed, whole = _ask(engine, _PROMPT, Sampling(24), True), _ask(engine, _PROMPT, Sampling(24), False)
    assert streamed.tokens() == whole.tokens()
    assert len(whole.increments) == 1
    assert len(streamed.increments) > 12  # token by token, except for steps that were read together


def test_greedy_output_does_not_depend_on_the_batch(engine: Engine) -> None:
    sampling = Sampling(30)
    alone = _ask(engine, _PROMPT, sampling).tokens()
    neighbours = [_submit(engine, list(range(3 + k, 8 + 7 * k)), sampling, k % 2 == 0)[1] for k in range(16)]
    _, among = _submit(engine, _PROMPT, sampling)
    neighbours += [_submit(engine, list(range(200 + k, 260 + k)), sampling, k % 2 == 0)[1] for k in range(16)]
    assert among.tokens() == alone
    assert all(len(neighbour.tokens()) == 30 for neighbour in neighbours)
    assert engine.stats().generated_tokens_total >= 34 * 30


def test_end_token_ends_the_sequence(engine: Engine) -> None:
    free = _ask(engine, _PROMPT, Sampling(20)).tokens()
    end = free[7]
    expected = free[: free.index(end) + 1]
    for streaming in (True, False):
        answer = _ask(engine, _PROMPT, Sampling(20, end_id=end), streaming)
        assert answer.last().finish is FinishReason.STOP
        assert answer.tokens() in (expected, expected[:-1])  # with the end token or without


def test_sequence_does_not_end_before_min_tokens(engine: Engine) -> None:
    end = _ask(engine, _PROMPT, Sampling(1)).tokens()[0]
    answer = _ask(engine, _PROMPT, Sampling(12, end_id=end, min_tokens=6))
    assert len(answer.tokens()) >= 6


def test_sampling_is_determined_by_its_seed(engine: Engine) -> None:
    def sample(seed: int) -> list[int]:
        return _ask(engine, _PROMPT, Sampling(24, greedy=False, temperature=1.5, seed=seed)).tokens()

    assert sample(1) == sample(1)
    assert len({tuple(sample(seed)) for seed in range(4)}) > 1


def test_top_k_of_one_is_greedy(engine: Engine) -> None:
    greedy = _ask(engine, _PROMPT, Sampling(16)).tokens()
    assert _ask(engine, _PROMPT, Sampling(16, greedy=False, top_k=1, seed=3)).tokens() == greedy


def test_prompts_longer_than_a_step_are_computed_in_chunks(engine: Engine) -> None:
    prompt = [3 + k % 3000 for k in range(3000)]  # more than max_num_tokens
    whole = _ask(engine, prompt, Sampling(4)).tokens()
    with _open(EngineOptions(max_num_tokens=256, enable_kv_cache_reuse=False)) as chunked:
        assert _ask(chunked, prompt, Sampling(4)).tokens() == whole
    with _open(EngineOptions(enable_chunked_context=False, enable_kv_cache_reuse=False)) as unchunked:
        assert _ask(unchunked, prompt, Sampling(4)).tokens() == whole


def test_cache_reuse_does_not_change_output(engine: Engine) -> None:
    fresh = _ask(engine, _PROMPT * 5, Sampling(16)).tokens()
    with _open(EngineOptions(enable_kv_cache_reuse=True)) as reusing:
        assert [_ask(reusing, _PROMPT * 5, Sampling(16)).tokens() for _ in range(3)] == [fresh] * 3


def test_time_of_the_first_token_of_a_beam_search_is_unknown(engine: Engine) -> None:
    before, answer = engine.stats().time_to_first_token, _Answer()
    sampling = Sampling(40, beam_width=2, return_beams=2)
    engine.submit(next(_ids), _PROMPT, sampling, answer.deliver, streaming=False, returns=Returns(perf_metrics=True))
    details = answer.last().details
    assert details is not None
    assert details.perf is not None
    assert (details.perf.first_token_time_ns, details.perf.last_token_time_ns > 0) == (0, True)
    assert engine.stats().time_to_first_token == before


# ---- cancelling


@pytest.mark.parametrize("streaming", [True, False])
def test_cancelled_request_ends_and_others_continue(engine: Engine, streaming: bool) -> None:
    alone = _ask(engine, _PROMPT, Sampling(200)).tokens()
    _, other = _submit(engine, _PROMPT, Sampling(200), streaming=True)
    request_id, cancelled = _submit(engine, _PROMPT, Sampling(3000), streaming)
    assert other.first.wait(_WAIT_S)
    engine.cancel(request_id)
    assert cancelled.last().finish is FinishReason.CANCELLED
    assert len(cancelled.tokens()) < 3000
    assert other.tokens() == alone


@pytest.mark.parametrize("stop_words", [(), ((7, 7, 7, 7),)])
def test_tokens_of_a_cancelled_unstreamed_request_are_counted(engine: Engine, stop_words: tuple[tuple[int, ...], ...]) -> None:
    before = engine.stats()
    request_id, cancelled = _submit(engine, _PROMPT, Sampling(3000, stop_words=stop_words), streaming=False)
    _ask(engine, _PROMPT, Sampling(50), streaming=True)
    engine.cancel(request_id)
    assert cancelled.last().finish is FinishReason.CANCELLED
    after = engine.stats()
    generated = after.generated_tokens_total - before.generated_tokens_total
    assert generated == after.scheduled_requests_total - before.scheduled_requests_total  # a token of each in each step
    assert generated >= 99


def test_tokens_of_a_cancelled_exact_request_are_counted(engine: Engine) -> None:
    before = engine.stats().generated_tokens_total
    request_id, cancelled = _submit(engine, _PROMPT, Sampling(3000, bad_words=((5,),)), streaming=False)
    _ask(engine, _PROMPT, Sampling(20, bad_words=((5,),)), streaming=True)
    engine.cancel(request_id)
    assert cancelled.last().finish is FinishReason.CANCELLED
    assert engine.stats().generated_tokens_total - before >= 39


def test_cancelling_unknown_or_ended_requests_has_no_effect(engine: Engine) -> None:
    request_id, answer = _submit(engine, _PROMPT, Sampling(2))
    answer.last()
    engine.cancel(request_id)
    engine.cancel(request_id)
    engine.cancel(10**12)
    assert len(_ask(engine, _PROMPT, Sampling(3)).tokens()) == 3
    assert len(answer.increments) == 1


def test_cancelled_request_frees_its_cache() -> None:
    options = EngineOptions(
        max_tokens_in_paged_kv_cache=512, enable_kv_cache_reuse=False, batch_scheduler_policy=SchedulerPolicy.MAX_UTILIZATION
    )
    with _open(options) as small:
        for _ in range(3):
            request_id, answer = _submit(small, [3 + k for k in range(400)], Sampling(3000), streaming=True)
            assert answer.first.wait(_WAIT_S)
            small.cancel(request_id)
            assert answer.last().finish is FinishReason.CANCELLED
        assert len(_ask(small, [3 + k for k in range(400)], Sampling(60)).tokens()) == 60


# ---- refusing and failing


def test_folder_without_an_engine_error_names_the_build_command(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=rf"{tmp_path} holds no OpenVINO engine .*bench engine build"):
        open_engine("openvino", tmp_path, EngineOptions())


def test_engine_that_openvino_cannot_load_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "openvino_model.xml").write_text("no network")
    (tmp_path / "config.json").write_text('{"vocab_size": 10, "max_position_embeddings": 20}')
    with pytest.raises(EngineError, match=f"OpenVINO cannot load the engine in {tmp_path}"):
        open_engine("openvino", tmp_path, EngineOptions())


def test_settings_are_passed_on_in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python in Triton's stub encodes nothing else, whatever the locale."""
    commands = list[Sequence[str]]()

    def start(command: Callable[[int], Sequence[str]]) -> Link:
        commands.append(command(3))
        raise EngineError("not started")

    monkeypatch.setattr("serving.engines.openvino.engine.start", start)
    options = EngineOptions(step_log="/tmp/Schritte für später.csv", min_step_time="8ms,prompt_token=20µs")
    with pytest.raises(EngineError, match="not started"):
        OpenVinoEngine(DEMO_ENGINE_DIR, options)
    settings = commands[0][-1]
    assert settings.isascii()
    assert msgspec.json.decode(settings, type=EngineOptions) == options


def test_unknown_engine_error_lists_the_known_ones() -> None:
    with pytest.raises(EngineError, match="unknown engine 'abacus'; known: openvino, tensorrt_llm"):
        open_engine("abacus", DEMO_ENGINE_DIR, EngineOptions())


def test_request_that_openvino_rejects_ends_with_an_error_and_others_continue(engine: Engine) -> None:
    refused = _submit(engine, [], Sampling(4))[1]
    assert (refused.last().error or "").startswith("OpenVINO rejected the request")
    assert len(_ask(engine, _PROMPT, Sampling(4)).tokens()) == 4


def test_prompt_larger_than_the_cache_error_names_the_parameter() -> None:
    with _open(EngineOptions(max_tokens_in_paged_kv_cache=128, enable_kv_cache_reuse=False)) as small:
        answer = _submit(small, [3 + k for k in range(200)], Sampling(4))[1]
        assert "max_tokens_in_paged_kv_cache" in (answer.last().error or "")
        assert len(_ask(small, _PROMPT, Sampling(4)).tokens()) == 4


@pytest.mark.parametrize("policy", SchedulerPolicy)
def test_requests_that_evict_each_other_all_complete(engine: Engine, policy: SchedulerPolicy) -> None:
    prompts = [[3 + k + j for j in range(40)] for k in range(4)]
    roomy = [_ask(engine, prompt, Sampling(60)).tokens() for prompt in prompts]
    options = EngineOptions(max_tokens_in_paged_kv_cache=128, enable_kv_cache_reuse=False, batch_scheduler_policy=policy)
    with _open(options) as small:
        answers = [_submit(small, prompt, Sampling(60), streaming=True)[1] for prompt in prompts]
        assert [answer.tokens() for answer in answers] == roomy


def test_closing_fails_requests_in_flight_and_later_ones() -> None:
    with _open() as engine:
        answers = [_submit(engine, _PROMPT, Sampling(3000), streaming)[1] for streaming in (True, False)]
        assert answers[0].first.wait(_WAIT_S)
        engine.close()
        late = _submit(engine, _PROMPT, Sampling(4))[1]
        for answer in (*answers, late):
            assert answer.last().error == "the engine was closed before this request ended"
        engine.cancel(1)
        engine.close()


def test_closing_ends_the_process() -> None:
    before = {child.pid for child in psutil.Process().children()}
    with _open():
        assert {child.pid for child in psutil.Process().children()} > before
    assert {child.pid for child in psutil.Process().children()} <= before


def test_death_of_the_process_fails_requests_in_flight_and_later_ones() -> None:
    with _open_with_process() as (engine, process):
        answer = _submit(engine, _PROMPT, Sampling(3000), streaming=True)[1]
        assert answer.first.wait(_WAIT_S)
        process.kill()
        assert answer.last().error == "the engine's process has ended"
        assert _submit(engine, _PROMPT, Sampling(4))[1].last().error == "the engine's process has ended"


# ---- limits and statistics


def test_limits_come_from_the_engine_folder(engine: Engine) -> None:
    assert engine.limits == read_limits(DEMO_ENGINE_DIR) == EngineLimits(vocabulary_size=3072, context_tokens=4096)


@pytest.mark.parametrize(
    "config", ["", "[]", "{}", '{"vocab_size": 5}', '{"vocab_size": "many", "max_position_embeddings": 1}']
)
def test_config_without_limits_error_names_the_file(tmp_path: Path, config: str) -> None:
    (tmp_path / "openvino_model.xml").touch()
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(EngineError, match=rf"{tmp_path}/config\.json does not give vocab_size"):
        read_limits(tmp_path)


def _submit_in_one_step(
    engine: Engine, process: psutil.Process, count: int, sampling: Sampling
) -> tuple[list[_Answer], list[EngineStats]]:
    """Answers of requests that start together, and the stats at each of their increments."""
    answers = [_Answer() for _ in range(count)]
    sampled: list[EngineStats] = []
    process.suspend()  # so that all requests are in the pipe before the first step
    for answer in answers:

        def deliver(increment: Increment, answer: _Answer = answer) -> None:
            sampled.append(engine.stats())
            answer.deliver(increment)

        engine.submit(next(_ids), _PROMPT, sampling, deliver, streaming=True)
    time.sleep(0.1)  # longer than the period of the stats, so that the first step sends them
    process.resume()
    return answers, sampled


def test_stats_count_iterations_and_the_requests_of_a_batch() -> None:
    with _open_with_process(EngineOptions(enable_kv_cache_reuse=False)) as (engine, process):
        answers, sampled = _submit_in_one_step(engine, process, 16, Sampling(40))
        assert [len(answer.tokens()) for answer in answers] == [40] * 16
        after = engine.stats()
    assert after.generated_tokens_total == 16 * 40
    assert 40 <= after.iterations_total <= 16 * 40 / 2
    assert 2 < after.scheduled_requests_total / after.iterations_total <= 16
    assert max(stats.scheduled_requests for stats in sampled) == 16
    assert max(stats.active_requests for stats in sampled) == 16
    assert max(stats.kv_cache_used_fraction for stats in sampled) > 0
    assert all(stats.max_requests == 256 for stats in sampled)
    totals = [(stats.iterations_total, stats.scheduled_requests_total, stats.generated_tokens_total) for stats in sampled]
    assert totals == sorted(totals)
    assert (after.active_requests, after.scheduled_requests) == (0, 0)


@pytest.mark.parametrize("chunked", [False, True])
def test_at_most_max_num_sequences_requests_run(chunked: bool) -> None:
    options = EngineOptions(max_num_sequences=3, enable_chunked_context=chunked)
    with _open_with_process(options) as (engine, process):
        answers, sampled = _submit_in_one_step(engine, process, 10, Sampling(20))
        assert [len(answer.tokens()) for answer in answers] == [20] * 10
        after = engine.stats()
    assert max(stats.scheduled_requests for stats in sampled) == 3
    assert 2 < after.scheduled_requests_total / after.iterations_total <= 3


def test_stats_include_the_cache_before_the_first_request() -> None:
    with _open(EngineOptions(max_tokens_in_paged_kv_cache=640)) as engine:
        stats = engine.stats()
        assert (stats.kv_cache_blocks, stats.kv_cache_tokens_per_block) == (20, 32)


@pytest.mark.parametrize("cancel", [False, True])
def test_idle_engine_uses_none_of_its_cache(engine: Engine, cancel: bool) -> None:
    request_id, answer = _submit(engine, [3 + k for k in range(500)], Sampling(3000 if cancel else 3), streaming=True)
    assert answer.first.wait(_WAIT_S)
    if cancel:
        engine.cancel(request_id)
    answer.last()
    assert (engine.stats().active_requests, engine.stats().kv_cache_used_fraction) == (0, 0.0)
